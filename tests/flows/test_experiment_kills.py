"""An experiment that was killed with kill -9 twice ends with the same results and summary as one that was not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from benchmarks import kill_driver
from storage.tracking import Tracker
from tasks.context import STAGES

pytestmark = pytest.mark.slow

DRIVER = Path(kill_driver.__file__)
EXPERIMENT = """
base: quickstart
set:
  iterations: 2
  threads: 1
  world: {people: 10, cities: 5, countries: 3, companies: 5, films: 6, warm_start_scale: 1, warm_start: 60, train: 30,
          validation: 12, test: 12}
  warm_start: {curriculum_steps: 2, steps: 5, sloppy_steps: 2}
  rollout: {questions: 16, shard_size: 8}
  ppo: {minibatches: 2}
  evaluation: {questions: 12}
seeds: [0, 1]
variants:
  dense:
  outcome: {rewards: {evidence: 0, turn: 0}}
last: 2
comparisons: [[dense, outcome]]
"""
KILLS = (("x-dense-s0", "test", 2), ("x-outcome-s0", "update", 1))
"""Runs in the order in which they are done: when the second kill comes, all stages of dense-s0 are done already."""


def command(folder: Path) -> list[str]:
    (folder / "x.yaml").write_text(EXPERIMENT)
    return ["experiment", str(folder / "x.yaml"), "--home", str(folder / "home")]


def without_clock(value: object) -> object:
    """Without seconds, and what follows from them."""
    if isinstance(value, dict):
        clocked = ("seconds", "finished_at", "tokens_per_second")
        return {key: without_clock(item) for key, item in value.items() if not any(word in key for word in clocked)}
    return [without_clock(item) for item in value] if isinstance(value, list) else value


def made(folder: Path) -> dict[str, object]:
    """Every JSON file of the experiment."""
    whole = folder / "home" / "experiments" / "x"
    return {path.name: without_clock(json.loads(path.read_text())) for path in sorted(whole.rglob("*.json"))}


def stages_of(folder: Path, run: str) -> list[tuple[str, int]]:
    """What is finished of a run, in order."""
    with duckdb.connect(str(folder / "home" / "store.duckdb"), read_only=True) as con:
        query = "SELECT stage, iteration FROM stages WHERE run = ? ORDER BY finished_at"
        return [(stage, iteration) for stage, iteration in con.execute(query, [run]).fetchall()]


def before(stage: str, iteration: int) -> tuple[str, int]:
    """The stage that comes before it in an iteration."""
    return STAGES[STAGES.index(stage) - 1], iteration


def test_two_kills_leave_no_trace(tmp_path: Path) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    for folder in (calm, killed):
        folder.mkdir()
    done = subprocess.run([sys.executable, "-m", "flows.cli", *command(calm)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for run, stage, iteration in KILLS:
        arguments = [stage, str(iteration), "0", "0.03", "--", *command(killed)]
        dead = subprocess.run([sys.executable, str(DRIVER), *arguments], capture_output=True, text=True)
        assert dead.returncode == -9, dead.stderr
        assert stages_of(killed, run)[-1] == before(stage, iteration), f"killed somewhere else: {dead.stdout}"
    again = subprocess.run([sys.executable, "-m", "flows.cli", *command(killed)], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "run x-dense-s0: its result is there already" in again.stdout

    names = ["dense-s0.json", "dense-s1.json", "outcome-s0.json", "outcome-s1.json", "summary.json"]
    assert sorted(made(calm)) == names
    assert made(killed) == made(calm)

    tracker = Tracker(killed / "home", experiment="x")
    shown = {run.info.run_name: run for run in tracker.client.search_runs([tracker.experiment])}
    assert len(shown) == 6
    assert all(run.info.status == "FINISHED" for run in shown.values())
    tags = shown["x-outcome-s1"].data.tags
    assert (tags["experiment"], tags["variant"], tags["seed"]) == ("x", "outcome", "1")
    assert "test/sampled/exact_match" in shown["x-outcome-s1"].data.metrics
