"""The table of the fault campaign, of its JSON lines, as Markdown. What is measured is left to the other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.faults_named import Fault
from tasks.context import STAGES

HEAD = ["| fault | where | times | expected | seen |", "|---|---|---|---|---|"]
SAME = "same result"
LONGEST = 60  # letters of what was seen
Found = Mapping[str, Any]


def table(kills: Sequence[Found], named: Sequence[Found], faults: Mapping[str, Fault]) -> tuple[list[str], int]:
    """The lines, and how many findings are not as they should be."""
    struck = [each for one in kills for each in one["hits"] if each["struck"]]
    wrong = [str(each) for one in (*kills, *named) for each in one["wrong"]]
    lines = [*HEAD]
    for stage in STAGES:
        inside = [each for each in struck if each["hit"] == stage and not each["kill"]["place"]]
        lines.append(f"| kill -9 | in {stage} | {len(inside)} | {SAME} | {_result(kills, stage)} |")
    elsewhere = [each for each in struck if each["hit"] not in STAGES and not each["kill"]["place"]]
    seen = _result(kills, "", elsewhere=True)
    lines.append(f"| kill -9 | before, between and after stages | {len(elsewhere)} | {SAME} | {seen} |")
    for place in dict.fromkeys(each["kill"]["place"] for each in sorted(struck, key=_place) if each["kill"]["place"]):
        at = [each for each in struck if each["kill"]["place"] == place]
        lines.append(f"| kill -9 | {_where(place)} | {len(at)} | {SAME} | {_result(kills, place)} |")
    for one in sorted(named, key=lambda one: list(faults).index(one["fault"])):
        seen = (
            f"skipped: {one['skipped']}"
            if "skipped" in one
            else "; ".join(_plain(each)[:LONGEST] for each in one["seen"])
        )
        bad = "".join(f" WRONG: {_plain(each)}" for each in one["wrong"])
        lines.append(f"| {one['fault']} | | {one['times']} | {faults[one['fault']].expected} | {seen}{bad} |")
    lines += [
        "",
        f"{len(struck)} kills in {len(kills)} runs, {len(named)} named faults; not as it should be: {len(wrong)}.",
    ]
    return [*lines, *(f"- {_plain(each)}" for each in wrong)], len(wrong)


def _place(hit: Found) -> str:
    return _where(hit["kill"]["place"])


def _where(place: str) -> str:
    group = {"before the receipt": "commit", "at the commit": "commit", "after the commit": "commit"}
    if place == "inside publishing":
        return "MLflow: between and inside its calls"
    return f"{group.get(place, 'checkpoint')}: {place}"


def _result(kills: Sequence[Found], where: str, elsewhere: bool = False) -> str:
    """What became of the runs in which a kill struck there."""
    of = [one for one in kills if any(each["struck"] and _is(each, where, elsewhere) for each in one["hits"])]
    wrong = sum(bool(one["wrong"]) for one in of)
    return "as expected" if not wrong else f"WRONG in {wrong} of {len(of)} runs"


def _is(hit: Found, where: str, elsewhere: bool) -> bool:
    place = hit["kill"]["place"]
    return (hit["hit"] not in STAGES and not place) if elsewhere else where in (place, "" if place else hit["hit"])


def _plain(text: str) -> str:
    """Text that cannot end a cell of a table."""
    return " ".join(str(text).replace("|", "/").split())
