"""Metrics: one value a run, iteration and name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from storage import metrics
from storage.database import Store
from storage.metrics import MetricRow

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 30, 13, tzinfo=UTC)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[DuckDBPyConnection]:
    with Store(tmp_path / "store.duckdb").write() as con:
        yield con


def test_a_value_stored_again_replaces_the_first(con: DuckDBPyConnection) -> None:
    metrics.save(con, "r", 1, "update", {"ppo/kl": 0.1, "ppo/entropy": 2.0}, NOON)
    metrics.save(con, "r", 0, "evaluate", {"eval/greedy/f1": 0.5}, NOON)
    con.execute("COMMIT")
    con.execute("BEGIN")
    metrics.save(con, "r", 1, "update", {"ppo/kl": 0.2}, LATER)
    metrics.save(con, "s", 1, "update", {"ppo/kl": 9.0}, LATER)
    metrics.save(con, "r", 1, "update", {}, LATER)
    assert metrics.load(con, "r") == [
        MetricRow(0, "eval/greedy/f1", 0.5, NOON, "evaluate"),
        MetricRow(1, "ppo/entropy", 2.0, NOON, "update"),
        MetricRow(1, "ppo/kl", 0.2, LATER, "update"),
    ]


def test_what_is_not_finite_is_stored_as_nan(con: DuckDBPyConnection) -> None:
    metrics.save(con, "r", 1, "update", {"a": math.inf, "b": -math.inf, "c": math.nan}, NOON)
    assert [math.isnan(row.value) for row in metrics.load(con, "r")] == [True, True, True]
