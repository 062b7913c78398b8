"""Plots as PNG: learning curves of an experiment or of one run, a metric by hops. Import it only to draw.

Light background, colours of Okabe and Ito, which colour-blind readers can tell apart, and names beside the lines.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agent_r1.comparison import Estimate
from agent_r1.curves import Curve
from storage.metrics import MetricRow

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":")
INK, GRID = "#222222", "#DDDDDD"
APART = 0.055  # of the height of the axes, between two names


def curves(by_variant: Mapping[str, Sequence[Curve]], threshold: float) -> bytes:
    """Validation by iteration: a line for a variant's mean over seeds, a band from its lowest seed to its highest."""
    figure, axes = _figure()
    ends: dict[str, float] = {}
    last = 0
    for index, (name, seeds) in enumerate(by_variant.items()):
        places = sorted(set.intersection(*(set(curve) for curve in seeds)))
        values = np.array([[curve[place] for place in places] for curve in seeds])
        colour, style = _look(index)
        axes.fill_between(places, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.13, linewidth=0)
        axes.plot(places, values.mean(axis=0), color=colour, linestyle=style, linewidth=2)
        ends[name], last = float(values.mean(axis=0)[-1]), max(last, places[-1])
    axes.axhline(threshold, color=INK, linewidth=0.8, linestyle=(0, (2, 3)))
    axes.set_xlim(0, last)
    axes.set_ylim(0, 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("iteration")
    axes.set_ylabel("exact match, sampled answers, validation")
    seeds = max(len(each) for each in by_variant.values())
    title = f"Means over seeds (up to {seeds}); bands: lowest to highest seed; dotted: {threshold:g}"
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    _names_at_the_end(axes, ends)
    return _png(figure)


LEARNING = {
    "eval/sampled/exact_match": "sampled",
    "eval/greedy/exact_match": "greedy",
    "rollout/reward_mean": "reward",
}


def learning(rows: Sequence[MetricRow]) -> bytes:
    """One run's validation, and the mean reward of its rollouts, by iteration."""
    figure, axes = _figure()
    ends: dict[str, float] = {}
    for index, (key, name) in enumerate(LEARNING.items()):
        points = sorted((row.iteration, row.value) for row in rows if row.key == key and math.isfinite(row.value))
        if points:
            colour, style = _look(index)
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, linewidth=2, marker="o", markersize=3)
            ends[name] = points[-1][1]
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("iteration")
    axes.set_title("Exact match on validation, and the mean reward of rollouts", loc="left", fontsize=10, color=INK)
    axes.legend(list(ends), frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), labelcolor=INK)
    return _png(figure)


def by_hops(by_variant: Mapping[str, Mapping[str, Estimate]], title: str, confidence: float) -> bytes:
    """A metric by number of hops: a dot for each variant's mean, a bar for its interval, a small dot for each seed."""
    figure, axes = _figure()
    groups = list(dict.fromkeys(group for values in by_variant.values() for group in values))
    width = 0.7 / max(len(by_variant), 1)
    for index, (name, values) in enumerate(by_variant.items()):
        colour, _ = _look(index)
        shift = (index - (len(by_variant) - 1) / 2) * width
        for place, group in enumerate(groups):
            value = values.get(group)
            if value is None or value.mean is None:
                continue
            x = place + shift
            axes.scatter([x] * len(value.by_seed), list(value.by_seed.values()), s=9, color=colour, alpha=0.35, lw=0)
            if value.low is not None and value.high is not None:
                axes.plot([x, x], [value.low, value.high], color=colour, linewidth=2)
            axes.scatter([x], [value.mean], s=46, color=colour, label=name if place == 0 else None, zorder=3)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.set_ylim(0, 1)
    axes.set_ylabel(title)
    axes.set_title(
        f"Means over seeds, {confidence:.0%} intervals; small: each seed", loc="left", fontsize=10, color=INK
    )
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), labelcolor=INK)
    return _png(figure)


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8.4, 4.6), dpi=160, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.set_facecolor("white")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    return figure, axes


def _look(index: int) -> tuple[str, str]:
    return COLOURS[index % len(COLOURS)], STYLES[index // len(COLOURS) % len(STYLES)]


def _names_at_the_end(axes: Axes, ends: Mapping[str, float]) -> None:
    """A name beside the end of each line."""
    colours = {name: _look(index)[0] for index, name in enumerate(ends)}
    ordered = sorted(ends, key=lambda name: ends[name])
    for name, height in zip(ordered, _apart([ends[name] for name in ordered]), strict=True):
        text = f"{name} {ends[name]:.2f}"
        where = {"xycoords": "axes fraction", "va": "center", "annotation_clip": False}
        axes.annotate(text, (1.02, height), color=colours[name], fontsize=9.5, fontweight="bold", **where)


def _apart(heights: Sequence[float]) -> list[float]:
    """Rising heights moved as little as need be so that no two are closer than a name is high."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1]) < _bottom(groups[-2]) + len(groups[-2]) * APART:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_bottom(group) + place * APART for group in groups for place in range(len(group))]


def _bottom(group: Sequence[float]) -> float:
    """Where the lowest of a group stands that is spread around its middle."""
    return sum(group) / len(group) - (len(group) - 1) / 2 * APART


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
