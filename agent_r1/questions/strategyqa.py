"""StrategyQA: questions of several unspoken steps, answered yes or no. https://github.com/eladsegal/strategyqa

Facts, sub-questions and the annotators' paragraph ids are kept as metadata: its passages are in another file.
"""

from __future__ import annotations

from agent_r1.questions.items import Value
from agent_r1.questions.records import Json, Question

_KEYS = {"qid", "term", "description", "question", "answer", "facts", "decomposition", "evidence"}
_KEPT = {"term": "term", "description": "description", "facts": "statements", "decomposition": "steps",
         "evidence": "paragraphs"}  # fmt: skip
"""Field -> key of the metadata: not `facts` and `decomposition`, which have another meaning there."""


def strategyqa_question(item: Value) -> Question:
    """A StrategyQA question; true and false become "yes" and "no", a test file has neither."""
    answer = item.get("answer")
    kept = {key: item.get(field) for field, key in _KEPT.items()}
    metadata: dict[str, Json] = {key: value.tree() for key, value in kept.items() if value is not None}
    return Question(
        id=item["qid"].filled_text(),
        text=item["question"].filled_text().strip(),
        answers=() if answer is None else ("yes" if answer.flag() else "no",),
        dataset="strategyqa",
        metadata=metadata,
    )


def is_strategyqa(item: Value) -> bool:
    """Whether an item has the layout: a qid, and nothing that StrategyQA does not have."""
    return "qid" in item and set(item.keys()) <= _KEYS
