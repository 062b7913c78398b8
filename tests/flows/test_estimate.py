"""How long a run will still take, from its own times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fakes import config

from flows.estimate import seconds_left
from storage.stages import StageRow

START = datetime(2026, 12, 1, tzinfo=UTC)


def done(stage: str, iteration: int, seconds: float, shard: int = 0) -> StageRow:
    began = START + timedelta(hours=iteration)
    return StageRow(
        run="a", iteration=iteration, stage=stage, shard=shard, receipt={}, input_hash="", started_at=began,
        finished_at=began + timedelta(seconds=seconds), pid=1, code_version="", library_versions={},
    )  # fmt: skip


START_ROWS = [done("prepare", 0, 5), done("warm_start", 0, 90), done("evaluate", 0, 3), done("publish", 0, 1)]
FIRST = [
    done("rollout", 1, 10), done("rollout", 1, 14, shard=1), done("annotate", 1, 1), done("update", 1, 6),
    done("evaluate", 1, 5), done("publish", 1, 3),
]  # fmt: skip


def test_nothing_is_said_before_every_stage_was_timed() -> None:
    assert seconds_left(START_ROWS, config(), shards=2) is None


def test_the_rest_takes_what_its_stages_took() -> None:
    """One iteration is left: two shards of 12 s on average, 1, 6, evaluate 4 and publish 2 on average."""
    assert seconds_left([*START_ROWS, *FIRST], config(), shards=2) == 24 + 1 + 6 + 4 + 2


def test_only_what_is_left_counts_after_a_resume() -> None:
    rows = [*START_ROWS, *FIRST, done("rollout", 2, 12), done("rollout", 2, 12, shard=1), done("annotate", 2, 1)]
    assert seconds_left(rows, config(), shards=2) == 6 + 4 + 2
    assert seconds_left([*START_ROWS, *FIRST], config(iterations=1), shards=2) == 0


def test_the_latest_five_times_count() -> None:
    old = [done("update", iteration, 100) for iteration in range(1, 4)]
    new = [done("update", iteration, 6) for iteration in range(4, 9)]
    others = [done(stage, 9, 0) for stage in ("rollout", "annotate", "evaluate", "publish")]
    rows = [*START_ROWS[:2], done("evaluate", 0, 0), done("publish", 0, 0), *old, *new, *others]
    left = seconds_left(rows, config(iterations=10), shards=1)
    assert left == 2 * 6  # updates 9 and 10; everything else takes nothing


def test_iterations_without_an_evaluation_cost_none() -> None:
    rows = [*START_ROWS, *FIRST]
    every, last = config(iterations=4), config(iterations=4, evaluation={"every": 4})
    whole, fewer = seconds_left(rows, every, shards=2), seconds_left(rows, last, shards=2)
    assert whole is not None
    assert fewer is not None
    assert whole - fewer == 2 * 4  # evaluations 2 and 3
