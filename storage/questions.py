"""The table of questions, shared by all runs. Passages lie in Parquet (passages), so a loaded question has none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
from duckdb import DuckDBPyConnection

from agent_r1.errors import StoreError
from agent_r1.questions.records import Evidence, Json, Question
from storage.rows import insert, texts, to_json

COLUMNS = "question_id, dataset, text, answers, evidence, hops, metadata, split"


def save(con: DuckDBPyConnection, split: str, questions: Sequence[Question]) -> None:
    """Store questions; one that is there already is written anew where something, such as its split, changed.

    StoreError where an id stands for another text or other answers, in the store or among `questions`: two data files
    clash.
    """
    fresh: dict[str, Question] = {}
    for question in questions:
        _refuse_clash(question, fresh.setdefault(question.id, replace(question, passages=())))
    known = _by_id(con, list(fresh))
    for question in fresh.values():
        if question.id in known:
            _refuse_clash(question, known[question.id][0])
    rows = [question for question in fresh.values() if known.get(question.id) != (question, split)]
    ids = [question.id for question in rows]
    con.execute("DELETE FROM questions WHERE question_id IN (SELECT unnest(?::VARCHAR[]))", [ids])
    columns = {
        "question_id": texts(row.id for row in rows),
        "dataset": texts(row.dataset for row in rows),
        "split": texts(split for _ in rows),
        "text": texts(row.text for row in rows),
        "answers": pa.array([list(row.answers) for row in rows], pa.list_(pa.string())),
        "evidence": texts(to_json([_evidence_json(piece) for piece in row.evidence]) for row in rows),
        "hops": pa.array([row.hops for row in rows], pa.int32()),
        "metadata": texts(to_json(dict(row.metadata)) for row in rows),
    }
    insert(con, "questions", columns)


def add(con: DuckDBPyConnection, split: str, questions: Sequence[Question]) -> None:
    """Store the questions that are not there yet, of any split; those that are stay as they are. StoreError as above.

    For who only asks them: a question that a run trains on is one of its training split, whoever asks it too.
    """
    known = _by_id(con, [question.id for question in questions])
    for question in questions:
        if question.id in known:
            _refuse_clash(question, known[question.id][0])
    save(con, split, [question for question in questions if question.id not in known])


def load(con: DuckDBPyConnection, ids: Sequence[str]) -> list[Question]:
    """The questions in the order of `ids`. StoreError names an id that is not there."""
    known = _by_id(con, ids)
    missing = [each for each in ids if each not in known]
    if missing:
        raise StoreError(f"the store has no question {missing[0]!r} ({len(missing)} of {len(ids)} are missing)")
    return [known[each][0] for each in ids]


def known(con: DuckDBPyConnection, ids: Iterable[str]) -> dict[str, Question]:
    """The questions of these ids that are there."""
    return {name: question for name, (question, _) in _by_id(con, sorted(ids)).items()}


def _by_id(con: DuckDBPyConnection, ids: Sequence[str]) -> dict[str, tuple[Question, str]]:
    """The questions and their splits."""
    rows = con.execute(
        f"SELECT {COLUMNS} FROM questions WHERE question_id IN (SELECT unnest(?::VARCHAR[]))", [list(ids)]
    ).fetchall()
    return {row[0]: (_question(*row), row[-1]) for row in rows}


def _refuse_clash(question: Question, other: Question) -> None:
    if (question.text, question.answers) != (other.text, other.answers):
        raise StoreError(
            f"question {question.id!r} is stored with another text or other answers "
            f"({other.text[:80]!r}, {list(other.answers)[:3]}): two data files share this id"
        )


def _evidence_json(piece: Evidence) -> dict[str, Json]:
    return {"passage_id": piece.passage_id, "sentence": piece.sentence}


def _question(
    question_id: str,
    dataset: str,
    text: str,
    answers: list[str],
    evidence: str,
    hops: int | None,
    metadata: str,
    _split: str,
) -> Question:
    return Question(
        id=question_id,
        text=text,
        answers=tuple(answers),
        evidence=tuple(Evidence(**piece) for piece in json.loads(evidence)),
        hops=hops,
        dataset=dataset,
        metadata=json.loads(metadata),
    )
