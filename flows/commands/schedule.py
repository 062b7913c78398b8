"""schedule."""

from __future__ import annotations

import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, Home, Settings
from flows.configs import find_config
from flows.interruption import orderly
from flows.server import PORT, pages, standing_server
from flows.terminal import say

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
SHORTEST = timedelta(seconds=10)


def schedule(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped configuration.")],
    every: Annotated[
        str | None, typer.Option("--every", help="Fire at once, then each interval: 90s, 15m, 1h, 2d.")
    ] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", help='Fire at these times of the local time zone: "0 3 * * *".')
    ] = None,
    iterations: Annotated[
        int, typer.Option("--iterations", help="How many a firing adds; after a crash, what it left of them.")
    ] = 1,
    run: Annotated[str | None, typer.Option("--run", help="Name of the run. Default: the configuration's.")] = None,
    settings: Settings = None,
    port: Annotated[int, typer.Option("--port", help="Of Prefect's pages, on loopback.")] = PORT,
    home: Home = DEFAULT_HOME,
) -> None:
    """Train a run further by a schedule, until Ctrl-C.

    Prefect keeps the schedule. Firings never overlap: one that is due while
    another works on the run does nothing, and none are made up for later.
    """
    from agent_r1.config import load
    from agent_r1.errors import ConfigError
    from flows.home import check_home, check_run_name

    if (every is None) == (cron is None):
        raise ConfigError("schedule: expected either --every or --cron, such as --every 1h")
    interval = None if every is None else parse_interval(every)
    if iterations < 1:
        raise ConfigError(f"--iterations {iterations}: expected 1 or more, what each firing adds")
    path = find_config(config)
    load(path, settings or [])
    name = check_run_name(path.stem if run is None else run)
    folder = check_home(home)
    given = str(path.resolve()) if Path(config).is_file() else config

    with orderly(folder, "the same command"), standing_server(folder, port, _import_schedule) as url:
        from flows.schedule import Plan, forget_dead_firings, serve, times

        plan = Plan(folder, name, given, iterations, tuple(settings or ()), times(interval, cron))
        forget_dead_firings(plan)
        when = f"now and every {every}" if cron is None else f'at "{cron}", {plan.times.timezone}'
        say(f"run {name}: {iterations} more iteration{'s' if iterations > 1 else ''} {when}")
        say(f"Prefect: {pages(url)}  (Ctrl-C stops the schedule, and the firing in progress in order)")
        serve(plan)


def _import_schedule() -> None:
    """Not at the top, because Prefect reads its environment when it is imported."""
    import_module("flows.schedule")


def parse_interval(text: str) -> timedelta:
    """A whole number and a unit. ConfigError for anything else, and for less than ten seconds."""
    from agent_r1.errors import ConfigError

    found = re.fullmatch(r"(\d{1,6})([smhd])", text.strip())
    interval = timedelta() if found is None else timedelta(**{UNITS[found[2]]: int(found[1])})
    if interval < SHORTEST:
        raise ConfigError(f"--every {text!r}: expected a number and a unit, 10s or longer, such as 90s, 15m, 1h, 2d")
    return interval
