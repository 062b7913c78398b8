"""publish: what is shown in MLflow, by a tracker that only remembers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from agent_r1.config import parse
from agent_r1.errors import TrackingError
from agent_r1.questions.records import Json, Question
from agent_r1.trajectory import Trajectory
from storage import checkpoints, metrics, questions, runs, trajectories
from storage.metrics import MetricRow
from storage.runs import RunRow
from storage.tracking import Tracker
from tasks import publish
from tasks.context import RunContext

T = TypeVar("T")
NOW = datetime(2026, 11, 30, tzinfo=UTC)


class Shown:
    """A tracker of one MLflow run, named `run_id`."""

    def __init__(self, run_id: str, before: int = -1) -> None:
        self.run_id = run_id
        self.before = before
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

    def shown(self, _run_id: str) -> int:
        return self.before

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None


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


def show(
    context: RunContext,
    iteration: int,
    run_id: str,
    monkeypatch: pytest.MonkeyPatch,
    evaluated: bool,
    before: int = -1,
) -> Shown:
    shown = Shown(run_id, before)
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
    again = show(context, 1, "one", monkeypatch, evaluated=True, before=0)
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
    last = Shown("one", before=1)
    monkeypatch.setattr(publish, "_tracker", lambda _context: last)
    publish.close(RunContext(context.home, context.run, context.config), "finished")
    assert {"test/sampled/exact_match", "time/publish_seconds"} <= set(last.metrics)
    assert last.tables == []


class Failing(Tracker):
    """MLflow itself, whose call number `at` fails before or after it is done: what a kill leaves."""

    calls, at, after = 0, 0, False

    def _ask(self, call: Callable[[], T]) -> T:
        Failing.calls += 1
        if Failing.calls != Failing.at:
            return super()._ask(call)
        if Failing.after:
            super()._ask(call)
        raise TrackingError("killed")


def everything(tracker: Tracker) -> dict[str, object]:
    """What MLflow shows of the one run."""
    (run,) = tracker.client.search_runs([tracker.experiment])
    run_id = run.info.run_id
    points = {
        key: [(point.step, point.value) for point in tracker.client.get_metric_history(run_id, key)]
        for key in run.data.metrics
        if not key.startswith("time/")
    }
    traces = tracker.client.search_traces(locations=[tracker.experiment])
    found = tracker.client.search_model_versions()
    versions = [tracker.client.get_model_version(each.name, each.version) for each in found]
    return {
        "points": points,
        "traces": sorted((trace.info.tags["iteration"], len(trace.data.spans)) for trace in traces),
        "versions": [(each.tags["iteration"], each.aliases) for each in versions],
        "tables": run.data.tags["mlflow.loggedArtifacts"],
        "shown": run.data.tags["agent_r1.shown"],
    }


@pytest.mark.slow
def test_whatever_call_to_mlflow_is_the_last_the_next_publish_makes_it_whole_once(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for iteration in (0, 1):
        checkpoints.remove(context.checkpoint(iteration))
        checkpoints.publish(context.checkpoint(iteration), weights)
    monkeypatch.setattr(publish, "Tracker", Failing)
    whole: dict[str, object] | None = None
    at, ended = 0, False
    while not ended:
        for after in (False, True):
            for path in context.home.glob("mlflow.db*"):
                path.unlink()
            with context.store.write() as con:
                con.execute("DELETE FROM stages")
                runs.set_mlflow_run_id(con, "r", None)
            Failing.calls, Failing.at, Failing.after = 0, at, after
            fresh = RunContext(context.home, context.run, context.config)
            publish.publish.fn(fresh, 1, {"questions": {}, "files": {}}, {"checkpoint": 1}, None)
            ended = Failing.calls < at
            Failing.at = 0
            publish.close(fresh, "finished")
            shown = everything(Failing(context.home))
            whole = whole or shown
            assert shown == whole, f"after call {at}"
        at += 1
    assert at > 15
    assert whole is not None
    assert whole == {
        "points": {"eval/sampled/exact_match": [(0, 1.0), (1, 1.0)]},
        "traces": [("0", 1), ("1", 1)],
        "versions": [("0", ["best"])],
        "tables": whole["tables"],
        "shown": "1",
    }


def weights(folder: Path) -> None:
    """A checkpoint of one file."""
    (folder / "policy").mkdir()
    (folder / "policy" / "model.safetensors").touch()


def test_an_mlflow_that_fails_stops_no_stage_and_gets_everything_later(
    context: RunContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_context: RunContext) -> Tracker:
        raise TrackingError("MLflow is down")

    monkeypatch.setattr(logging.getLogger("agent_r1"), "propagate", True)
    monkeypatch.setattr(publish, "_tracker", broken)
    fresh = RunContext(context.home, context.run, context.config)
    publish.publish.fn(fresh, 1, {"questions": {}, "files": {}}, {"checkpoint": 1}, None)
    assert fresh.ledger.find(1, "publish") is not None
    assert "catches up: MLflow is down" in caplog.text
    later = Shown("one")
    monkeypatch.setattr(publish, "_tracker", lambda _context: later)
    publish.close(fresh, "finished")
    assert later.tables == ["trajectories/00000", "trajectories/00001"]
    with context.store.read() as con:
        row = runs.find(con, "r")
    assert row is not None
    assert row.mlflow_run_id == "one"
