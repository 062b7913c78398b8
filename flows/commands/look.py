"""runs, show, report, compare, doctor and ui: commands that only read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_r1.errors import ConfigError
from flows.commands.options import DEFAULT_HOME, AsJson, Home, Run
from flows.terminal import show_view


def runs(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List the runs of a home."""
    from flows import reports

    show_view(reports.runs(home), as_json)


def show(
    run: Run,
    iteration: Annotated[
        int | None, typer.Option("--iteration", help="Its metrics, and some of its trajectories.")
    ] = None,
    trajectory: Annotated[
        str | None, typer.Option("--trajectory", help="By its id, or an end of it that no other has.")
    ] = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Show a run, an iteration, or a trajectory turn by turn.

    A trajectory's tokens are coloured by mask: what the agent chose, and what it was given.
    """
    from flows import reports

    if trajectory is not None:
        show_view(reports.trajectory(home, run, trajectory), as_json)
    elif iteration is not None:
        show_view(reports.iteration(home, run, iteration, every=as_json), as_json)
    else:
        show_view(reports.run(home, run), as_json)


def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write. Default: HOME/runs/RUN/report.html.")
    ] = None,
    trajectories: Annotated[
        int, typer.Option("--trajectories", min=0, metavar="N", help="At most so many trajectories on it.")
    ] = 1200,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page about a run.

    It has its curves, trajectories token by token, and how it was set up.
    The page is one file that loads nothing else. It may be made while the run
    goes on.
    """
    from flows.report.file import write

    show_view(write(home, run, out, trajectories), as_json)


def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN RUN ...", help="Two or more runs.", show_default=False)],
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Compare runs: by iteration, in sum, by their configurations."""
    from flows import reports

    if len(set(names)) < 2:
        raise ConfigError("compare: expected two or more different runs")
    show_view(reports.comparison(home, names), as_json)


def doctor(
    run: Annotated[str | None, typer.Argument(help="Name of a run. Default: the installation and the home.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="A question file to look into instead.")] = None,
    layout: Annotated[str, typer.Option("--format", help="Layout of that file, as data.format.")] = "auto",
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of the home's checkpoints, too.")] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong or odd, and what to do about it.

    With the installation, its home and its servers; with a run, by its metrics; or with a question file.

    The exit code is 0 where it could look: alarms and warnings are findings, not failures. A broken file is a failure.
    """
    from flows import data_report, installation, reports

    if data is None and layout != "auto":
        raise ConfigError("--format says how to read a file: name it with --data")
    if data is not None and run is not None:
        raise ConfigError("doctor: expected a run or --data, not both")
    if data is not None:
        show_view(data_report.examine(data, layout), as_json)
        return
    show_view(installation.examine(home, deep) if run is None else reports.diagnosis(home, run), as_json)


def ui(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Of MLflow's pages.")] = 5000,
    prefect_port: Annotated[int, typer.Option("--prefect-port", min=1, max=65535, help="Of Prefect's pages.")] = 4200,
    prefect: Annotated[bool, typer.Option("--prefect/--no-prefect", help="Prefect's pages, too.")] = True,
    home: Home = DEFAULT_HOME,
) -> None:
    """Open MLflow's and Prefect's pages on this machine, until Ctrl-C."""
    from flows.home import find_home
    from flows.terminal import say
    from flows.ui import serve

    try:
        serve(find_home(home), port, prefect_port if prefect else None, say)
    except KeyboardInterrupt:  # the way to end it
        return
