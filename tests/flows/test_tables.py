"""What people and programs read of stored rows."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from fakes import config
from rich.console import Console

from agent_r1.evaluation import Score
from flows import tables
from flows.progress import iteration_line, skipped_line
from storage.metrics import MetricRow
from storage.stages import StageRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def metric(iteration: int, key: str, value: float) -> MetricRow:
    return MetricRow(iteration, key, value, NOW, "evaluate")


def stage(iteration: int, name: str, shard: int = 0, seconds: float = 1.5) -> StageRow:
    return StageRow(
        run="a",
        iteration=iteration,
        stage=name,
        shard=shard,
        receipt={},
        input_hash="",
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=seconds),
        pid=1,
        code_version="",
        library_versions={},
    )


def test_an_iteration_is_one_line_of_results_and_times() -> None:
    rows = [
        metric(3, "rollout/reward_mean", 0.4123),
        metric(3, "eval/greedy/exact_match", 0.5),
        metric(3, "time/update_seconds", 5.04),
        metric(3, "time/rollout_seconds", 12.1),
        metric(2, "eval/sampled/exact_match", 0.9),
    ]
    line = "iteration  3/20  reward  0.412  greedy EM  0.500  |  rollout 12.1 s, update 5.0 s"
    assert iteration_line(rows, 3, 20) == line


def test_what_is_skipped_is_one_line() -> None:
    rows = [stage(i, "publish") for i in range(4)] + [stage(4, "rollout"), stage(4, "rollout", 1)]
    assert skipped_line(rows, 3) == "skipping what is done: iterations 0 to 3, 2 of 3 shards of iteration 4"
    assert skipped_line([stage(0, "prepare")], 3) == "skipping what is done: prepare of iteration 0"
    assert skipped_line([stage(0, "publish")], 3) == "skipping what is done: iteration 0"
    assert skipped_line([], 3) is None


def test_the_learning_table_has_a_row_an_iteration_and_no_empty_columns() -> None:
    grid = tables.learning("a", [metric(0, "eval/sampled/exact_match", 0.1), metric(1, "rollout/reward_mean", 0.3)])
    assert grid.records() == [
        {"iteration": 0, "sampled EM": 0.1, "reward": None},
        {"iteration": 1, "sampled EM": None, "reward": 0.3},
    ]


def test_seconds_of_shards_are_added_up() -> None:
    rows = [stage(0, "prepare"), stage(1, "rollout"), stage(1, "rollout", 1, 2.0)]
    assert tables.stage_times("a", rows).records() == [
        {"iteration": 0, "prepare": "1.5", "rollout": None, "shards": None},
        {"iteration": 1, "prepare": None, "rollout": "3.5", "shards": 2},
    ]


def test_runs_are_summed_up_by_first_best_and_last() -> None:
    series = [metric(i, "eval/sampled/exact_match", value) for i, value in enumerate((0.1, 0.7, math.nan, 0.6))]
    (row,) = tables.summary({"a": series}).rows
    assert list(row) == ["eval/sampled/exact_match", "a", 0.1, 0.7, 1, 0.6, 3]


def test_diagnostics_are_the_last_values_of_each_run_and_empty_where_one_has_none() -> None:
    one = [metric(1, "ppo/entropy", 0.9), metric(1, "eval/sampled/no_call", 0.5), metric(2, "ppo/entropy", 0.2)]
    other = [metric(3, "ppo/entropy", 0.4), metric(3, "ppo/policy_loss", 1.0)]
    assert tables.diagnostics({"a": one, "b": other}).records() == [
        {"metric": "eval/sampled/no_call", "a": 0.5, "b": None},
        {"metric": "ppo/entropy", "a": 0.2, "b": 0.4},
    ]


def test_diagnostics_are_documented_metrics() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = {key.replace("eval/sampled", "*") for key in tables.DIAGNOSTICS}
    assert [name for name in names if f"`{name}`" not in page] == []


def test_rewards_before_and_after_are_means_over_the_iterations_that_were_priced_anew() -> None:
    """Iteration 3 has not been taken; the old run did not know the potential yet."""
    turns, totals = (-0.1, -0.2, -9.0), (1.0, 0.5, 9.0)
    before = [metric(at, "reward/turn", value) for at, value in enumerate(turns, 1)]
    before += [metric(at, "rollout/reward_mean", value) for at, value in enumerate(totals, 1)]
    after = [metric(at, key, value) for at in (1, 2) for key, value in (("reward/turn", -0.4), ("reward/potential", 0))]
    after += [metric(1, "rollout/reward_mean", 0.75), metric(2, "rollout/reward_mean", 0.25)]
    grid = tables.reward_change("old", before, "new", after)
    found = {str(row[0]): list(row[1:]) for row in grid.rows}
    assert found["turn"] == pytest.approx([-0.15, -0.4, -0.25])
    assert found["all"] == pytest.approx([0.75, 0.5, -0.25])
    assert found["potential"] == [None, 0, None]
    assert list(found)[-1] == "all"


def test_configurations_are_compared_key_by_key() -> None:
    grid = tables.config_differences({"a": config(), "b": config(seed=1, rewards={"turn": 0.0})})
    assert [list(row) for row in grid.rows] == [["seed", "0", "1"], ["rewards.turn", "-0.02", "0.0"]]


def test_json_has_null_for_what_is_not_a_number() -> None:
    assert json.loads(tables.as_json({"a": [math.nan, 1.5, math.inf]})) == {"a": [None, 1.5, None]}


def test_a_grid_is_a_table_of_a_page_and_brackets_are_text() -> None:
    grid = tables.Grid("means [interval]", ("name", "value"), [["a|b", 0.5], ["[c]", None]])
    assert grid.markdown() == "**means [interval]**\n\n| name | value |\n| --- | --- |\n| a/b | 0.500 |\n| [c] |  |\n"
    console = Console(width=80, record=True, file=StringIO())
    tables.show(console, grid)
    text = console.export_text()
    assert "means [interval]" in text
    assert "[c]" in text


def test_methods_stand_side_by_side_by_data_set_and_hops_and_files_of_one_data_set_apart() -> None:
    def score(hops: int | None, f1: float) -> Score:
        return Score("musique", hops, 4, {"eval/greedy/f1": f1})

    grid = tables.methods(
        "a@3",
        [
            ("direct", "data/dev.jsonl", score(None, 0.1)),
            ("direct", "data/dev.jsonl", score(2, 0.2)),
            ("rag", "data/dev.jsonl", score(None, 0.3)),
            ("rag", "data/dev.jsonl", score(2, 0.4)),
            ("direct", "data/train.jsonl", score(None, 0.5)),
        ],
    )
    shown = [[row[name] for name in ("dataset", "hops", "method", "F1")] for row in _dicts(grid)]
    assert shown == [
        ["musique (dev.jsonl)", "all", "direct", 0.1],
        ["musique (dev.jsonl)", "all", "rag", 0.3],
        ["musique (dev.jsonl)", 2, "direct", 0.2],
        ["musique (dev.jsonl)", 2, "rag", 0.4],
        ["musique (train.jsonl)", "all", "direct", 0.5],
    ]


def _dicts(grid: tables.Grid) -> list[dict[str, object]]:
    return [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]
