"""Questions from a file of a known format. A new format is a file beside this one and an entry of `FORMATS`.

What an item means is left to that file, reading items to `containers`, and drawing or splitting questions to who uses
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agent_r1.errors import DataError
from agent_r1.questions.bamboogle import bamboogle_question, is_bamboogle
from agent_r1.questions.bfcl import bfcl_question, is_bfcl
from agent_r1.questions.containers import Container, container, read_items
from agent_r1.questions.defog import defog_question, is_defog
from agent_r1.questions.flashrag import flashrag_question, is_flashrag
from agent_r1.questions.gsm8k import gsm8k_question, is_gsm8k
from agent_r1.questions.hotpotqa import hotpotqa_question, is_hotpotqa, is_two_wiki, two_wiki_question
from agent_r1.questions.ids import SeenIds, made_id
from agent_r1.questions.items import Value
from agent_r1.questions.musique import is_musique, musique_question
from agent_r1.questions.plain import is_plain, plain_question
from agent_r1.questions.prompted import is_agent_r1, is_search_r1, prompted_question
from agent_r1.questions.records import Question
from agent_r1.questions.strategyqa import is_strategyqa, strategyqa_question


@dataclass(frozen=True, slots=True)
class Format:
    """How a file's items are told from others by the first, an object, and what one becomes.

    A question without an id of its own comes with an empty one.
    """

    recognises: Callable[[Value], bool]
    question: Callable[[Value], Question]


PLAIN = "plain"
FORMATS: dict[str, Format] = {
    "2wiki": Format(is_two_wiki, two_wiki_question),
    "agent_r1": Format(is_agent_r1, prompted_question),
    "bamboogle": Format(is_bamboogle, bamboogle_question),
    "bfcl": Format(is_bfcl, bfcl_question),
    "defog": Format(is_defog, defog_question),
    "flashrag": Format(is_flashrag, flashrag_question),
    "gsm8k": Format(is_gsm8k, gsm8k_question),
    "hotpotqa": Format(is_hotpotqa, hotpotqa_question),
    "musique": Format(is_musique, musique_question),
    "search_r1": Format(is_search_r1, prompted_question),
    "strategyqa": Format(is_strategyqa, strategyqa_question),
    PLAIN: Format(is_plain, plain_question),
}


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a file was taken for."""

    container: Container
    format: str


def load(path: str | Path, format: str = "auto") -> list[Question]:
    """The questions of a file, in its order. Raises DataError, naming file, item and field."""
    return list(iter_questions(path, format))


def iter_questions(path: str | Path, format: str = "auto") -> Iterator[Question]:
    """The questions of a file one by one: a JSON list is read whole, all other files are streamed. Raises DataError.

    `format` is a key of FORMATS, or "auto", which goes by the first item and never by the file's name.

    An id that comes a second time is an error, whether the item is another or the same: no published set repeats one
    but MuSiQue, whose twins get ids of their own. Items without an id are named after text and gold answers; one that
    comes again, as training sets repeat items on purpose, gets "#2" and so on.
    """
    path = Path(path)
    chosen = _known(path, format)
    seen, again = SeenIds(), Counter[str]()
    for item in read_items(path):
        chosen = chosen or _recognised(item)
        question = _read(item, chosen, format)
        if not question.id:
            question = _named(question, seen, again)
        elif not seen.add(question.id):
            _refuse_repeated(question, item, path, chosen)
        yield question
    if not len(seen):
        raise DataError(f"{path}: empty, expected questions as a JSON list, JSON lines, CSV or Parquet")


def recognise(path: str | Path, format: str = "auto") -> Recognised:
    """What a file is, by its beginning. Raises DataError."""
    path = Path(path)
    chosen = _known(path, format)
    found = container(path)
    first = next(read_items(path), None)
    if first is None:
        raise DataError(f"{path}: empty, expected questions as a JSON list, JSON lines, CSV or Parquet")
    return Recognised(found, chosen or _recognised(first))


def _known(path: Path, format: str) -> str | None:
    if format != "auto" and format not in FORMATS:
        raise DataError(f"{path}: unknown format {format!r}; known formats: auto, {', '.join(FORMATS)}")
    return None if format == "auto" else format


def _recognised(item: Value) -> str:
    """The one format that an item fits. Plain is what is left where it fits none of the published ones."""
    keys = ", ".join(item.keys())
    fitting = [name for name, known in FORMATS.items() if name != PLAIN and known.recognises(item)]
    if len(fitting) > 1:
        raise item.error(f"fits the formats {', '.join(fitting)} (keys: {keys}); say which it is, as data.format")
    if fitting or is_plain(item):
        return (fitting or [PLAIN])[0]
    raise item.error(f"format not recognised from the keys {keys}; known formats: {', '.join(FORMATS)}")


def _read(item: Value, chosen: str, format: str) -> Question:
    """An item as a question; where `format` is "auto", a complaint says what the file was taken for."""
    try:
        return FORMATS[chosen].question(item)
    except DataError as error:
        if format != "auto":
            raise
        raise DataError(f"{error} (read as {chosen})") from None


def _named(question: Question, seen: SeenIds, again: Counter[str]) -> Question:
    """The question under an id made from its content, numbered where that is taken."""
    identity = name = made_id(question)
    while not seen.add(name):
        again[identity] = max(again[identity], 1) + 1
        name = f"{identity}#{again[identity]}"
    return replace(question, id=name)


def _refuse_repeated(question: Question, item: Value, path: Path, chosen: str) -> None:
    """DataError where an item before this one has its id; reads the file again up to there."""
    for other in read_items(path):
        if other.item == item.item:
            return  # two ids of one hash
        known = FORMATS[chosen].question(other)
        if known.id == question.id:
            what = "the same item" if known == question else "another item"
            raise item.error(f"question id {question.id!r} was there before, at {other.item}: {what}")
