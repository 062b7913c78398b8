"""A run's metrics as series: how a metric is now, and how it changed. Judging that is left to diagnosis.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

RECENT = 3  # iterations whose mean counts as how it is now: a single one dips and recovers
LISTED = 3  # items that are named; of the others only how many
WINDOW = 4  # iterations on each side of a change; half of all where there are fewer than eight


class Point(NamedTuple):
    """A value of a metric."""

    iteration: int
    value: float

    def __str__(self) -> str:
        return f"{self.value:.3g} at iteration {self.iteration}"


class Change(NamedTuple):
    """Means of two windows, one after the other."""

    before: float
    after: float
    first: int
    last: int

    @property
    def rise(self) -> float:
        """After less before."""
        return self.after - self.before

    def __str__(self) -> str:
        return f"{self.before:.3g} -> {self.after:.3g} between the halves of iterations {self.first} to {self.last}"


@dataclass(frozen=True)
class History:
    """All values of a run by metric and iteration. `score` names the metric that the best checkpoint is best at.

    `evaluated` is False for a run that has no policy to evaluate, `grouped` where no estimator compares attempts.
    """

    values: Mapping[str, Mapping[int, float]]
    score: str
    evaluated: bool = True
    grouped: bool = True

    def series(self, key: str) -> list[Point]:
        """The finite values of a metric by iteration; none where it was never measured."""
        points = sorted(self.values.get(key, {}).items())
        return [Point(iteration, value) for iteration, value in points if math.isfinite(value)]

    @property
    def last(self) -> int:
        """The last iteration that measured anything, 0 for none."""
        return max((iteration for values in self.values.values() for iteration in values), default=0)


def history(
    rows: Iterable[tuple[int, str, float]], score: str, *, evaluated: bool = True, grouped: bool = True
) -> History:
    """A history of rows (iteration, metric, value)."""
    values: dict[str, dict[int, float]] = {}
    for iteration, key, value in rows:
        values.setdefault(key, {})[iteration] = value
    return History(values, score, evaluated, grouped)


def now(points: Sequence[Point]) -> float:
    """How it is: the mean of the last points. ValueError for none."""
    return fmean(point.value for point in points[-RECENT:])


def change(points: Sequence[Point]) -> Change | None:
    """The last window against the one before; None where there are fewer than two points for each."""
    size = min(WINDOW, len(points) // 2)
    if size < 2:
        return None
    before, after = points[-2 * size : -size], points[-size:]
    means = (fmean(point.value for point in part) for part in (before, after))
    return Change(*means, first=before[0].iteration, last=after[-1].iteration)


def said(points: Sequence[Point]) -> str:
    """What `now` says, for people: "0.95 on average over iterations 3 to 5"."""
    part = points[-RECENT:]
    if len(part) == 1:
        return str(part[0])
    return f"{now(part):.3g} on average over iterations {part[0].iteration} to {part[-1].iteration}"


def listed(iterations: Sequence[int]) -> str:
    """ "iterations 2, 5, 6 and 3 more"."""
    shown = ", ".join(str(each) for each in iterations[:LISTED])
    rest = len(iterations) - LISTED
    return f"iteration{'s' if len(iterations) > 1 else ''} {shown}{f' and {rest} more' if rest > 0 else ''}"
