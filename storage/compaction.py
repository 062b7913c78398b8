"""Deleting a run's rows, and giving the space of deleted rows back: DuckDB keeps it in the file, so the file is copied.

Which runs may go, and that nobody works on them, is left to the caller.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from agent_r1.errors import StoreError
from storage.database import SETTINGS, Store
from storage.files import folder_lock, fsync_file, fsync_folder
from storage.stages import OF_AN_ITERATION

DRAFT = ".tmp-"
WORTH = 16_000_000
"""Free bytes for which a copy is made."""


def count_rows(con: DuckDBPyConnection, run: str | None = None) -> int:
    """How many rows a run, or all of them, has in the tables of iterations."""
    where = "WHERE run = $run OR $run IS NULL"
    tables = " + ".join(f"(SELECT count(*) FROM {table} {where})" for table in OF_AN_ITERATION)
    row = con.execute(f"SELECT {tables}", {"run": run}).fetchone()
    return 0 if row is None else int(row[0])


def remove_run(con: DuckDBPyConnection, run: str, asked: Collection[str], kept: Collection[str]) -> int:
    """Delete a run's rows, and of the questions that it `asked` those that no other run has; how many rows those were.

    `kept` are questions of other runs whose trajectories do not show it yet.
    """
    count = count_rows(con, run)
    own = con.execute("SELECT DISTINCT question_id FROM trajectories WHERE run = ?", [run]).fetchall()
    for table in (*OF_AN_ITERATION, "runs"):
        con.execute(f"DELETE FROM {table} WHERE run = ?", [run])
    gone = sorted({*asked, *(question for (question,) in own)} - {*kept})
    found = con.execute(
        "DELETE FROM questions WHERE question_id IN (SELECT unnest(?::VARCHAR[])) "
        "AND question_id NOT IN (SELECT question_id FROM trajectories) RETURNING question_id",
        [gone],
    ).fetchall()
    return count + 1 + len(found)


def free_bytes(store: Store) -> int:
    """The bytes of blocks in the file that hold nothing; deleted rows take more than that until it is copied."""
    with store.read() as con:
        row = con.execute("SELECT sum(free_blocks * block_size) FROM pragma_database_size()").fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


def compact(store: Store) -> None:
    """Copy the store to a new file without the space of deleted rows, in its place.

    Who waits for the store meanwhile goes on with the new file. A kill leaves the old file and a draft beside it.
    StoreError where the disk has no room for a copy.
    """
    path, draft = store.path, store.path.with_name(DRAFT + store.path.name)
    size = path.stat().st_size
    if shutil.disk_usage(path.parent).free < size:
        raise StoreError(f"{path}: to give its space back takes {size / 1e6:.0f} MB of free disk for a while")
    with store.write():  # which leaves nothing in the write-ahead log, of a process that was killed either
        pass
    with folder_lock(path.parent), store.read():
        if path.with_name(f"{path.name}.wal").exists():  # of a process that ended in a commit: it is not in the file
            raise StoreError(f"{path}: was written meanwhile; say it again")
        for left_over in (draft, draft.with_name(f"{draft.name}.wal")):
            left_over.unlink(missing_ok=True)
        _copy(path, draft)
        fsync_file(draft)
        draft.replace(path)  # while the old file is held, so that nobody writes to that
        fsync_folder(path.parent)


def _copy(path: Path, draft: Path) -> None:
    quoted = [str(each).replace("'", "''") for each in (path, draft)]
    with duckdb.connect(":memory:", config=SETTINGS) as con:
        con.execute(f"ATTACH '{quoted[0]}' AS old (TYPE duckdb, READ_ONLY)")
        con.execute(f"ATTACH '{quoted[1]}' AS new (TYPE duckdb)")
        con.execute("COPY FROM DATABASE old TO new")
        con.execute("CHECKPOINT new")
        con.execute("DETACH new")
