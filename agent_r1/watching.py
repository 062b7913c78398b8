"""How far a piece of work is, told to whoever watches this process; nothing that is computed depends on that.

Nobody watches by default. What is made of it, a line in a terminal or in a log, is left to the watcher, which is
called from the thread that works, once a step or more, and has to return at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Watcher(Protocol):
    """What is told. Units are plain words: trajectories, tokens, steps."""

    def begin(self, stage: str, iteration: int, shard: int) -> None:
        """A stage, or a shard of one, begins."""
        ...

    def end(self, stage: str, iteration: int, shard: int, seconds: float) -> None:
        """It is done and stored."""
        ...

    def expect(self, unit: str, total: int) -> None:
        """So many are about to be made; counting begins anew."""
        ...

    def count(self, unit: str, more: int) -> None:
        """So many more are made."""
        ...


_watchers: list[Watcher] = []


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell the watcher, and no other, for as long as the block runs."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def begin(stage: str, iteration: int, shard: int) -> None:
    """See Watcher.begin."""
    if _watchers:
        _watchers[-1].begin(stage, iteration, shard)


def end(stage: str, iteration: int, shard: int, seconds: float) -> None:
    """See Watcher.end."""
    if _watchers:
        _watchers[-1].end(stage, iteration, shard, seconds)


def expect(unit: str, total: int) -> None:
    """See Watcher.expect."""
    if _watchers:
        _watchers[-1].expect(unit, total)


def count(unit: str, more: int = 1) -> None:
    """See Watcher.count."""
    if _watchers:
        _watchers[-1].count(unit, more)
