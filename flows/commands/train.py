"""train and resume."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.options import DEFAULT_HOME, Home, JsonLines, Quiet, Run, Settings
from flows.configs import find_config
from flows.interruption import orderly
from flows.terminal import console, say

if TYPE_CHECKING:
    from agent_r1.config import Config
    from flows.screens import Mode
    from flows.start import Begun

QUICKSTART = "quickstart"


def train(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped configuration.")] = QUICKSTART,
    run: Annotated[str | None, typer.Option("--run", help="Name of the run. Default: the configuration's.")] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", help="Iterations in total. Default: the configuration's.")
    ] = None,
    more: Annotated[
        int | None, typer.Option("--more", help="Iterations to add to those done; after a crash, what it left of them.")
    ] = None,
    settings: Settings = None,
    start_from: Annotated[
        str | None, typer.Option("--from", help="RUN or RUN@I: start from another run's checkpoint.")
    ] = None,
    home: Home = DEFAULT_HOME,
    quiet: Quiet = False,
    json_lines: JsonLines = False,
) -> None:
    """Train a run, or go on with the one of that name.

    In a terminal a line that moves says how far it is; anywhere else there are plain lines.
    """
    from agent_r1.config import load
    from agent_r1.errors import ConfigError
    from flows import screens
    from flows.home import check_home, check_run_name

    if more is not None and iterations is not None:
        raise ConfigError("--more and --iterations: expected one of them; --iterations counts from the beginning")
    mode = screens.chosen(quiet, json_lines)
    path = find_config(config)
    total = [] if iterations is None else [f"iterations={iterations}"]
    loaded = load(path, [*(settings or []), *total])
    name = check_run_name(path.stem if run is None else run)
    folder = check_home(home)

    from flows.start import begin, further

    def configured() -> Config:
        return loaded if more is None else further(folder, name, loaded, more)

    _train(folder, name, mode, lambda: begin(folder, name, configured(), start_from))


def resume(
    run: Run,
    from_iteration: Annotated[
        int | None, typer.Option("--from-iteration", help="Do this iteration and all after it again.")
    ] = None,
    home: Home = DEFAULT_HOME,
    quiet: Quiet = False,
    json_lines: JsonLines = False,
) -> None:
    """Go on with a run from the first stage that is not finished."""
    from flows import screens
    from flows.home import check_home, find_home, stored_row

    mode = screens.chosen(quiet, json_lines)
    folder = check_home(find_home(home))
    stored_row(folder, run)

    from flows.start import resume as resume_run

    _train(folder, run, mode, lambda: resume_run(folder, run, from_iteration))


def _train(home: Path, run: str, mode: Mode, begin: Callable[[], Begun]) -> None:
    from flows import screens
    from flows.session import run_training

    shown_home = "" if home == DEFAULT_HOME.resolve() else f" --home {shlex.quote(str(home))}"
    with orderly(home, f"agent-r1 resume {run}{shown_home}"), screens.opened(mode) as screen:
        context = run_training(home, run, begin, screen.say)

    from flows import reports

    if mode is screens.Mode.USUAL:
        reports.after_training(context, shown_home).draw(console())
    elif mode is screens.Mode.QUIET:
        say(reports.last_line(context))
