"""Whether databases of a home are whole: DuckDB's store table by table, and the SQLite files of MLflow and Prefect.

Nothing is changed, and nothing is waited for long. What to do about it is left to flows.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

WAIT = 2.0  # seconds for SQLite's lock
OF_RUNS = ("stages", "trajectories", "turns", "annotations", "credits", "metrics")


@dataclass(frozen=True)
class Shown:
    """What an MLflow file holds of one run: the last step of its metrics."""

    run_id: str
    last: int


def broken_tables(con: DuckDBPyConnection) -> list[str]:
    """A line for each table that cannot be read to its end."""
    found = []
    for (table,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall():
        try:
            columns = con.execute(f'SELECT * FROM "{table}" LIMIT 0').description or []
            every = ", ".join(f'count("{column[0]}")' for column in columns)
            con.execute(f'SELECT {every} FROM "{table}"').fetchone()
        except duckdb.Error as error:
            found.append(f"table {table} cannot be read: {' '.join(str(error).split())}")
    return found


def orphans(con: DuckDBPyConnection) -> dict[str, int]:
    """Rows of runs that there are not, by table."""
    counts: dict[str, int] = {}
    for table in OF_RUNS:
        row = con.execute(f"SELECT count(*) FROM {table} WHERE run NOT IN (SELECT run FROM runs)").fetchone()
        if row is not None and row[0]:
            counts[table] = row[0]
    return counts


def sqlite_problem(path: Path) -> str | None:
    """What SQLite's own quick check finds wrong with a file, None for nothing."""
    try:
        with closing(_opened(path)) as con:
            rows = [str(row[0]) for row in con.execute("PRAGMA quick_check(3)")]
    except sqlite3.Error as error:
        return str(error)
    return None if rows == ["ok"] else "; ".join(rows)


def mlflow_revision(path: Path) -> str | None:
    """The version of MLflow's tables, None where there are none."""
    try:
        with closing(_opened(path)) as con:
            row = con.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])


def mlflow_shows(path: Path) -> list[Shown]:
    """Each of its runs that has metrics, and how far those go."""
    try:
        with closing(_opened(path)) as con:
            rows = con.execute("SELECT run_uuid, max(step) FROM latest_metrics GROUP BY run_uuid").fetchall()
    except sqlite3.Error:
        return []
    return [Shown(str(run_id), int(last)) for run_id, last in rows]


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=WAIT)
