"""The command line: which commands there are, and how errors become one line and an exit code.

The commands are in commands/. Each imports what it needs, so that `--help` and `runs` answer at once.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, cast

os.environ["DO_NOT_TRACK"] = "true"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's idle threads sleep: spinning ones stall a busy machine

import typer

from agent_r1.errors import AgentR1Error
from flows.commands import chat, keep, look, measure, schedule, train
from flows.commands.help import Command, Group

DEBUG = "--debug"
COMMANDS = {
    "Train": (train.train, train.resume, schedule.schedule),
    "Look": (look.runs, look.show, look.report, look.ui, look.compare, look.doctor),
    "Use": (chat.chat, keep.export, keep.gc),
    "Measure": (measure.evaluate, measure.experiment, measure.reannotate),
}
USAGE_ERROR = typer.BadParameter.__mro__[1]  # click's UsageError, which typer brings but does not name

app = typer.Typer(
    name="agent-r1",
    epilog=f"agent-r1 COMMAND --help has examples. {DEBUG} with any command shows an error's traceback.",
    add_completion=False,
    cls=Group,
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0 done, 1 failed, 2 wrong usage or configuration, 130 Ctrl-C."""
    _hear_warnings()
    given = list(sys.argv[1:] if arguments is None else arguments)
    known = [argument for argument in given if argument != DEBUG] or ["--help"]
    try:
        code = app(known, prog_name="agent-r1", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except AgentR1Error as error:
        _complain(str(error), given)
        return error.exit_code
    except Exception as error:  # the boundary: whatever it is, a user reads one line
        if isinstance(error, USAGE_ERROR):
            _complain(f"{cast(typer.BadParameter, error).format_message()} (agent-r1 --help)", given)
            return 2
        _complain(f"{type(error).__name__}: {error} ({DEBUG} shows the traceback)", given)
        return 1


def _hear_warnings() -> None:
    """Warnings of ours go to stderr as they are, whatever Prefect makes of the root logger."""
    logger = logging.getLogger("agent_r1")
    if not logger.handlers:
        logger.addHandler(_Stderr())
        logger.setLevel(logging.WARNING)
        logger.propagate = False


class _Stderr(logging.Handler):
    """Whatever stderr is at the time: a live line lets nothing write into it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def _complain(message: str, arguments: Sequence[str]) -> None:
    if DEBUG in arguments:
        traceback.print_exc()
    print(f"agent-r1: {' '.join(message.split())}", file=sys.stderr)


def _version(wanted: bool) -> None:
    if wanted:
        from tasks.versions import PACKAGE, code_version

        print(f"{PACKAGE} {code_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", metavar="", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Train tool-using language-model agents end to end by reinforcement learning."""
    del version


for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel, cls=Command)(command)


if __name__ == "__main__":
    sys.exit(main())
