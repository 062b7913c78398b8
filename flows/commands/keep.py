"""gc and export: what a home need not keep, and what leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, AsJson, Home
from flows.interruption import orderly
from flows.terminal import say, show_view


def gc(
    delete: Annotated[
        list[str] | None, typer.Option("--delete", help="Delete this run: rows, files, MLflow run; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be dropped, and drop nothing.")] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Drop what a home keeps without need.

    That is old checkpoints, left-overs of kills, and the space of deleted rows.
    Runs are deleted only by name. Runs that a process works on are left alone.
    Killed, it can be given again.
    """
    from flows.home import find_home
    from flows.housekeeping import gc as sweep

    folder = find_home(home)
    with orderly(folder, "the same command"):
        view = sweep(folder, delete or [], dry_run)
    show_view(view, as_json)


def export(
    target: Annotated[str, typer.Argument(metavar="RUN[@I]", help="A run's best checkpoint, or that of an iteration.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.", show_default=False)],
    trajectories: Annotated[
        bool, typer.Option("--trajectories", help="With all trajectories of the run, as Parquet.")
    ] = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Write a policy as a plain Hugging Face folder with a card.

    For transformers, vLLM and the hub.
    """
    from flows.export import export as write

    write(home, target, folder, trajectories, say)
