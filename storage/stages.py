"""The ledger of finished stages: receipts, recorded in the transaction of their rows. Skipping is left to tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from duckdb import DuckDBPyConnection

from agent_r1.questions.records import Json
from storage.rows import from_utc, to_json, to_utc

COLUMNS = (
    "run, iteration, stage, shard, receipt, input_hash, attempt, started_at, finished_at, pid, code_version, "
    "library_versions"
)
OF_AN_ITERATION = ("turns", "trajectories", "annotations", "credits", "metrics", "stages")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One finished stage (or shard of one). `receipt` holds ids, counts and paths for the stages that follow."""

    run: str
    iteration: int
    stage: str
    shard: int = 0
    receipt: dict[str, Json]
    input_hash: str
    attempt: int = 1
    started_at: datetime
    finished_at: datetime
    pid: int
    code_version: str
    library_versions: dict[str, str]


def find(con: DuckDBPyConnection, run: str, iteration: int, stage: str, shard: int = 0) -> StageRow | None:
    """The stage's record, None where it is not done."""
    rows = con.execute(
        f"SELECT {COLUMNS} FROM stages WHERE run = ? AND iteration = ? AND stage = ? AND shard = ?",
        [run, iteration, stage, shard],
    ).fetchall()
    return _row(rows[0]) if rows else None


def of_run(con: DuckDBPyConnection, run: str) -> list[StageRow]:
    """Every record of a run, by iteration, then in the order of finishing."""
    rows = con.execute(
        f"SELECT {COLUMNS} FROM stages WHERE run = ? ORDER BY iteration, finished_at, stage, shard", [run]
    ).fetchall()
    return [_row(row) for row in rows]


def seconds(con: DuckDBPyConnection, run: str, iteration: int, stage: str) -> float:
    """How long a stage worked, over all its shards that are finished."""
    found = con.execute(
        "SELECT sum(epoch_us(finished_at) - epoch_us(started_at)) FROM stages "
        "WHERE run = ? AND iteration = ? AND stage = ?",
        [run, iteration, stage],
    ).fetchone()
    return 0.0 if found is None or found[0] is None else float(found[0]) / 1e6


def record(con: DuckDBPyConnection, row: StageRow) -> StageRow:
    """Record a finished stage in place of an earlier record, and return it with its attempt counted.

    `attempt` is one more than the earlier record's, or the row's own where that is higher.
    """
    earlier = find(con, row.run, row.iteration, row.stage, row.shard)
    if earlier is not None:
        row = replace(row, attempt=max(row.attempt, earlier.attempt + 1))
        con.execute(
            "DELETE FROM stages WHERE run = ? AND iteration = ? AND stage = ? AND shard = ?",
            [row.run, row.iteration, row.stage, row.shard],
        )
    con.execute(
        f"INSERT INTO stages ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            row.run, row.iteration, row.stage, row.shard, to_json(row.receipt), row.input_hash, row.attempt,
            to_utc(row.started_at), to_utc(row.finished_at), row.pid, row.code_version,
            json.dumps(row.library_versions),
        ],
    )  # fmt: skip
    return row


def forget_from(con: DuckDBPyConnection, run: str, iteration: int) -> None:
    """Delete everything that the run stored in that iteration and later; its checkpoints are left to the caller."""
    for table in OF_AN_ITERATION:
        con.execute(f"DELETE FROM {table} WHERE run = ? AND iteration >= ?", [run, iteration])


def _row(row: tuple) -> StageRow:
    run, iteration, stage, shard, receipt, input_hash, attempt, started, finished, pid, code, libraries = row
    return StageRow(
        run=run, iteration=iteration, stage=stage, shard=shard, receipt=json.loads(receipt), input_hash=input_hash,
        attempt=attempt, started_at=from_utc(started), finished_at=from_utc(finished), pid=pid, code_version=code,
        library_versions=json.loads(libraries),
    )  # fmt: skip
