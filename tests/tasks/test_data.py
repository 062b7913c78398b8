"""What prepare left, opened again."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from agent_r1 import model
from agent_r1.config import parse
from agent_r1.questions.records import Question
from storage import questions
from storage.database import Store
from tasks.context import RunContext
from tasks.data import load_questions, open_split

SMALL = {"people": 8, "cities": 4, "countries": 3, "companies": 4, "films": 4, "warm_start_scale": 1}


@pytest.mark.parametrize("damage", ["gone", "empty", "short", "half", "text"])
def test_a_world_that_is_gone_or_damaged_is_written_again(tmp_path: Path, damage: str) -> None:
    settings = {"tools": ["lookup"], "world": SMALL, "model": {"tiny": {"layers": 1, "width": 16, "heads": 1}}}
    context = RunContext(tmp_path, "r", parse(settings, "test"))
    database = context.data / "train" / "world.duckdb"
    policy = model.create(context.config)

    def people() -> list[tuple[str]]:
        with open_split(context, "train", policy.tokenizer):
            pass
        with duckdb.connect(str(database), read_only=True) as con:
            return con.execute("SELECT name FROM person ORDER BY name").fetchall()

    before = people()
    whole = database.read_bytes()
    made = database.stat().st_mtime_ns
    assert people() == before
    assert database.stat().st_mtime_ns == made
    sizes = {"empty": 0, "short": 100, "half": len(whole) // 2}
    if damage == "gone":
        database.unlink()
    else:
        database.write_bytes(b"hello" * 1000 if damage == "text" else whole[: sizes[damage]])
    assert people() == before
    assert len(before) == 8


def test_stages_that_ask_for_the_same_questions_read_the_store_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RunContext(tmp_path, "r", parse({}, "test"))
    with context.store.write() as con:
        questions.save(con, "train", [Question(id=name, text=name.upper()) for name in "abc"])
    reads: list[Store] = []
    read = Store.read
    monkeypatch.setattr(Store, "read", lambda self: reads.append(self) or read(self))
    assert list(load_questions(context, ["b", "a", "b"])) == ["b", "a"]
    assert [each.text for each in load_questions(context, ["a", "b"]).values()] == ["A", "B"]
    assert len(reads) == 1
    assert list(load_questions(context, ["c"])) == ["c"]
    assert len(reads) == 2
