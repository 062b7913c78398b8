"""Questions and passages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from agent_r1.errors import StoreError
from agent_r1.questions.records import Evidence, Passage, Question
from storage import passages, questions
from storage.database import Store

FULL = Question(
    id="w/1",
    text="Where was Zoë born?",
    answers=("Zürich", "Zurich"),
    evidence=(Evidence("p2", 0), Evidence("p1", None)),
    hops=2,
    dataset="world",
    metadata={"kind": "bridge", "facts": [["Zoë", "born_in", "Zürich"]], "none": None, "n": 1.5},
)
BARE = Question(id="w/0", text="?", dataset="world")


@pytest.fixture
def con(tmp_path: Path) -> Iterator[DuckDBPyConnection]:
    with Store(tmp_path / "store.duckdb").write() as con:
        yield con


def test_questions_come_back_in_the_order_asked_for(con: DuckDBPyConnection) -> None:
    questions.save(con, "train", [FULL, BARE])
    assert questions.load(con, ["w/1", "w/0", "w/1"]) == [FULL, BARE, FULL]
    assert questions.load(con, []) == []


def splits(con: DuckDBPyConnection) -> list[tuple[str, str]]:
    return con.execute("SELECT question_id, split FROM questions ORDER BY question_id").fetchall()


def test_passages_are_not_stored_with_questions(con: DuckDBPyConnection) -> None:
    questions.save(con, "train", [replace(FULL, passages=(Passage("p1", "t", "x"),))])
    assert questions.load(con, ["w/1"]) == [FULL]


def test_questions_that_are_only_asked_keep_the_split_that_they_have(con: DuckDBPyConnection) -> None:
    questions.save(con, "train", [FULL])
    questions.add(con, "validation", [BARE, FULL])
    assert splits(con) == [("w/0", "validation"), ("w/1", "train")]
    with pytest.raises(StoreError, match="'w/1' is stored with another text"):
        questions.add(con, "validation", [replace(FULL, text="Who?")])


def test_saving_twice_is_saving_once(con: DuckDBPyConnection) -> None:
    questions.save(con, "train", [FULL, BARE, FULL])
    con.execute("COMMIT")
    con.execute("BEGIN")
    questions.save(con, "train", [replace(FULL, hops=3)])
    assert questions.load(con, ["w/0", "w/1"]) == [BARE, replace(FULL, hops=3)]
    assert splits(con) == [("w/0", "train"), ("w/1", "train")]


def test_a_question_saved_with_another_split_moves_there(con: DuckDBPyConnection) -> None:
    questions.save(con, "train", [FULL, BARE])
    questions.save(con, "test", [BARE])
    assert splits(con) == [("w/0", "test"), ("w/1", "train")]


@pytest.mark.parametrize("other", [replace(FULL, text="Who?"), replace(FULL, answers=("Bern",))])
def test_an_id_that_stands_for_another_question_is_refused(con: DuckDBPyConnection, other: Question) -> None:
    questions.save(con, "train", [FULL])
    with pytest.raises(StoreError, match=r"'w/1'.*two data files"):
        questions.save(con, "train", [BARE, other])
    with pytest.raises(StoreError, match=r"'w/1'.*two data files"):
        questions.save(con, "train", [other, FULL])


def test_an_unknown_id_is_named(con: DuckDBPyConnection) -> None:
    questions.save(con, "train", [FULL])
    with pytest.raises(StoreError, match=r"'w/7' \(1 of 2 are missing\)"):
        questions.load(con, ["w/1", "w/7"])


def test_passages_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "passages.parquet"
    given = [Passage("b", "Zürich", "A city. 東京", ("A city.", " 東京")), Passage("a", "", "", ())]
    passages.write(path, given)
    first = path.read_bytes()
    passages.write(path, given)
    assert passages.read(path) == given
    assert path.read_bytes() == first
    assert [each.name for each in path.parent.iterdir()] == ["passages.parquet"]
    passages.write(path, [])
    assert passages.read(path) == []


@pytest.mark.parametrize("content", [None, b"", b"PAR1 but damaged"])
def test_damaged_or_missing_passages_are_one_clear_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "passages.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=r"passages\.parquet: the passages cannot be read") as caught:
        passages.read(path)
    assert "\n" not in str(caught.value)
