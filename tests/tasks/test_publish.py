"""publish: what is shown in MLflow, by a tracker that only remembers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_r1.config import parse
from agent_r1.questions.records import Json, Question
from agent_r1.trajectory import Trajectory
from storage import checkpoints, metrics, questions, runs, trajectories
from storage.metrics import MetricRow
from storage.runs import RunRow
from tasks import publish
from tasks.context import RunContext

NOW = datetime(2026, 11, 30, tzinfo=UTC)


class Shown:
    """A tracker of one MLflow run, named `run_id`."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.datasets: list[str] = []
        self.tags: Mapping[str, str] = {}
        self.metrics: list[str] = []
        self.tables: list[str] = []

    def ensure_run(self, _run: str, _identity: str, _params: object, tags: Mapping[str, str], *_: object) -> str:
        self.tags = tags
        return self.run_id

    def set_status(self, *_: object) -> None: ...

    def log_metrics(self, _run_id: str, rows: Iterable[MetricRow]) -> int:
        self.metrics += [row.key for row in rows]
        return len(self.metrics)

    def log_dataset(self, _run_id: str, name: str, *_: object) -> None:
        self.datasets.append(name)

    def log_table(self, _run_id: str, name: str, _rows: Iterable[Mapping[str, Json]]) -> None:
        self.tables.append(name)


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    """A run with a trajectory in iterations 0 and 1, and checkpoints 0 and 1."""
    context = RunContext(tmp_path, "r", parse({"store": {"lock_wait": 2.0}}, "test"))
    row = RunRow(
        run="r",
        config={},
        identity="i",
        seed=0,
        code_version="1",
        library_versions={},
        status="running",
        created_at=NOW,
    )
    with context.store.write() as con:
        runs.insert(con, row)
        questions.save(con, "validation", [Question("q", "Who?", ("Ann",))])
        for iteration in (0, 1):
            one = Trajectory("r", iteration, "sampled", "q", 0, iteration, "answered", "Ann", 1.0, 1.0, turns=())
            trajectories.save(con, "r", iteration, "sampled", 0, [one])
            metrics.save(con, "r", iteration, "evaluate", {"eval/sampled/exact_match": 1.0}, NOW)
    for iteration in (0, 1):
        checkpoints.publish(context.checkpoint(iteration), lambda folder: (folder / "w").touch())
    return context


def show(context: RunContext, iteration: int, run_id: str, monkeypatch: pytest.MonkeyPatch, evaluated: bool) -> Shown:
    shown = Shown(run_id)
    monkeypatch.setattr(publish, "_tracker", lambda _context: shown)
    prepared = {"questions": {"validation": 1}, "files": {"runs/r/data/validation/questions.txt": "0"}}
    fresh = RunContext(context.home, context.run, context.config)
    publish.publish.fn(fresh, iteration, prepared, {"checkpoint": iteration}, {"questions": 1} if evaluated else None)
    return shown


def test_a_new_mlflow_run_is_shown_all_iterations_a_known_one_the_new(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = show(context, 0, "one", monkeypatch, evaluated=True)
    assert (first.datasets, first.tables) == (["validation"], ["trajectories/00000"])
    with context.store.write() as con:
        con.execute("DELETE FROM stages")
    again = show(context, 1, "one", monkeypatch, evaluated=True)
    assert (again.datasets, again.tables) == ([], ["trajectories/00001"])
    with context.store.write() as con:
        con.execute("DELETE FROM stages")
    other = show(context, 1, "two", monkeypatch, evaluated=True)
    assert (other.datasets, other.tables) == (["validation"], ["trajectories/00000", "trajectories/00001"])


def test_an_evaluation_that_only_the_last_iteration_had_is_no_input(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(context, 1, "one", monkeypatch, evaluated=True)
    assert show(context, 1, "one", monkeypatch, evaluated=False).tables == []


def test_tags_of_the_configuration_are_shown_beside_ours(context: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged = parse({"store": {"lock_wait": 2.0}, "tracking": {"tags": {"variant": "dense"}}}, "test")
    shown = show(RunContext(context.home, context.run, tagged), 0, "one", monkeypatch, evaluated=True)
    assert shown.tags["variant"] == "dense"
    assert "agent_r1.code_version" in shown.tags


def test_a_test_after_the_last_publish_is_shown_at_the_end(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(context, 1, "one", monkeypatch, evaluated=True)
    with context.store.write() as con:
        metrics.save(con, "r", 1, "test", {"test/sampled/exact_match": 1.0}, NOW)
    last = Shown("one")
    monkeypatch.setattr(publish, "_tracker", lambda _context: last)
    publish.close(context, "finished")
    assert last.metrics == ["test/sampled/exact_match"]
