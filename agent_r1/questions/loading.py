"""Questions from a file of a known format. A new format is a file beside this one and an entry of `FORMATS`.

What an item means is left to that file, reading JSON to `items`, and drawing or splitting questions to who uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_r1.errors import DataError
from agent_r1.questions.hotpotqa import hotpotqa_question, is_hotpotqa, is_two_wiki, two_wiki_question
from agent_r1.questions.items import Value, read_items
from agent_r1.questions.musique import is_musique, musique_question
from agent_r1.questions.records import Question


@dataclass(frozen=True, slots=True)
class Format:
    """How a file's items are told from others by the keys of the first, and what one becomes."""

    recognises: Callable[[frozenset[str]], bool]
    question: Callable[[Value], Question]


FORMATS: dict[str, Format] = {  # the first that recognises an item wins: 2wiki has all the keys of hotpotqa
    "2wiki": Format(is_two_wiki, two_wiki_question),
    "hotpotqa": Format(is_hotpotqa, hotpotqa_question),
    "musique": Format(is_musique, musique_question),
}


def load(path: str | Path, format: str = "auto") -> list[Question]:
    """The questions of a file, in its order. Raises DataError, naming file, item and field."""
    return list(iter_questions(path, format))


def iter_questions(path: str | Path, format: str = "auto") -> Iterator[Question]:
    """The questions of a file one by one: JSON lines are streamed, a JSON list is read whole. Raises DataError.

    `format` is a key of FORMATS, or "auto", which goes by the keys of the first item and never by the file's name.
    """
    if format != "auto" and format not in FORMATS:
        raise DataError(f"{path}: unknown format {format!r}; known formats: auto, {', '.join(FORMATS)}")
    chosen = FORMATS.get(format)
    seen: dict[str, str] = {}
    for item in read_items(Path(path)):
        chosen = chosen or _recognised(item)
        question = chosen.question(item)
        if question.id in seen:
            raise item.error(f"question id {question.id!r} was there before, at {seen[question.id]}")
        seen[question.id] = item.item
        yield question
    if not seen:
        raise DataError(f"{path}: empty, expected questions as a JSON list or JSON lines")


def _recognised(item: Value) -> Format:
    keys = item.keys()
    found = next((known for known in FORMATS.values() if known.recognises(frozenset(keys))), None)
    if found is None:
        raise item.error(f"format not recognised from the keys {', '.join(keys)}; known formats: {', '.join(FORMATS)}")
    return found
