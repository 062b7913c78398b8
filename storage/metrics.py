"""The table of metrics, one value a run, iteration and name. Showing them in MLflow is left to tracking."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from duckdb import DuckDBPyConnection

from storage.rows import from_utc, insert, texts, to_utc


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One value. `at` is when it was measured; `stage` is who did."""

    iteration: int
    key: str
    value: float
    at: datetime
    stage: str


def save(
    con: DuckDBPyConnection, run: str, iteration: int, stage: str, values: Mapping[str, float], at: datetime
) -> None:
    """Store the values in place of those of the same names. An infinite value is stored as NaN: plots have no room for
    it, and MLflow would make 1.8e308 of it."""
    keys = list(values)
    con.execute(
        "DELETE FROM metrics WHERE run = ? AND iteration = ? AND key IN (SELECT unnest(?::VARCHAR[]))",
        [run, iteration, keys],
    )
    columns = {
        "run": texts(run for _ in keys),
        "iteration": pa.array([iteration for _ in keys], pa.int32()),
        "stage": texts(stage for _ in keys),
        "key": texts(keys),
        "value": pa.array([_finite_or_nan(values[key]) for key in keys], pa.float64()),
        "at": pa.array([to_utc(at) for _ in keys], pa.timestamp("us")),
    }
    insert(con, "metrics", columns)


def load(con: DuckDBPyConnection, run: str) -> list[MetricRow]:
    """Every value of a run, by iteration and name."""
    rows = con.execute(
        'SELECT iteration, key, value, "at", stage FROM metrics WHERE run = ? ORDER BY iteration, key', [run]
    ).fetchall()
    return [MetricRow(iteration, key, value, from_utc(at), stage) for iteration, key, value, at, stage in rows]


def value(con: DuckDBPyConnection, run: str, iteration: int, key: str) -> float:
    """One value, NaN where there is none."""
    found = con.execute(
        "SELECT value FROM metrics WHERE run = ? AND iteration = ? AND key = ?", [run, iteration, key]
    ).fetchone()
    return float("nan") if found is None or found[0] is None else float(found[0])


def best(rows: Iterable[MetricRow], key: str, iterations: Container[int]) -> int | None:
    """The earliest of the iterations with the highest value of a metric; None where none of them has a value."""
    values = {row.iteration: row.value for row in rows if row.key == key and not math.isnan(row.value)}
    found = [iteration for iteration in sorted(values) if iteration in iterations]
    return max(found, key=lambda iteration: values[iteration], default=None)


def _finite_or_nan(value: float) -> float:
    return float(value) if math.isfinite(value) else math.nan
