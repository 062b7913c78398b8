"""One process on a run at a time, and who it is. The kernel drops the lock with its process, also after kill -9."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agent_r1.errors import RunError

NAME = "lock"
TRIES = 5  # `holder` of another process may have the lock for a moment


class RunInUse(RunError):
    """Another process works on the run."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder. RunInUse names the process that has it. Children do not inherit it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for left in reversed(range(TRIES)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not left:
                    raise RunInUse(f"run {folder.name!r} is in use by process {_pid(descriptor)}") from error
                time.sleep(0.05)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder(folder: Path) -> str | None:
    """The process that works on the run, None where nobody does."""
    with suppress(FileNotFoundError):
        descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _pid(descriptor)
        finally:
            os.close(descriptor)
    return None


def _pid(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode(errors="replace") or "?"
