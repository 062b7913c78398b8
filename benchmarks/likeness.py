"""Whether a home holds what the home of an undisturbed run holds: rows, weights, what MLflow shows, nothing else.

Left out is what no two runs have in common: times (`*_at`, `*_seconds`, time/*), process ids, MLflow's run id. How a
home came to be disturbed is left to the callers.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import duckdb

from storage.files import sha256

CLOCK = ("started_at", "finished_at", "created_at", "at", "pid", "mlflow_run_id")
CLOCKED_METRICS = "key NOT LIKE 'time/%' AND key <> 'rollout/tokens_per_second'"
TABLES = ("runs", "stages", "questions", "trajectories", "turns", "annotations", "credits", "metrics")
DRAFTS = (".tmp-*", ".old-*", ".store.duckdb.*", "*.wal")
GONE_SECONDS = 5.0
EXPERIMENT = "agent-r1"

Stage = tuple[str, int, int]


def rows(home: Path, table: str, without: tuple[str, ...] = (), run: str = "") -> list[tuple[object, ...]]:
    """A table, or one run's part of it, in an order that does not hang on when its rows were made."""
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        names = [row[0] for row in con.execute(f"SELECT column_name FROM (DESCRIBE {table})").fetchall()]
        columns = ", ".join(f'"{name}"::VARCHAR' for name in names if name not in (*CLOCK, *without))
        where = f"WHERE {CLOCKED_METRICS if table == 'metrics' else 'true'}"
        where += f" AND run = '{run}'" if run and "run" in names else ""
        return con.execute(f"SELECT {columns} FROM {table} {where} ORDER BY ALL").fetchall()


def finished(home: Path) -> dict[Stage, tuple[object, object]]:
    """When each finished stage began and ended, by name, iteration and shard."""
    if not (home / "store.duckdb").exists():
        return {}
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        query = "SELECT stage, iteration, shard, started_at, finished_at FROM stages"
        return {(row[0], row[1], row[2]): (row[3], row[4]) for row in con.execute(query).fetchall()}


def shown_in_mlflow(home: Path, run: str = "") -> dict[tuple[str, int], list[float]]:
    """Every value of every metric and step of the one run that MLflow shows (of that name), which has ended well.

    Read from MLflow's file as it lies there: a client of MLflow keeps a file open, also one that was replaced.
    """
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        (run_id,) = con.execute("SELECT mlflow_run_id FROM runs WHERE ? IN ('', run)", [run]).fetchone() or ("",)
    with closing(sqlite3.connect(f"{(home / 'mlflow.db').as_uri()}?mode=ro", uri=True)) as con:
        living = con.execute(
            "SELECT run_uuid, status FROM runs JOIN experiments USING (experiment_id) WHERE experiments.name = ? "
            "AND runs.lifecycle_stage = 'active' AND ? IN ('', runs.name)",
            [EXPERIMENT, run],
        ).fetchall()
        points = con.execute(
            "SELECT key, step, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics WHERE run_uuid = ? "
            "AND key NOT LIKE 'time/%' AND key <> 'rollout/tokens_per_second'",
            [run_id],
        ).fetchall()
    assert living == [(run_id, "FINISHED")], f"expected one finished MLflow run, {run_id}, found {living}"
    shown: dict[tuple[str, int], list[float]] = {}
    for key, step, value in points:
        shown.setdefault((key, step), []).append(value)
    return shown


def left_over(home: Path) -> list[str]:
    """Living processes whose command lines or environments name the home: Prefect's server is told of it there."""
    command = ["ps", "axeww", "-o", "pid=,stat=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, errors="replace").stdout
    mine = str(os.getpid())
    living = [line for line in listed.splitlines() if str(home) in line and not line.split()[1].startswith("Z")]
    return [line for line in living if line.split()[0] != mine]


def lasting(home: Path) -> list[str]:
    """What of `left_over` is still there when processes had time to go."""
    deadline = time.monotonic() + GONE_SECONDS
    while left_over(home) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left_over(home)


def drafts(home: Path) -> list[str]:
    """Files and folders that only a kill leaves behind."""
    return sorted(
        str(path.relative_to(home)) for pattern in DRAFTS for path in home.rglob(pattern) if _ours(home, path)
    )


def _ours(home: Path, path: Path) -> bool:
    return path.relative_to(home).parts[0] not in ("prefect", "mlartifacts")


def weights(home: Path, run: str = "") -> dict[str, str]:
    """The sha256 of all weights in all checkpoints."""
    found = sorted((home / "runs").glob(f"{run or '*'}/checkpoints/*/**/*.safetensors"))
    return {path.relative_to(home).as_posix(): sha256(path) for path in found}


def differences(home: Path, undisturbed: Path, run: str = "", again: bool = False) -> list[str]:
    """How the home (or that run in it) differs from the undisturbed one, a line each.

    `again`: finished stages may have been done again, which only their number of attempts shows.
    """
    without = ("attempt",) if again else ()
    found = [
        f"{table}: other rows"
        for table in TABLES
        if rows(home, table, without, run) != rows(undisturbed, table, without, run)
    ]
    if weights(home, run) != weights(undisturbed, run):
        found.append("other weights")
    try:
        shown = shown_in_mlflow(home, run)
    except (AssertionError, sqlite3.Error) as error:
        found.append(str(error))
    else:
        found += [f"MLflow: {len(values)} values of {key}" for key, values in shown.items() if len(values) != 1]
        if shown != shown_in_mlflow(undisturbed, run):
            found.append("MLflow: other values")
    found += [f"left over: {draft}" for draft in drafts(home)]
    return [*found, *(f"a process is left over: {line}" for line in lasting(home))]
