"""What a home holds: the folder itself, the runs in it by name. Quick to import; starting runs is left to start.py."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from agent_r1.config import Config, parse
from agent_r1.errors import ConfigError, RunError, did_you_mean
from storage import runs
from storage.database import Store
from storage.runs import EVALUATES, TRAJECTORIES_OF, RunRow, noted
from tasks.context import STORE, RunContext

__all__ = ["EVALUATES", "TRAJECTORIES_OF", "noted"]

UNUSABLE = '?%"'  # would mean something else in the address of mlflow.db, or in a question to MLflow
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_home(home: Path) -> Path:
    """The home as an absolute path, made where it is missing. ConfigError where it cannot be written."""
    home = home.expanduser().absolute()
    if any(letter in UNUSABLE for letter in str(home.resolve())):
        raise ConfigError(f"home {home}: expected a path without any of {' '.join(UNUSABLE)}")
    check_folder("home", home)
    return home.resolve()


def check_folder(what: str, folder: Path) -> None:
    """Make the folder where it is missing. ConfigError, which says what it is for, where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"{what} {folder}: lies at or below a regular file") from error
    except OSError as error:
        raise ConfigError(f"{what} {folder}: cannot be made: {error.strerror}") from error
    try:
        with tempfile.TemporaryFile(dir=folder):  # permissions say nothing of read-only and special file systems
            pass
    except OSError as error:
        raise ConfigError(f"{what} {folder}: cannot be written: {error.strerror}") from error


def find_home(home: Path) -> Path:
    """The home of a command that only reads: nothing is made. ConfigError where it is no folder."""
    home = home.expanduser().absolute()
    if not home.is_dir():
        problem = "is no folder" if home.exists() else "does not exist (nothing was run there; --home names another)"
        raise ConfigError(f"home {home}: {problem}")
    return home.resolve()


def check_run_name(run: str) -> str:
    """The name itself. ConfigError where it could not be a folder or part of an id."""
    if not RUN_NAME.fullmatch(run):
        raise ConfigError(f"run name {run!r}: expected letters, digits, '.', '_' and '-', a letter or digit first")
    return run


def all_rows(home: Path) -> list[RunRow]:
    """Every run of the home, oldest first; none where there is no store yet."""
    store = Store(home / STORE)
    if not store.path.exists():
        return []
    with store.read() as con:
        return runs.all_runs(con)


def find_row(home: Path, run: str) -> RunRow | None:
    """The run's row, None where it was never started."""
    return next((row for row in all_rows(home) if row.run == run), None)


def stored_row(home: Path, run: str) -> RunRow:
    """The run's row. RunError where there is none."""
    rows = {row.run: row for row in all_rows(home)}
    if run not in rows:
        raise RunError(
            f"there is no run {run!r} in {home}; runs are: {', '.join(rows) or 'none'}{did_you_mean(run, rows)}"
        )
    return rows[run]


def trajectories_of(row: RunRow) -> str | None:
    """The run whose trajectories this one holds, by reannotate; None for a run that samples its own."""
    return noted(row, TRAJECTORIES_OF)


def stored_context(home: Path, run: str) -> RunContext:
    """The context of a run as it is stored. RunError where there is none."""
    return context_of(home, run, parse(stored_row(home, run).config, f"the stored configuration of run {run!r}"))


def context_of(home: Path, run: str, config: Config) -> RunContext:
    """The context of a run; the user's MLFLOW_TRACKING_URI wins over the MLflow of the home."""
    return RunContext(home, run, config, os.environ.get("MLFLOW_TRACKING_URI") or None)
