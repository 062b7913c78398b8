"""Which trajectories of a run a report shows: a rule without chance, so that the same rows give the same page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

from agent_r1.trajectory import Purpose
from storage.trajectories import Outline

PURPOSES: tuple[Purpose, ...] = ("sampled", "train", "greedy", "test_sampled", "test_greedy")
BYTES = 6_000_000  # for all trajectories of a page, as estimated by `cost`; tools' texts come on top
LONGEST = 6000  # tokens of either kind that a trajectory is charged for: longer ones are cut when they are packed
RULE = (
    "Iterations take turns, spread over the run. In each, purposes take turns: of validation the same questions again "
    "and again, data sets and numbers of hops alternating, in the order of their ids; of training wrong and right ones "
    "alternating, and data sets and numbers of hops within them. Nothing is drawn by chance or picked by hand."
)
T = TypeVar("T")


def choose(outlines: Sequence[Outline], count: int, budget: int = BYTES) -> list[Outline]:
    """At most `count` of them, by RULE, and no more than fit into `budget` bytes; in the order in which they came."""
    asked = _questions([each for each in outlines if each.purpose != "train"])
    place = {question: index for index, question in enumerate(asked)}
    by_iteration: dict[int, list[Outline]] = {}
    for each in outlines:
        by_iteration.setdefault(each.iteration, []).append(each)
    ranked = [_ranked(by_iteration[iteration], place) for iteration in spread(sorted(by_iteration))]
    chosen: set[str] = set()
    for each in in_turns(ranked):
        if len(chosen) >= count:
            break
        if cost(each) <= budget:
            budget -= cost(each)
            chosen.add(each.trajectory_id)
    return [each for each in outlines if each.trajectory_id in chosen]


def cost(outline: Outline) -> int:
    """About how many bytes of the page it takes: numbers for every chosen token, an index for every given one."""
    return 400 + 5 * min(outline.given, LONGEST) + 25 * min(outline.chosen, LONGEST)


def spread(numbers: Sequence[int]) -> list[int]:
    """All of them, ends first, then middles: any beginning of the list is spread over the whole."""
    found = dict.fromkeys([*numbers[:1], *numbers[-1:]])
    parts = [(0, len(numbers) - 1)]
    for first, last in parts:  # it grows while it is walked: breadth first
        middle = (first + last) // 2
        if first < middle < last:
            found[numbers[middle]] = None
            parts += [(first, middle), (middle, last)]
    return list(found)


def in_turns(lists: Iterable[Sequence[T]]) -> list[T]:
    """The first of each, then the second of each, and so on."""
    missing = object()
    rounds = zip_longest(*lists, fillvalue=missing)
    return [each for one in rounds for each in one if each is not missing]  # type: ignore[misc]


def _ranked(rows: Sequence[Outline], place: dict[str, int]) -> list[Outline]:
    """The trajectories of one iteration, those to be shown first in front."""
    lists: list[list[Outline]] = []
    for purpose in PURPOSES:
        found = [row for row in rows if row.purpose == purpose]
        if purpose == "train":
            halves = ([row for row in found if (row.exact_match == 1) is right] for right in (False, True))
            lists.append(in_turns(in_turns(_alike(half)) for half in halves))
        else:
            lists.append(sorted(found, key=lambda row: place[row.question_id]))  # attempts stay in their order
    return in_turns(lists)


def _questions(rows: Sequence[Outline]) -> list[str]:
    """Their questions, data sets and numbers of hops alternating."""
    first = {row.question_id: row for row in reversed(rows)}
    return [row.question_id for row in in_turns(_alike(sorted(first.values(), key=lambda row: row.question_id)))]


def _alike(rows: Sequence[Outline]) -> list[list[Outline]]:
    """Those of one data set and number of hops together, in a fixed order."""
    found: dict[tuple[str, int], list[Outline]] = {}
    for row in rows:
        found.setdefault((row.dataset or "", -1 if row.hops is None else row.hops), []).append(row)
    return [found[key] for key in sorted(found)]
