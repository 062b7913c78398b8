"""A home's mlflow.db: made whole or not at all, and opened anew where it was deleted.

Its tables and rows are MLflow's, what is shown in them is left to tracking.py.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from mlflow.tracking import MlflowClient

_OPENED: dict[Path, tuple[int | None, int]] = {}
"""The file that was open under a path, and how often another one came in its place."""


def make_database(path: Path) -> None:
    """MLflow's tables, where there are none, in a draft that is then renamed. One process at a time may do it.

    They take seconds and a hundred steps, and MLflow cannot go on with what a kill leaves of them.
    """
    if path.exists():
        return
    for left_over in path.parent.glob(f".tmp-*{path.name}*"):
        left_over.unlink()
    draft = path.with_name(f".tmp-{uuid4().hex}-{path.name}")  # a name once opened MLflow takes for made
    MlflowClient(tracking_uri=address(draft), registry_uri=address(draft)).search_experiments(max_results=1)
    draft.replace(path)


def address(path: Path) -> str:
    """Of a SQLite file. MLflow keeps a file open under its address, a deleted one, too: the new one gets another."""
    inode, again = _OPENED.get(path, (None, 0))
    if inode not in (None, _inode(path)):
        again += 1
    _OPENED[path] = inode, again
    return f"sqlite:///{path.parent}/{'./' * again}{path.name}"


def remember(path: Path) -> None:
    """Which file it is that is open now."""
    _, again = _OPENED.get(path, (None, 0))
    _OPENED[path] = _inode(path), again


def _inode(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None
