"""What `doctor --data` says of a question file: what it was taken for, what is in it, and its first questions.

Reading the file is left to agent_r1.questions. A file is read as a stream: of its texts, only short hashes are kept.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent_r1.questions import Question, iter_questions
from agent_r1.questions.loading import recognise
from agent_r1.questions.records import Json
from flows import tables
from flows.reports import View
from flows.tables import Grid, visible

FIRST = 3
LONGEST = 200  # characters of a text in the list of first questions
NAMED = 20  # datasets, kinds or numbers of hops in a table; a file may name a kind an item


@dataclass
class Counts:
    """What is counted while a file is read once."""

    questions: int = 0
    without_answer: int = 0
    unanswerable: int = 0
    evidence: int = 0
    evidence_elsewhere: int = 0
    repeated_texts: int = 0
    longest_text: int = 0
    by: dict[str, Counter[str]] = field(
        default_factory=lambda: {"dataset": Counter(), "hops": Counter(), "kind": Counter()}
    )
    passages: set[bytes] = field(default_factory=set)
    texts: set[bytes] = field(default_factory=set)
    first: list[Question] = field(default_factory=list)


def examine(path: Path, layout: str) -> View:
    """The whole file, read once. DataError where it is broken."""
    found = recognise(path, layout)
    counts = count(iter_questions(path, layout))
    facts: dict[str, Json] = {"file": str(path), "container": found.container, "format": found.format, **_sums(counts)}
    grids = {f"by_{name}": _table(name, counts.by[name], counts.questions) for name in counts.by}

    def draw(console: Console) -> None:
        for name, value in facts.items():
            console.print(Text(f"{name.replace('_', ' '):19} {value}"), soft_wrap=True)
        console.print()
        tables.show(console, *grids.values())
        for number, question in enumerate(counts.first, start=1):
            console.print(Text(f"question {number}", style="bold"))
            for name, value in _record(question).items():
                console.print(Text(f"  {name:9} {visible(str(value))}"), soft_wrap=True)

    first: list[Json] = [_record(question) for question in counts.first]
    records: dict[str, Json] = {name: grid.records() for name, grid in grids.items()}
    return View({**facts, **records, "first": first}, draw)


def count(questions: Iterable[Question]) -> Counts:
    """Go through questions once."""
    counts = Counts()
    for question in questions:
        counts.questions += 1
        counts.without_answer += not question.answers
        counts.unanswerable += question.metadata.get("answerable") is False
        counts.longest_text = max(counts.longest_text, len(question.text))
        counts.by["dataset"][question.dataset] += 1
        counts.by["hops"]["" if question.hops is None else str(question.hops)] += 1
        counts.by["kind"][question.kind] += 1
        known = {passage.id for passage in question.passages}
        counts.passages.update(map(_digest, known))
        counts.evidence += len(question.evidence)
        counts.evidence_elsewhere += sum(piece.passage_id not in known for piece in question.evidence)
        text = _digest(question.plain_text)
        counts.repeated_texts += text in counts.texts
        counts.texts.add(text)
        if len(counts.first) < FIRST:
            counts.first.append(question)
    return counts


def _sums(counts: Counts) -> dict[str, Json]:
    return {
        "questions": counts.questions,
        "without_answer": counts.without_answer,
        "unanswerable": counts.unanswerable,
        "passages": len(counts.passages),
        "evidence": counts.evidence,
        "evidence_elsewhere": counts.evidence_elsewhere,
        "repeated_texts": counts.repeated_texts,
        "longest_text": counts.longest_text,
    }


def _table(name: str, counter: Counter[str], questions: int) -> Grid:
    """The most frequent values; an empty one is a question that has none."""
    listed = counter.most_common(NAMED)
    rest = questions - sum(number for _, number in listed)
    rows: list[list[Json]] = [[value or None, number] for value, number in listed]
    if rest:
        rows.append([f"{len(counter) - NAMED} others", rest])
    return Grid(f"by {name}", (name, "questions"), rows)


def _record(question: Question) -> dict[str, Json]:
    answers = [_short(answer) for answer in question.answers[:FIRST]]
    more = len(question.answers) - len(answers)
    return {
        "id": question.id,
        "text": _short(question.text),
        "answers": [*answers, f"and {more} more"] if more else [*answers],
        "hops": question.hops,
        "passages": len(question.passages),
        "evidence": len(question.evidence),
        "metadata": [*question.metadata],
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
