"""Search indexes, kept in HOME/indexes by name: whole or not there, made once and read by every run of the home.

What an index is made of is left to the caller. A folder HOME/indexes/NAME holds index/ with its manifest, and a lock
that is held while it is made: another process that needs the same index waits for it.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from agent_r1.errors import CheckpointError, StoreError
from storage import checkpoints

log = logging.getLogger("agent_r1.indexes")


def keep(home: Path, name: str, write: Callable[[Path], None]) -> Path:
    """The folder of an index, filled by `write` where it is not there or damaged. Every byte is checked.

    StoreError where it cannot be written.
    """
    folder = home / "indexes" / name / "index"
    if whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        held = (folder.parent / "lock").open("w")
    except OSError as error:
        raise StoreError(f"{folder}: the search index cannot be written: {error}") from error
    with held as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel drops it with the process
        if not whole(folder):
            if folder.exists():
                log.warning("%s: the search index is damaged: it is made again", folder)
            try:
                checkpoints.publish(folder, write)
            except CheckpointError as error:
                raise StoreError(f"{folder}: the search index cannot be written: {error.__cause__}") from error
            finally:
                for draft in folder.parent.glob(".tmp-*"):  # of a corpus that turned out to be broken
                    shutil.rmtree(draft)
    return folder


def whole(folder: Path) -> bool:
    """Whether an index is there, each byte as it was made."""
    try:
        checkpoints.verify(folder)
    except CheckpointError:
        return False
    return True
