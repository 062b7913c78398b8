"""The command line: what a user may ask for, and how errors become one line and an exit code.

Each command imports what it needs, so that `--help` and `runs` answer at once. Doing it is left to the other files.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

os.environ["DO_NOT_TRACK"] = "true"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's idle threads sleep: spinning ones stall a busy machine

import typer
from rich.console import Console

from agent_r1.errors import AgentR1Error, ConfigError
from flows.configs import find_config
from flows.interruption import orderly

if TYPE_CHECKING:
    from flows.reports import View
    from flows.start import Begun

DEBUG = "--debug"
QUICKSTART = "quickstart"
USAGE_ERROR = typer.BadParameter.__mro__[1]  # click's UsageError, which typer brings but does not name

app = typer.Typer(
    name="agent-r1",
    epilog=f"Every command also takes {DEBUG}, which shows the traceback of an error.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

Home = Annotated[
    Path, typer.Option("--home", envvar="AGENT_R1_HOME", help="Folder that holds everything runs leave behind.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Run = Annotated[str, typer.Argument(help="Name of a run.", show_default=False)]
DEFAULT_HOME = Path("agent-r1-home")


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
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.WARNING)
        logger.propagate = False


def _complain(message: str, arguments: Sequence[str]) -> None:
    if DEBUG in arguments:
        traceback.print_exc()
    print(f"agent-r1: {' '.join(message.split())}", file=sys.stderr)


@app.callback()
def _root() -> None:
    """Train tool-using language-model agents end to end by reinforcement learning."""


@app.command()
def train(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped configuration.")] = QUICKSTART,
    run: Annotated[str | None, typer.Option("--run", help="Name of the run. Default: the configuration's.")] = None,
    iterations: Annotated[int | None, typer.Option("--iterations", help="Iterations in total.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key.sub=value, instead of the file's.")] = None,
    start_from: Annotated[
        str | None, typer.Option("--from", help="RUN[@I]: start from another run's checkpoint.")
    ] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Train a run, or go on with the one of that name."""
    from agent_r1.config import load
    from flows.home import check_home, check_run_name

    path = find_config(config)
    total = [] if iterations is None else [f"iterations={iterations}"]
    loaded = load(path, [*(settings or []), *total])
    name = check_run_name(path.stem if run is None else run)
    folder = check_home(home)

    from flows.start import begin

    _train(folder, name, lambda: begin(folder, name, loaded, start_from))


