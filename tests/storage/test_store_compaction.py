"""Giving the space of deleted rows back: the same rows in a smaller file, and nobody writes to the old one."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from storage import compaction
from storage.database import _ENGINE, Store


def filled(folder: Path) -> Store:
    store = Store(folder / "store.duckdb", 5.0)
    with store.write() as con:
        for run in ("a", "b"):
            con.execute(
                "INSERT INTO credits SELECT ?, 1, 't' || i, 0, [random() for x in range(200)], [0.5], [1.0] "
                "FROM range(3000) t(i)",
                [run],
            )
    return store


def test_a_compacted_store_is_smaller_and_has_the_same_rows_and_keys(tmp_path: Path) -> None:
    store = filled(tmp_path)
    with store.write() as con:
        con.execute("DELETE FROM credits WHERE run = 'a'")
        con.execute("INSERT INTO metrics VALUES ('b', 1, 'evaluate', 'k', 0.5, TIMESTAMP '2026-01-01')")
    with store.read() as con:
        before = con.execute("SELECT * FROM credits ORDER BY trajectory_id").fetchall()
    size = store.path.stat().st_size
    compaction.compact(store)
    assert store.path.stat().st_size < 0.7 * size
    with store.read() as con:
        assert con.execute("SELECT * FROM credits ORDER BY trajectory_id").fetchall() == before
    with pytest.raises(duckdb.ConstraintException), store.write() as con:
        con.execute("INSERT INTO metrics VALUES ('b', 1, 'evaluate', 'k', 0.5, TIMESTAMP '2026-01-01')")
    assert [path.name for path in tmp_path.iterdir()] == ["store.duckdb"]


def test_who_opened_the_old_file_just_before_opens_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is replaced between a writer's opening it and its lock: the writer must not write to what is gone."""
    store, attach = filled(tmp_path), _ENGINE.attach
    times = []

    def slow(path: Path, read_only: bool) -> tuple[duckdb.DuckDBPyConnection, str]:
        got = attach(path, read_only)
        if not read_only and not times:
            times.append(1)
            other = path.with_name("other")
            other.write_bytes(path.read_bytes())
            other.replace(path)
        return got

    monkeypatch.setattr(type(_ENGINE), "attach", lambda _self, path, read_only: slow(path, read_only))
    with store.write() as con:
        con.execute("DELETE FROM credits WHERE run = 'b'")
    with store.read() as con:
        assert con.execute("SELECT DISTINCT run FROM credits").fetchall() == [("a",)]
    assert times
