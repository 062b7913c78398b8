"""Series by hand: how a metric is now, and how it changed."""

from __future__ import annotations

import math

import pytest

from agent_r1.history import Point, change, history, listed, now, said

ROWS = [(2, "a", 0.5), (0, "a", 0.25), (1, "a", math.nan), (3, "b", 1.0), (4, "a", math.inf)]


def points(*values: float) -> list[Point]:
    """From iteration 1 on."""
    return [Point(iteration, value) for iteration, value in enumerate(values, start=1)]


def test_a_series_is_in_order_and_has_finite_values_only() -> None:
    seen = history(ROWS, "a")
    assert seen.series("a") == [(0, 0.25), (2, 0.5)]
    assert seen.series("missing") == []
    assert (seen.last, history([], "a").last) == (4, 0)


def test_now_is_the_mean_of_the_last_three() -> None:
    assert now(points(9, 1, 2, 6)) == 3.0
    assert now(points(4)) == 4.0


def test_a_change_is_from_the_mean_of_four_to_that_of_the_four_after() -> None:
    found = change(points(9, 1, 2, 3, 4, 5, 5, 5, 6))
    assert found == (2.5, 5.25, 2, 9)
    assert found is not None
    assert found.rise == 2.75


def test_with_fewer_points_windows_are_smaller_and_one_point_is_none() -> None:
    assert change(points(1, 2, 3, 4, 6)) == (2.5, 5.0, 2, 5)
    assert change(points(1, 2, 3)) is None
    assert change([]) is None


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.5,), "0.5 at iteration 1"),
        ((9.0, 1.0, 2.0, 3.0), "2 on average over iterations 2 to 4"),
    ],
)
def test_how_it_is_is_said_with_its_iterations(values: tuple[float, ...], text: str) -> None:
    assert said(points(*values)) == text


def test_iterations_are_listed_up_to_three() -> None:
    assert listed([2]) == "iteration 2"
    assert listed([2, 3, 5]) == "iterations 2, 3, 5"
    assert listed([2, 3, 5, 6, 7]) == "iterations 2, 3, 5 and 2 more"
