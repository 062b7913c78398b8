"""GSM8K: word problems whose answer is the number after "#### " at the end of a solution.

The socratic files have the same two fields. https://github.com/openai/grade-school-math
"""

from __future__ import annotations

import re

from agent_r1.questions.items import Value
from agent_r1.questions.records import Question

_RESULT = re.compile(r"^#### *(.*\S)[ \r]*$", re.MULTILINE)


def gsm8k_question(item: Value) -> Question:
    """A GSM8K problem; a number with commas is right without them too. `metadata["solution"]` is the whole solution."""
    solution = item["answer"]
    return Question(
        id="",
        text=item["question"].filled_text().strip(),
        answers=_answers(solution),
        dataset="gsm8k",
        metadata={"solution": solution.text()},
    )


def is_gsm8k(item: Value) -> bool:
    """Whether an item has the layout: an answer with a line that begins with "#### "."""
    keys = item.keys()
    answer = item.get("answer")
    if "question" not in keys or "reward_model" in keys or answer is None or not isinstance(answer.json, str):
        return False
    return _RESULT.search(answer.json) is not None


def _answers(solution: Value) -> tuple[str, ...]:
    found = _RESULT.findall(solution.text())
    if len(found) != 1:
        raise solution.error(f'{len(found)} lines begin with "#### ", expected one, with the result')
    return tuple(dict.fromkeys((found[0], found[0].replace(",", ""))))