@app.command()
def resume(
    run: Run,
    from_iteration: Annotated[
        int | None, typer.Option("--from-iteration", help="Do this iteration and all after it again.")
    ] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Go on with a run from the first stage that is not finished."""
    from flows.home import check_home, find_home, stored_row

    folder = check_home(find_home(home))
    stored_row(folder, run)

    from flows.start import resume as resume_run

    _train(folder, run, lambda: resume_run(folder, run, from_iteration))


@app.command()
def runs(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List the runs of a home."""
    from flows import reports

    _print(reports.runs(home), as_json)


@app.command()
def show(
    run: Run,
    iteration: Annotated[int | None, typer.Option("--iteration", help="Metrics and trajectories of it.")] = None,
    trajectory: Annotated[
        str | None, typer.Option("--trajectory", help="A trajectory's id, or an end of it that no other has.")
    ] = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Show a run's stages, one of its iterations, or a trajectory with its tokens coloured by mask."""
    from flows import reports

    if trajectory is not None:
        _print(reports.trajectory(home, run, trajectory), as_json)
    elif iteration is not None:
        _print(reports.iteration(home, run, iteration, every=as_json), as_json)
    else:
        _print(reports.run(home, run), as_json)


@app.command()
def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN RUN ...", help="Two or more runs.", show_default=False)],
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Compare runs: by iteration, in sum, and in what their configurations differ."""
    from flows import reports

    if len(set(names)) < 2:
        raise ConfigError("compare: expected two or more different runs")
    _print(reports.comparison(home, names), as_json)


@app.command()
def doctor(
    run: Annotated[str | None, typer.Argument(help="Default: what is installed, and the home.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="A question file to look into instead.")] = None,
    layout: Annotated[str, typer.Option("--format", help="Layout of the file, as data.format.")] = "auto",
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong or odd with a run, with numbers and what to try; with what is installed; or with a data file.

    The exit code is 0 where it could look: alarms and warnings are findings, not failures. A broken file is a failure.
    """
    from flows import data_report, installation, reports

    if data is None and layout != "auto":
        raise ConfigError("--format says how to read a file: name it with --data")
    if data is not None and run is not None:
        raise ConfigError("doctor: expected a run or --data, not both")
    if data is not None:
        _print(data_report.examine(data, layout), as_json)
        return
    _print(installation.examine(home) if run is None else reports.diagnosis(home, run), as_json)


@app.command()
def reannotate(
    run: Run,
    name: Annotated[str, typer.Option("--name", help="Name of the new run.", show_default=False)],
    settings: Annotated[list[str] | None, typer.Option("--set", help="rewards.x=y, instead of the run's.")] = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Price a run's stored trajectories anew, as another run."""
    from flows.home import check_home, find_home

    folder = check_home(find_home(home))

    from flows import reports
    from flows.reannotate import reannotate as reannotate_run

    with orderly(folder, "the same command"):
        reannotate_run(folder, run, name, settings or [], say=_quiet if as_json else _say)
    _print(reports.reannotated(folder, run, name), as_json)


@app.command()
def evaluate(
    target: Annotated[str, typer.Argument(help="A run, a checkpoint folder or a Hugging Face model.")],
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Question file instead of the target's own; may be repeated.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation or test.")] = "validation",
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="policy (the default), direct, rag, react, or all; may be repeated."),
    ] = None,
    questions: Annotated[
        int | None, typer.Option("--questions", min=1, help="Only the first so many of each file or split.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key.sub=value, instead of the target's.")] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="Keep what was answered as a run; NAME-METHOD of several methods.")
    ] = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Evaluate a policy on questions, and other ways of answering them with the same weights."""
    from flows import evaluate_command as command

    options = command.Options(target, data or [], split, method or ["policy"], questions, settings or [], run, home)
    _print(command.evaluate(options, _aside), as_json)


@app.command()
def experiment(
    config: Annotated[str, typer.Argument(help="A YAML file, or a shipped experiment.", show_default=False)],
    name: Annotated[str | None, typer.Option("--name", help="Name of the experiment. Default: the file's.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this variant; may be repeated.")] = None,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Only this seed; may be repeated.")] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of the results. Default: HOME/experiments/NAME/results.")
    ] = None,
    summary_only: Annotated[bool, typer.Option("--summary-only", help="Run nothing, sum up what is there.")] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Train named variants with several seeds each, or go on with that, and compare them."""
    from flows import experiment_command as command
    from flows.experiment import check_done

    options = command.Options(config, name, only or [], seeds or [], results, summary_only, home)
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        view, failures = command.experiment(options, _say)
    _print(view, as_json)
    check_done(failures)


def _train(home: Path, run: str, begin: Callable[[], Begun]) -> None:
    from flows.session import run_training

    shown_home = "" if home == DEFAULT_HOME.resolve() else f" --home {shlex.quote(str(home))}"
    with orderly(home, f"agent-r1 resume {run}{shown_home}"):
        context = run_training(home, run, begin, _say)

    from flows import reports

    reports.after_training(context, shown_home).draw(_console())


def _say(line: str) -> None:
    print(line, flush=True)


def _aside(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _quiet(_line: str) -> None: ...


def _print(view: View, as_json: bool) -> None:
    if as_json:
        print(view.json_text())
    else:
        view.draw(_console())


def _console() -> Console:
    """As wide as the terminal; wide enough for every table where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=200)


if __name__ == "__main__":
    sys.exit(main())
