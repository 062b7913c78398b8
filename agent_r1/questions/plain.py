"""Our own format, for questions that a user brings: a `question` and whatever else is known, in any container.

What is not named here goes to the metadata. Fields that hold lists or objects may hold them as JSON in a string, as
CSV needs. docs/data.md has the fields.
"""

from __future__ import annotations

from agent_r1.questions.flashrag import golden_answers
from agent_r1.questions.items import Value
from agent_r1.questions.passages import passage_id
from agent_r1.questions.records import Evidence, Json, Passage, Question

FIELDS = ("id", "question", "answers", "answer", "passages", "evidence", "hops", "dataset", "metadata")
MOST_HOPS = 1000


def plain_question(item: Value) -> Question:
    """A question; without `answer` or `answers` it has no gold answer, without `dataset` it is of "plain"."""
    dataset, identity, hops = item.get("dataset"), item.get("id"), item.get("hops")
    name = "plain" if dataset is None else dataset.filled_text()
    passages = _passages(item, name)
    evidence = _evidence(item, passages)
    metadata = _metadata(item, len(evidence))
    return Question(
        id="" if identity is None else identity.name(),
        text=item["question"].filled_text().strip(),
        answers=() if metadata.get("answerable") is False else _answers(item),
        evidence=evidence,
        passages=tuple({passage.id: passage for passage in passages}.values()),
        hops=None if hops is None else _hops(hops.decoded()),
        dataset=name,
        metadata=metadata,
    )


def is_plain(item: Value) -> bool:
    """Whether an item has the layout, which is what is left where it has no other."""
    return "question" in item


def _answers(item: Value) -> tuple[str, ...]:
    answers, answer = item.get("answers"), item.get("answer")
    if answers is not None and answer is not None:
        raise item.error("both answer and answers, expected one of them")
    value = answers or answer
    return () if value is None else golden_answers(value)


def _passages(item: Value, dataset: str) -> list[Passage]:
    """Passages with their ids, made from title and text where they have none. An id stands for one text."""
    value = item.get("passages")
    passages = [] if value is None else [_passage(each, dataset) for each in value.decoded().elements()]
    texts: dict[str, Passage] = {}
    for passage in passages:
        if texts.setdefault(passage.id, passage) != passage:
            raise item["passages"].error(f"two different passages have the id {passage.id!r}")
    return passages


def _passage(value: Value, dataset: str) -> Passage:
    title, sentences, identity = value.get("title"), value.get("sentences"), value.get("id")
    name, text = "" if title is None else title.text(), value["text"].text()
    split = () if sentences is None else sentences.texts()
    return Passage(passage_id(dataset, name, text) if identity is None else identity.name(), name, text, split)


def _evidence(item: Value, passages: list[Passage]) -> tuple[Evidence, ...]:
    """The gold pieces in the file's order, each once; a piece names its passage by id or by title.

    A name that no passage here has is kept as the id of one that the corpus may have.
    """
    value = item.get("evidence")
    pieces = [] if value is None else value.decoded().elements()
    return tuple(dict.fromkeys(_piece(piece, passages) for piece in pieces))


def _piece(piece: Value, passages: list[Passage]) -> Evidence:
    named, sentence = piece, None
    if not isinstance(piece.json, str):
        named, sentence = piece["passage_id"], piece.get("sentence")
    name = named.name()
    titled = {passage.id for passage in passages if passage.title == name}
    if any(passage.id == name for passage in passages):
        titled = {name}
    if len(titled) > 1:
        raise named.error(f"{len(titled)} passages have the title {name!r}, expected an id")
    return Evidence(next(iter(titled), name), None if sentence is None else sentence.position())


def _hops(hops: Value) -> int:
    if not 1 <= hops.position() <= MOST_HOPS:
        raise hops.error(f"{hops.position()}, expected a number of hops from 1 to {MOST_HOPS}")
    return hops.position()


def _metadata(item: Value, pieces: int) -> dict[str, Json]:
    """The field metadata and every field that is not one of FIELDS, those that other parts read checked."""
    own = item.get("metadata")
    found = {} if own is None else _present(own.decoded())
    for key, value in _present(item).items():
        if key not in FIELDS:
            if key in found:
                raise value.error("is a key of metadata too, expected it once")
            found[key] = value
    found = {key: _as_read(key, value) for key, value in found.items()}
    for key, value in found.items():
        _check_known(key, value, pieces)
    return {Value(item.item, (), key).text(): value.tree() for key, value in found.items()}


def _present(value: Value) -> dict[str, Value]:
    """The fields of an object that are not null."""
    return {key: field for key in value.keys() if (field := value.get(key)) is not None}  # noqa: SIM118 - no dict


def _as_read(key: str, value: Value) -> Value:
    """What the rest of the program reads from metadata may be text, where a CSV has nothing else."""
    if key == "answerable" and isinstance(value.json, str):
        said = {"true": True, "false": False}.get(value.json.strip().lower(), value.json)
        return Value(value.item, value.way, said)
    return value.unwrapped() if key in ("decomposition", "demonstration", "facts") else value


def _check_known(key: str, value: Value, pieces: int) -> None:
    """What the rest of the program reads from metadata has its form: see Question."""
    if key in ("kind", "database"):
        value.filled_text()
    if key == "answerable":
        value.flag()
    if key == "facts" and [len(fact.texts()) for fact in value.elements()] != [3] * pieces:
        raise value.error(f"expected a [subject, relation, object] for each of the {pieces} pieces of evidence")
