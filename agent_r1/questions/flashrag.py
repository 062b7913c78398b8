"""FlashRAG's own layout of many sets: a question, its golden answers, and what its source knew as metadata.

The metadata of HotpotQA and 2WikiMultihopQA names gold passages, that of MuSiQue its hops; none has the passages, so
there is no evidence. https://github.com/RUC-NLPIR/FlashRAG
"""

from __future__ import annotations

from agent_r1.questions.items import Value
from agent_r1.questions.records import Json, Question


def flashrag_question(item: Value) -> Question:
    """A question; `metadata["flashrag"]` is the item's metadata as it stands."""
    identity = item.get("id")
    source = item.get("metadata")
    source = None if source is None else source.decoded()
    metadata: dict[str, Json] = {}
    if source is not None and source.keys():
        metadata["flashrag"] = source.tree()
        kind = source.get("type")
        if kind is not None and isinstance(kind.json, str):
            metadata["kind"] = kind.text()
    return Question(
        id="" if identity is None else identity.name(),
        text=item["question"].filled_text().strip(),
        answers=golden_answers(item["golden_answers"]),
        hops=None if source is None else _hops(source),
        dataset="flashrag",
        metadata=metadata,
    )


def is_flashrag(item: Value) -> bool:
    """Whether an item has the layout: golden answers that no prompt has been made for."""
    return "golden_answers" in item and "reward_model" not in item


def golden_answers(value: Value) -> tuple[str, ...]:
    """The answers of a list, which may be held as JSON in a string, or the one of a string.

    Each once; blank ones are none. A text in brackets that is no list of texts, such as [1, 2], is an answer.
    """
    listed = _listed(value)
    texts = (value.text(),) if listed is None else listed.texts()
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _listed(value: Value) -> Value | None:
    """The list that a value is or holds as text, None for a text alone. What begins as a list of texts must be one."""
    if not isinstance(value.json, str):
        return value
    text = value.json.strip()
    if text == "[]" or text[:2] in ('["', "['"):
        return value.decoded()
    return None


def _hops(source: Value) -> int | None:
    """How many gold passages or steps a source names, None where it names none."""
    facts, steps = source.get("supporting_facts"), source.get("question_decomposition")
    if facts is not None and isinstance(facts.unwrapped().json, dict):
        titles = facts.unwrapped().get("title")
        return None if titles is None else len(set(titles.texts())) or None
    if steps is not None and isinstance(steps.unwrapped().json, list):
        return len(steps.unwrapped().elements()) or None
    return None
