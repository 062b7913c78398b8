"""Learning curves: how high one is, and when it first got somewhere. What several say together is comparison.py's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Curve = Mapping[int, float]
"""Values by iteration."""


def level(curve: Curve, last: int) -> float:
    """The mean of the last so many values."""
    return float(np.mean([curve[i] for i in sorted(curve)[-last:]]))


def levels(curve: Curve, last: int) -> Curve:
    """The level at each iteration, the mean of the last so many values up to it, from the first that has as many."""
    places = sorted(curve)
    first = min(last, len(places))
    return {i: level({j: curve[j] for j in places[:k]}, last) for k, i in enumerate(places[first - 1 :], first)}


def area(curve: Curve) -> float:
    """The mean height of a curve between its first and last iteration, by the trapezoid rule."""
    places = sorted(curve)
    values = [curve[i] for i in places]
    return float(np.trapezoid(values, places)) / (places[-1] - places[0]) if len(places) > 1 else values[0]


def first_reach(curve: Curve, goal: float) -> int | None:
    """The first iteration whose value is at least the goal."""
    return next((i for i in sorted(curve) if curve[i] >= goal), None)
