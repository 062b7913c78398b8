"""Runs and the ledger of stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from agent_r1.errors import RunError
from agent_r1.trajectory import Annotation, Credit, Trajectory, Turn
from storage import annotations, metrics, runs, stages, trajectories
from storage.database import Store
from storage.runs import RunRow
from storage.stages import StageRow

NOON = datetime(2026, 11, 30, 12, 0, 0, 250, tzinfo=UTC)

RUN = RunRow(
    run="größer",
    config={"seed": 0, "ppo": {"dual_clip": None, "clip_low": 0.2}, "tools": ["lookup"]},
    identity="abc",
    seed=0,
    code_version="0.1.0",
    library_versions={"torch": "2.13.0"},
    status="running",
    created_at=NOON,
)

STAGE = StageRow(
    run="a",
    iteration=1,
    stage="rollout",
    shard=2,
    receipt={"ids": ["ä", "b"], "count": 2, "path": None},
    input_hash="hash",
    started_at=NOON,
    finished_at=NOON + timedelta(seconds=3),
    pid=7,
    code_version="0.1.0",
    library_versions={"torch": "2.13.0"},
)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[DuckDBPyConnection]:
    with Store(tmp_path / "store.duckdb").write() as con:
        yield con


def test_a_run_comes_back_as_it_was_inserted(con: DuckDBPyConnection) -> None:
    assert runs.find(con, RUN.run) is None
    runs.insert(con, RUN)
    assert runs.find(con, RUN.run) == RUN


def test_a_run_name_is_taken_once(con: DuckDBPyConnection) -> None:
    runs.insert(con, RUN)
    with pytest.raises(RunError, match="größer"):
        runs.insert(con, RUN)


def test_runs_are_listed_oldest_first(con: DuckDBPyConnection) -> None:
    runs.insert(con, replace(RUN, run="a", created_at=NOON + timedelta(hours=1)))
    runs.insert(con, replace(RUN, run="b"))
    assert [row.run for row in runs.all_runs(con)] == ["b", "a"]


def test_what_changes_in_a_run_changes_alone(con: DuckDBPyConnection) -> None:
    runs.insert(con, RUN)
    runs.set_status(con, RUN.run, "failed")
    runs.set_mlflow_run_id(con, RUN.run, "id")
    runs.set_config(con, RUN.run, {"seed": 0, "iterations": 5})
    runs.add_note(con, RUN.run, "iterations", 3, 5, NOON)
    runs.add_note(con, RUN.run, "device", "cuda", None, NOON)
    at = "2026-11-30T12:00:00.000250"
    assert runs.find(con, RUN.run) == replace(
        RUN,
        status="failed",
        mlflow_run_id="id",
        config={"seed": 0, "iterations": 5},
        notes=[
            {"at": at, "what": "iterations", "before": 3, "after": 5},
            {"at": at, "what": "device", "before": "cuda", "after": None},
        ],
    )


def test_changing_a_run_that_does_not_exist_is_an_error(con: DuckDBPyConnection) -> None:
    with pytest.raises(RunError, match="nope"):
        runs.set_status(con, "nope", "failed")


def test_times_are_kept_in_utc_and_need_a_zone(con: DuckDBPyConnection) -> None:
    berlin = timezone(timedelta(hours=1))
    runs.insert(con, replace(RUN, created_at=datetime(2026, 11, 30, 13, 0, 0, 250, tzinfo=berlin)))
    assert con.execute("SELECT created_at FROM runs").fetchall() == [(NOON.replace(tzinfo=None),)]
    with pytest.raises(ValueError, match="time zone"):
        runs.insert(con, replace(RUN, run="b", created_at=NOON.replace(tzinfo=None)))


def test_a_stage_comes_back_as_it_was_recorded(con: DuckDBPyConnection) -> None:
    assert stages.find(con, "a", 1, "rollout", 2) is None
    assert stages.record(con, STAGE) == STAGE
    assert stages.find(con, "a", 1, "rollout", 2) == STAGE
    assert stages.find(con, "a", 1, "rollout") is None


def test_recording_a_stage_again_replaces_it_and_counts_the_attempt(con: DuckDBPyConnection) -> None:
    stages.record(con, STAGE)
    again = stages.record(con, replace(STAGE, receipt={"count": 3}))
    assert again.attempt == 2
    assert stages.of_run(con, "a") == [replace(STAGE, receipt={"count": 3}, attempt=2)]


def test_an_attempt_counted_by_the_caller_is_kept(con: DuckDBPyConnection) -> None:
    assert stages.record(con, replace(STAGE, attempt=4)).attempt == 4
    assert stages.record(con, STAGE).attempt == 5


def test_stages_are_listed_in_the_order_of_finishing(con: DuckDBPyConnection) -> None:
    later = NOON + timedelta(minutes=1)
    for row in (
        replace(STAGE, iteration=2, stage="annotate"),
        replace(STAGE, stage="annotate", shard=0, finished_at=later),
        replace(STAGE, run="b"),
        STAGE,
    ):
        stages.record(con, row)
    listed = [(row.iteration, row.stage) for row in stages.of_run(con, "a")]
    assert listed == [(1, "rollout"), (1, "annotate"), (2, "annotate")]


def test_forgetting_from_an_iteration_leaves_earlier_ones_and_other_runs(con: DuckDBPyConnection) -> None:
    turn = Turn(0, 0, (1,), (2,), (-0.5,), "x")
    for run in ("a", "b"):
        for i in (1, 2, 3):
            made = Trajectory(run, i, "train", "q", 0, i - 1, "no_answer", None, 0.0, 0.0, (turn,))
            trajectories.save(con, run, i, "train", 0, [made])
            note = Annotation(
                made.trajectory_id, 0, (1, 2), (False, True), (0.0, -0.5), (0.0, 1.0), {0: {"outcome": 1}}
            )
            annotations.save(con, run, i, [note])
            annotations.save_credits(con, run, i, [Credit(made.trajectory_id, 0, (0.0, 1.0), (0.0, 1.0), (0.0, 1.0))])
            metrics.save(con, run, i, "update", {"ppo/kl": 0.1}, NOON)
            stages.record(con, replace(STAGE, run=run, iteration=i))
    stages.forget_from(con, "a", 2)
    for table in ("stages", "trajectories", "turns", "annotations", "credits", "metrics"):
        kept = con.execute(f"SELECT run, iteration FROM {table} ORDER BY ALL").fetchall()
        assert kept == [("a", 1), ("b", 1), ("b", 2), ("b", 3)], table


def test_the_same_keys_can_be_stored_again_after_forgetting_in_one_transaction(con: DuckDBPyConnection) -> None:
    stages.record(con, STAGE)
    con.execute("COMMIT")
    con.execute("BEGIN")
    stages.forget_from(con, "a", 1)
    assert stages.record(con, STAGE).attempt == 1
