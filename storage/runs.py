"""The table of runs: what a run is configured to be, and how it stands. Its stages are left to stages."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime

from duckdb import DuckDBPyConnection

from agent_r1.errors import RunError
from agent_r1.questions.records import Json
from storage.database import SCHEMA_VERSION
from storage.rows import from_utc, to_json, to_utc

COLUMNS = (
    "run, config, identity, seed, code_version, library_versions, mlflow_run_id, status, schema_version, created_at, "
    "notes"
)

TRAJECTORIES_OF = "trajectories of"
EVALUATES = "evaluates"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run. `status` is running, finished, failed or stopped; `notes` are changes made on resume, oldest first."""

    run: str
    config: dict[str, Json]
    identity: str
    seed: int
    code_version: str
    library_versions: dict[str, str]
    status: str
    created_at: datetime
    mlflow_run_id: str | None = None
    schema_version: int = SCHEMA_VERSION
    notes: list[dict[str, Json]] = field(default_factory=list)


def find(con: DuckDBPyConnection, run: str) -> RunRow | None:
    """The run of that name, None where there is none."""
    rows = con.execute(f"SELECT {COLUMNS} FROM runs WHERE run = ?", [run]).fetchall()
    return _row(rows[0]) if rows else None


def all_runs(con: DuckDBPyConnection) -> list[RunRow]:
    """Every run, oldest first."""
    return [_row(row) for row in con.execute(f"SELECT {COLUMNS} FROM runs ORDER BY created_at, run").fetchall()]


def noted(row: RunRow, what: str) -> str | None:
    """What the run's notes say of it first, None where they say nothing."""
    return next((str(note["after"]) for note in row.notes if note["what"] == what), None)


def insert(con: DuckDBPyConnection, row: RunRow) -> None:
    """Add a run. RunError where the name is taken."""
    if find(con, row.run) is not None:
        raise RunError(f"run {row.run!r} exists already")
    con.execute(
        f"INSERT INTO runs ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            row.run, to_json(row.config), row.identity, row.seed, row.code_version, json.dumps(row.library_versions),
            row.mlflow_run_id, row.status, row.schema_version, to_utc(row.created_at), to_json(row.notes),
        ],
    )  # fmt: skip


def remove(con: DuckDBPyConnection, run: str) -> None:
    """Delete a run's row; that it has no stages is left to the caller."""
    con.execute("DELETE FROM runs WHERE run = ?", [run])


def set_status(con: DuckDBPyConnection, run: str, status: str) -> None:
    """Say how the run stands."""
    _set(con, run, "status", status)


def set_mlflow_run_id(con: DuckDBPyConnection, run: str, mlflow_run_id: str | None) -> None:
    """Keep the MLflow run that shows this run."""
    _set(con, run, "mlflow_run_id", mlflow_run_id)


def set_config(con: DuckDBPyConnection, run: str, config: dict[str, Json]) -> None:
    """Replace the configuration (a resume may change keys that are not part of the identity)."""
    _set(con, run, "config", to_json(config))


def add_note(con: DuckDBPyConnection, run: str, what: str, before: Json, after: Json, at: datetime) -> None:
    """Record a change made on resume."""
    found = find(con, run)
    notes = [] if found is None else found.notes
    note: dict[str, Json] = {"at": to_utc(at).isoformat(), "what": what, "before": before, "after": after}
    _set(con, run, "notes", to_json([*notes, note]))


def _set(con: DuckDBPyConnection, run: str, column: str, value: str | None) -> None:
    if not con.execute(f"UPDATE runs SET {column} = ? WHERE run = ? RETURNING run", [value, run]).fetchall():
        raise RunError(f"there is no run {run!r}")


def _row(row: tuple) -> RunRow:
    run, config, identity, seed, code, libraries, mlflow_run_id, status, version, created_at, notes = row
    return RunRow(
        run=run, config=json.loads(config), identity=identity, seed=seed, code_version=code,
        library_versions=json.loads(libraries), mlflow_run_id=mlflow_run_id, status=status, schema_version=version,
        created_at=from_utc(created_at), notes=json.loads(notes),
    )  # fmt: skip
