"""Names beside lines do not lie on each other, and every plot is a picture."""

from __future__ import annotations

import pytest

from agent_r1.comparison import estimate
from flows.plots import APART, _apart, by_hops, curves

PNG = b"\x89PNG"


def test_names_that_are_far_apart_stay_where_they_are() -> None:
    assert _apart([0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9])


def test_names_that_would_touch_are_spread_around_their_middle() -> None:
    assert _apart([0.5, 0.5]) == pytest.approx([0.5 - APART / 2, 0.5 + APART / 2])
    three = _apart([0.5, 0.52, 0.54, 0.9])
    assert three == pytest.approx([0.52 - APART, 0.52, 0.52 + APART, 0.9])


def test_plots_are_pictures_whatever_is_missing() -> None:
    assert curves({"a": [{0: 0.1, 1: 0.5}, {0: 0.2, 1: 0.4}], "b": [{0: 0.3}]}, 0.5).startswith(PNG)
    hops = {"a": {"all": estimate({0: 0.5, 1: 0.7})}, "b": {"2 hops": estimate({0: 0.5}), "all": estimate({})}}
    assert by_hops(hops, "exact match", 0.95).startswith(PNG)
