"""HotpotQA and 2WikiMultihopQA, which share a layout: one item of the file becomes one question.

The official JSON has lists of pairs, Hugging Face's re-issue a column per field, and 2WikiMultihopQA's Parquet
re-issue holds either as a string of JSON. Titles stay as they are (HTML-escaped), for matching. Reading files is left
to `containers`. https://hotpotqa.github.io, https://github.com/Alab-NII/2wikimultihop
"""

from __future__ import annotations

from agent_r1.questions.items import Value
from agent_r1.questions.passages import passage_id
from agent_r1.questions.records import Evidence, Json, Passage, Question

_TWO_WIKI_KINDS = ("inference", "compositional", "bridge_comparison")


def hotpotqa_question(item: Value) -> Question:
    """A HotpotQA question; sentences bring their own spaces, so the text is the sentences joined with nothing."""
    return _question(item, dataset="hotpotqa", separator="")


def two_wiki_question(item: Value) -> Question:
    """A 2WikiMultihopQA question; `metadata["evidences"]` holds its [subject, relation, object] triples."""
    return _question(item, dataset="2wiki", separator=" ")


def is_hotpotqa(item: Value) -> bool:
    """Whether an item has the layout and is not of 2WikiMultihopQA; a test file has an id, a question and a context."""
    keys = set(item.keys())
    marked = "supporting_facts" in keys or {"_id", "context"} <= keys or _has_passages(item)
    return marked and "reward_model" not in keys and not is_two_wiki(item)


def is_two_wiki(item: Value) -> bool:
    """Whether an item has the layout, and a field or kind of question that only 2WikiMultihopQA has."""
    keys, kind = set(item.keys()), item.get("type")
    own = bool({"evidences", "entity_ids", "evidences_id"} & keys) or (
        kind is not None and kind.json in _TWO_WIKI_KINDS
    )
    return own and bool({"context", "supporting_facts"} & keys) and "reward_model" not in keys


def _has_passages(item: Value) -> bool:
    context = item.get("context")
    return context is not None and isinstance(context.json, list | dict)


def _question(item: Value, *, dataset: str, separator: str) -> Question:
    passages = [
        _passage(dataset, title.text(), sentences.texts(), separator)
        for title, sentences in _pairs(item["context"], "title", "sentences")
    ]
    facts = item.get("supporting_facts")
    gold = [] if facts is None else [(t.text(), s.position()) for t, s in _pairs(facts, "title", "sent_id")]
    return Question(
        id=(item.get("_id") or item["id"]).filled_text(),
        text=item["question"].filled_text().strip(),
        answers=_answers(item),
        evidence=_evidence(gold, passages, dataset),
        passages=tuple({passage.id: passage for passage in passages}.values()),
        hops=len({title for title, _ in gold}) or None,
        dataset=dataset,
        metadata=_metadata(item),
    )


def _passage(dataset: str, title: str, sentences: tuple[str, ...], separator: str) -> Passage:
    text = separator.join(sentences)
    return Passage(passage_id(dataset, title, text), title, text, sentences)


def _pairs(value: Value, left: str, right: str) -> list[tuple[Value, Value]]:
    """The pairs of a list of pairs, or of an object with two columns."""
    value = value.decoded()
    if isinstance(value.json, dict):
        lefts, rights = value[left].elements(), value[right].elements()
        if len(lefts) != len(rights):
            raise value.error(f"{len(lefts)} of {left} but {len(rights)} of {right}, expected as many")
        return list(zip(lefts, rights, strict=True))
    pairs = [(pair, pair.elements()) for pair in value.elements()]
    for pair, parts in pairs:
        if len(parts) != 2:
            raise pair.error(f"expected a pair of {left} and {right}, got {len(parts)} elements")
    return [(parts[0], parts[1]) for _, parts in pairs]


def _answers(item: Value) -> tuple[str, ...]:
    """The gold answer; none where it is absent, null or blank, as in test files."""
    answer = item.get("answer")
    return (answer.text(),) if answer is not None and answer.text().strip() else ()


def _evidence(gold: list[tuple[str, int]], passages: list[Passage], dataset: str) -> tuple[Evidence, ...]:
    """Evidence in the file's order, each pair once, as the official scorer compares sets.

    A title that the context lacks (fullwiki) gets the id of a passage without text. A sentence past the end stays.
    """
    ids = {passage.title: passage.id for passage in reversed(passages)}  # the first of two with one title wins
    found = [Evidence(ids.get(title) or passage_id(dataset, title, ""), sentence) for title, sentence in gold]
    return tuple(dict.fromkeys(found))


def _metadata(item: Value) -> dict[str, Json]:
    """kind and level where the file names them, and 2WikiMultihopQA's triples."""
    named = {"kind": item.get("type"), "level": item.get("level")}
    metadata: dict[str, Json] = {key: value.text() for key, value in named.items() if value is not None}
    evidences = item.get("evidences")
    if evidences is not None:
        metadata["evidences"] = [list(triple.texts()) for triple in evidences.decoded().elements()]
    return metadata
