"""What Prefect shows of an iteration: a Markdown page of its metrics and one trajectory. Training creates it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from agent_r1.questions.records import Question
from agent_r1.trajectory import Trajectory
from storage.metrics import MetricRow

LONGEST = 4000
SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~^$:>])")


def key(run: str) -> str:
    """The artifact's key, under which Prefect keeps its history: small letters, digits and dashes."""
    return f"{re.sub('[^a-z0-9]+', '-', run.lower()).strip('-')}-iteration"


def page(
    run: str, iteration: int, rows: Sequence[MetricRow], trajectory: Trajectory | None, question: Question | None
) -> str:
    """The metrics of the iteration beside those of the one before, then the trajectory turn by turn."""
    now, before = ({row.key: row.value for row in rows if row.iteration == each} for each in (iteration, iteration - 1))
    table = [
        f"| {name} | {_number(value)} | {_number(before.get(name, math.nan))} |" for name, value in sorted(now.items())
    ]
    lines = [f"# {plain(run)}, iteration {iteration}", ""]
    if trajectory is not None and question is not None:
        lines += [*_trajectory(trajectory, question), ""]
    return "\n".join([*lines, "## Metrics", "", "| metric | now | before |", "|---|---:|---:|", *table, ""])


def _trajectory(trajectory: Trajectory, question: Question) -> list[str]:
    said = "none" if trajectory.answer is None else plain(trajectory.answer)
    lines = [
        f"## One trajectory ({plain(trajectory.purpose)})",
        "",
        f"**Question** {plain(question.text)}",
        "",
        f"**Answer** {said} (gold: {plain(' | '.join(question.answers))}; ending {plain(trajectory.ending)})",
    ]
    for number, turn in enumerate(trajectory.turns, 1):
        lines += ["", f"**Turn {number}**", "", *_quoted(turn.action_text)]
        if turn.observation_text:
            lines += ["", "given back:", "", *_quoted(turn.observation_text)]
    return lines


def plain(text: str) -> str:
    """Text that others wrote as one line of Markdown that means nothing but its letters: no HTML, link or picture."""
    flat = "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST])
    return SPECIAL.sub(r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;"))


def _quoted(text: str) -> list[str]:
    """Indented lines are code, which nothing in them can end: fences could be closed by what the model wrote."""
    shown = text[:LONGEST] + (" [cut]" if len(text) > LONGEST else "")
    safe = ("".join(letter if letter.isprintable() else " " for letter in line) for line in shown.splitlines())
    return [f"    {line}" for line in safe]


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
