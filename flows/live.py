"""The live line of a terminal: what is being done, how far it is, how fast it goes and how long the run still takes.

Lines that stay are printed above it. Where there is no terminal, screens.py has plainer screens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.text import Text

from flows.estimate import seconds_left
from flows.screens import Screen
from tasks.context import RunContext

REFRESHES = 4  # a second
BAR = 16  # columns
NO_ITERATION = ("prepare", "warm_start")


@dataclass
class Doing:
    """The stage in progress, or what is answered outside of any; counts as (made, expected, since)."""

    stage: str = ""
    iteration: int = 0
    shard: int = 0
    since: float = field(default_factory=time.monotonic)
    counts: dict[str, list[float]] = field(default_factory=dict)

    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.since


class LiveScreen(Screen):
    """Lines that stay, above a line that moves. Counting only adds up: the line is drawn by rich's own thread."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._context: RunContext | None = None
        self._shards = 1
        self._doing = Doing()
        self._left: float | None = None

    def say(self, line: str) -> None:
        """A line that stays, above."""
        self._console.print(Text(line), soft_wrap=True)

    def passing(self, line: str) -> None:
        """Not said: it moves."""

    def begin_run(self, context: RunContext, shards: int) -> None:
        """What it is about from now on."""
        self._context, self._shards = context, shards

    def begin(self, stage: str, iteration: int, shard: int) -> None:
        """See Watcher.begin."""
        if self._context is not None:
            rows = self._context.ledger.rows
            self._left = seconds_left(rows, self._context.config, self._shards)
        self._doing = Doing(stage, iteration, shard)

    def end(self, stage: str, iteration: int, shard: int, seconds: float) -> None:
        """See Watcher.end."""
        del stage, iteration, shard, seconds
        if self._left is not None:
            self._left -= min(self._doing.seconds(), self._left)
        self._doing = Doing()

    def expect(self, unit: str, total: int) -> None:
        """See Watcher.expect."""
        self._doing.counts = {unit: [0, total, time.monotonic()]}  # another one: the old may be being drawn

    def count(self, unit: str, more: int) -> None:
        """See Watcher.count."""
        self._doing.counts.setdefault(unit, [0, 0, time.monotonic()])[0] += more

    def iteration(self, context: RunContext, number: int, line: str, values: Mapping[str, float]) -> None:
        """One line of the terminal, where need be without the times."""
        del context, number, values
        self.say(line if cell_len(line) <= self._console.width else line.partition("  |")[0])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The line, and an empty one below it, where the cursor waits: a killed run leaves it there."""
        width = options.max_width - 1
        pieces = [(rank, piece) for rank, piece in self._pieces() if piece]
        while len(pieces) > 1 and sum(_width(piece) + 2 for _, piece in pieces) - 2 > width:
            pieces.remove(max(pieces, key=lambda each: each[0]))
        for place, (_, piece) in enumerate(pieces):
            yield Segment("  " if place else "")
            if isinstance(piece, str):
                yield Segment(piece[:width])
            else:
                yield from (segment for segment in console.render(piece) if segment.text != "\n")
        yield Segment.line()

    def _pieces(self) -> Iterator[tuple[int, str | ProgressBar]]:
        """What could be said, from left to right; where there is little room the highest number is left out first."""
        counts = dict(self._doing.counts)
        yield 6, "" if self._context is None else self._context.run
        yield 0, self._where()
        for unit, (made, total, since) in counts.items():
            if total:
                yield 4, ProgressBar(total=total, completed=min(made, total), width=BAR)
                yield 1, f"{made:.0f}/{total:.0f} {unit}"
                yield 3, f"{_rate(made / _since(since))}/s" if made else ""
        if "tokens" in counts:
            made, _, since = counts["tokens"]
            yield 5, f"{_rate(made / _since(since))} tokens/s"
        yield 2, self._time([*counts.values()])

    def _where(self) -> str:
        doing = self._doing
        if not doing.stage:
            return "answering" if doing.counts else "starting" if self._context is None else "..."
        name = doing.stage.replace("_", " ")
        if doing.stage == "rollout":
            name = f"rollout {doing.shard + 1}/{self._shards}"
        if self._context is None or doing.stage in NO_ITERATION:
            return name
        return f"iteration {doing.iteration}/{self._context.config.iterations}  {name}"

    def _time(self, counts: Sequence[Sequence[float]]) -> str:
        """Of the run, where all its stages were timed before; else of what is counted."""
        doing = self._doing
        if self._left is not None:
            return f"{_clock(max(self._left - doing.seconds(), 0.0))} left"
        for made, total, since in counts:
            if made and total:
                return f"{_clock(max(total - made, 0.0) * _since(since) / made)} to go here"
        return _clock(doing.seconds())


@contextmanager
def live_screen(stream: TextIO) -> Iterator[Screen]:
    """A live screen on a terminal, plain lines where it cannot move its cursor. The terminal is left as it was."""
    console = Console(file=stream)
    if console.is_dumb_terminal or not console.is_terminal:
        yield Screen(stream)
        return
    screen = LiveScreen(console)
    live = Live(
        screen,
        console=console,
        transient=True,
        refresh_per_second=REFRESHES,
        redirect_stderr=sys.stderr.isatty(),  # else it goes where the user sends it
    )
    with live:
        console.show_cursor(True)  # a run that is killed cannot show it again
        yield screen


def _width(piece: str | ProgressBar) -> int:
    return cell_len(piece) if isinstance(piece, str) else BAR


def _since(start: float) -> float:
    return max(time.monotonic() - start, 1e-3)


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _clock(seconds: float) -> str:
    """ "42 s", "4 min", "1 h 05 min": coarser the longer."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
