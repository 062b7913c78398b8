"""Function-calling items of the Berkeley leaderboard: what is asked and which functions there are, without answers.

The accepted calls are in a file of their own, which holds no questions. https://github.com/ShishirPatil/gorilla
"""

from __future__ import annotations

from agent_r1.questions.items import Value
from agent_r1.questions.records import Question


def bfcl_question(item: Value) -> Question:
    """The user's words of the first turn; all turns and the functions are metadata."""
    turns, functions = item["question"], item["function"]
    if not turns.elements():
        raise turns.error("empty, expected a list of turns")
    messages = [message for turn in turns.elements() for message in turn.elements()]
    for message in messages:
        message["role"].filled_text()
        message["content"].text()
    asked = [message["content"] for message in turns.elements()[0].elements() if message["role"].json == "user"]
    if not any(content.text().strip() for content in asked):
        raise turns.error("the first turn has nothing that a user says")
    for function in functions.elements():
        function["name"].filled_text()
    return Question(
        id=item["id"].filled_text(),
        text="\n".join(content.text().strip() for content in asked),
        dataset="bfcl",
        metadata={"turns": turns.tree(), "functions": functions.tree()},
    )


def is_bfcl(item: Value) -> bool:
    """Whether an item has the layout: functions beside a question that is a list of turns."""
    question = item.get("question")
    return "function" in item and question is not None and isinstance(question.json, list)
