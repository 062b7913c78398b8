"""Bamboogle: questions of two hops without passages, from its JSON or from the CSV export of its sheet.

A spreadsheet turned dates of the CSV around ("29-May-32"): score with the JSON. https://github.com/ofirpress/self-ask
"""

from __future__ import annotations

from agent_r1.questions.items import Value
from agent_r1.questions.records import Question


def bamboogle_question(item: Value) -> Question:
    """A Bamboogle question; the JSON has a list of answers and an id, the CSV one answer and none."""
    column = next((key for key in ("Answer", "answer") if key in item), "Answer")
    if column not in item:
        raise item.error(f"field Answer: missing; keys here: {', '.join(item.keys())}")
    answer, identity = item.get(column), item.get("id")
    texts = () if answer is None else answer.texts() if isinstance(answer.json, list) else (answer.text(),)
    return Question(
        id="" if identity is None else identity.filled_text(),
        text=item["Question"].filled_text().strip(),
        answers=tuple(dict.fromkeys(text.strip() for text in texts if text.strip())),
        dataset="bamboogle",
        hops=2,
    )


def is_bamboogle(item: Value) -> bool:
    """Whether an item has the layout: no other has a capital Question."""
    return "Question" in item
