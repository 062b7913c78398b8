"""MuSiQue: one item of the file becomes one question. Reading files is left to `containers`.

Titles are not unique inside an item, so evidence finds its passage by `idx`. The `full` files hold a question twice
under one id, once with a paragraph that its answer needs taken away: that twin's id gets "#unanswerable" appended, its
metadata "answerable": false, and it has no answers, nor evidence for the hop without a paragraph.
https://github.com/StonyBrookNLP/musique
"""

from __future__ import annotations

import re

from agent_r1.questions.items import Value
from agent_r1.questions.passages import passage_id
from agent_r1.questions.records import Evidence, Json, Passage, Question

_SHAPE = re.compile(r"([2-4])hop[1-3]?(?=__)")


def musique_question(item: Value) -> Question:
    """A MuSiQue question; hops come from the shape that its id starts with, evidence from its decomposition."""
    identity = item["id"].filled_text()
    shape = _SHAPE.match(identity)
    flag = item.get("answerable")
    answerable = flag is None or flag.flag()
    passages = _passages(item["paragraphs"])
    steps = _steps(item)
    metadata: dict[str, Json] = {"answerable": answerable}
    if shape:
        metadata["kind"] = shape[0]
    if steps:
        metadata["decomposition"] = [step.tree() for step in steps]
    return Question(
        id=identity if answerable else f"{identity}#unanswerable",
        text=item["question"].filled_text().strip(),
        answers=_answers(item) if answerable else (),
        evidence=_evidence(steps, passages),
        passages=tuple(dict.fromkeys(passages.values())),
        hops=int(shape[1]) if shape else None,
        dataset="musique",
        metadata=metadata,
    )


def is_musique(item: Value) -> bool:
    """Whether an item has the layout; a test file has paragraphs alone."""
    keys = set(item.keys())
    return bool({"paragraphs", "question_decomposition"} & keys) and "reward_model" not in keys


def _passages(paragraphs: Value) -> dict[int, Passage]:
    passages: dict[int, Passage] = {}
    for paragraph in paragraphs.decoded().elements():
        index, title, text = paragraph["idx"], paragraph["title"].text(), paragraph["paragraph_text"].text()
        if index.position() in passages:
            raise index.error(f"{index.position()} a second time, expected a paragraph's own number")
        passages[index.position()] = Passage(passage_id("musique", title, text), title, text)
    return passages


def _steps(item: Value) -> list[Value]:
    """The decomposition, each step checked to have its sub-question and answer; empty in a test file."""
    decomposition = item.get("question_decomposition")
    steps = [] if decomposition is None else decomposition.decoded().elements()
    for step in steps:
        step["question"].filled_text()
        step["answer"].text()
    return steps


def _answers(item: Value) -> tuple[str, ...]:
    """The answer and its aliases, each once; none in a test file."""
    answer, aliases = item.get("answer"), item.get("answer_aliases")
    texts = (*(() if answer is None else (answer.text(),)), *(() if aliases is None else aliases.texts()))
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def _evidence(steps: list[Value], passages: dict[int, Passage]) -> tuple[Evidence, ...]:
    """The paragraph of every hop that has one, in the order of the hops, each once."""
    supports = [support for step in steps if (support := step.get("paragraph_support_idx")) is not None]
    for support in supports:
        if support.position() not in passages:
            raise support.error(f"no paragraph has idx {support.position()}")
    return tuple(dict.fromkeys(Evidence(passages[support.position()].id) for support in supports))
