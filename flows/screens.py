"""What a command says while it works, and how: plain lines, a live line in a terminal, JSON lines, or nothing.

One screen a process is the current one; a training flow, which Prefect starts with nothing but names, finds it there.
How the live line looks is left to live.py, what a run says to progress.py.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from typer import Exit

from agent_r1.errors import ConfigError
from agent_r1.questions.records import Json
from agent_r1.watching import watched_by
from flows.tables import finite

if TYPE_CHECKING:
    from tasks.context import RunContext

PROGRESS_SECONDS = 10.0  # between lines of a log that say how far a stage is


class Mode(StrEnum):
    """How a command says what it does."""

    USUAL = "usual"
    """A live line in a terminal, plain lines anywhere else."""
    QUIET = "quiet"
    JSON_LINES = "json-lines"


def chosen(quiet: bool, json_lines: bool) -> Mode:
    """The mode of two options. ConfigError for both."""
    if quiet and json_lines:
        raise ConfigError("--quiet and --json-lines: expected one of them, not both")
    return Mode.QUIET if quiet else Mode.JSON_LINES if json_lines else Mode.USUAL


class Screen:
    """Plain lines, one after another."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def say(self, line: str) -> None:
        """A line that stays."""
        print(line, file=self._stream or sys.stdout, flush=True)

    def passing(self, line: str) -> None:
        """What is done now, where nothing else shows that."""
        self.say(line)

    def begin_run(self, context: RunContext, shards: int) -> None:
        """A run begins or goes on, with so many shards a rollout."""

    def iteration(self, context: RunContext, number: int, line: str, values: Mapping[str, float]) -> None:
        """An iteration is done: as a line, and all of its metrics."""
        del context, number, values
        self.say(line)

    def close(self, error: BaseException | None) -> None:
        """Nothing follows; what ended it, where that is an error."""

    # What is watched (agent_r1/watching.py)

    def begin(self, stage: str, iteration: int, shard: int) -> None:
        """See Watcher.begin."""

    def end(self, stage: str, iteration: int, shard: int, seconds: float) -> None:
        """See Watcher.end."""

    def expect(self, unit: str, total: int) -> None:
        """See Watcher.expect."""

    def count(self, unit: str, more: int) -> None:
        """See Watcher.count."""


class Quiet(Screen):
    """Nothing but warnings, on stderr."""

    def say(self, line: str) -> None:
        """Warnings only."""
        if line.startswith("warning: "):
            print(line, file=sys.stderr, flush=True)

    def iteration(self, context: RunContext, number: int, line: str, values: Mapping[str, float]) -> None:
        """Not said."""


class JsonLines(Screen):
    """One JSON object a line, each with `event` and `at`; not-a-number is null."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._run: str | None = None
        self._stage: dict[str, Json] = {}
        self._counts: dict[str, list[int]] = {}
        self._told = 0.0

    def tell(self, event: str, **facts: Json) -> None:
        """One event."""
        about: dict[str, Json] = {"event": event, "at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        run: dict[str, Json] = {} if self._run is None else {"run": self._run}
        super().say(json.dumps(finite({**about, **run, **facts}), ensure_ascii=False, allow_nan=False))

    def say(self, line: str) -> None:
        """A message."""
        self.tell("message", text=line)

    def passing(self, line: str) -> None:
        """Not said: the stages are."""

    def begin_run(self, context: RunContext, shards: int) -> None:
        """Event run."""
        self._run = context.run
        done = max((row.iteration for row in context.ledger.rows if row.stage == "publish"), default=None)
        self.tell("run", home=str(context.home), iterations=context.config.iterations, done=done, shards=shards)

    def iteration(self, context: RunContext, number: int, line: str, values: Mapping[str, float]) -> None:
        """Event iteration."""
        del line
        seconds = sum(value for key, value in values.items() if key.startswith("time/"))
        self.tell(
            "iteration", iteration=number, iterations=context.config.iterations, seconds=round(seconds, 3),
            metrics=dict(values),
        )  # fmt: skip

    def close(self, error: BaseException | None) -> None:
        """Event end."""
        interrupted = isinstance(error, KeyboardInterrupt | Exit)  # Exit: interruption.py was there before
        status = "finished" if error is None else "stopped" if interrupted else "failed"
        facts: dict[str, Json] = {"error": " ".join(str(error).split())} if status == "failed" else {}
        self.tell("end", status=status, **facts)

    def begin(self, stage: str, iteration: int, shard: int) -> None:
        """Event begin."""
        self._stage = {"stage": stage, "iteration": iteration, "shard": shard}
        self._counts, self._told = {}, time.monotonic()
        self.tell("begin", **self._stage)

    def end(self, stage: str, iteration: int, shard: int, seconds: float) -> None:
        """Event stage."""
        self.tell("stage", stage=stage, iteration=iteration, shard=shard, seconds=round(seconds, 3))

    def expect(self, unit: str, total: int) -> None:
        """Counted from here."""
        self._counts[unit] = [0, total]

    def count(self, unit: str, more: int) -> None:
        """Event progress, now and then."""
        self._counts.setdefault(unit, [0, 0])[0] += more
        now = time.monotonic()
        if now - self._told >= PROGRESS_SECONDS:
            self._told = now
            done: dict[str, Json] = {
                name: {"done": count, "of": total or None} for name, (count, total) in self._counts.items()
            }
            self.tell("progress", **self._stage, **done)


_current: list[Screen] = []


def current() -> Screen:
    """The screen of this process; plain lines where no command opened one."""
    return _current[-1] if _current else Screen()


@contextmanager
def opened(mode: Mode = Mode.USUAL, stream: TextIO | None = None) -> Iterator[Screen]:
    """The screen for a command's work, on stdout or the stream; it is told what ended the work, and leaves no trace."""
    with _made(mode, stream) as screen:
        _current.append(screen)
        error: BaseException | None = None
        try:
            with watched_by(screen):
                yield screen
        except BaseException as raised:
            error = raised
            raise
        finally:
            _current.remove(screen)
            screen.close(error)


@contextmanager
def _made(mode: Mode, stream: TextIO | None) -> Iterator[Screen]:
    if mode is Mode.QUIET:
        yield Quiet(stream)
    elif mode is Mode.JSON_LINES:
        yield JsonLines(stream)
    elif (stream or sys.stdout).isatty():
        from flows.live import live_screen

        with live_screen(stream or sys.stdout) as screen:
            yield screen
    else:
        yield Screen(stream)
