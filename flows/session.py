"""What surrounds a training flow: the run's lock, how it begins, Prefect's server, signals, and how it ended.

The order of the stages is left to training.py.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType

from flows.locks import run_lock
from flows.server import crash_dead_runs, prefect_server
from flows.start import Begun, rewind
from storage import runs
from storage.metrics import MetricRow
from tasks.context import RunContext


def run_training(home: Path, run: str, begin: Callable[[], Begun], say: Callable[[str], None]) -> RunContext:
    """Train a run up to its number of iterations, holding its lock. `begin` checks and stores how it begins.

    The run's status ends as finished, failed or stopped (Ctrl-C and SIGTERM, which raise KeyboardInterrupt).
    """
    with run_lock(home / "runs" / run), _servers_closed():
        begun = begin()
        with status_at_the_end(begun.context), sigterm_is_ctrl_c():
            for line in (*begun.lines, rewind(begun.context)):
                if line:
                    say(line)
            with prefect_server(home, _import_training):
                _run_flow(home, run)
    return begun.context


@contextmanager
def _servers_closed() -> Iterator[None]:
    """No vLLM or MCP server is left at the end, also where a run does not begin: it is tried out with its own."""
    try:
        yield
    finally:
        for name in ("tasks.engine", "agent_r1.own"):
            if name in sys.modules:  # else nothing of it was started
                sys.modules[name].close()


def _import_training() -> None:
    """Import Prefect and the tasks; not at the top, because Prefect reads its environment when it is imported."""
    import_module("flows.training")


def _run_flow(home: Path, run: str) -> None:
    """As a flow run of its own, or as the one that we are in: the firing of a schedule."""
    from prefect import tags
    from prefect.context import FlowRunContext

    from flows.training import train

    names = run_tags(home, run)
    within = FlowRunContext.get()
    crash_dead_runs(names, None if within is None or within.flow_run is None else within.flow_run.id)
    with tags(*names):
        if within is None:
            train(str(home), run)
        else:
            train.fn(str(home), run)


def run_tags(home: Path, run: str) -> list[str]:
    """The tags of every flow run that works on the run."""
    return [f"run:{run}", f"home:{home}"]


@contextmanager
def status_at_the_end(context: RunContext) -> Iterator[None]:
    """Store how the run ended, and show it in MLflow."""
    try:
        yield
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        with suppress(Exception):  # what went wrong first is what the user has to see
            _set_status(context, "stopped" if stopped else "failed")
        raise
    _set_status(context, "finished")


def _set_status(context: RunContext, status: str) -> None:
    from tasks import publish

    with context.store.write() as con:
        runs.set_status(con, context.run, status)
    publish.close(context, status, _curves)


def _curves(rows: Sequence[MetricRow]) -> bytes:
    from flows import plots  # takes half a second

    return plots.learning(rows)


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """SIGTERM stops a run as orderly as Ctrl-C does; Prefect hands it on to the handler that it finds."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
