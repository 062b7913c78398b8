"""What MLflow shows: one run a run, one value a metric and step, quiet, and the same when done twice."""

from __future__ import annotations

import json
import math
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
from mlflow.tracking import MlflowClient

from agent_r1.errors import StoreError
from agent_r1.questions.records import Question
from agent_r1.trajectory import CallRecord, Trajectory, Turn
from storage.addresses import check_reachable
from storage.metrics import MetricRow
from storage.tracking import Best, Traced, Tracker

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, met by MLflow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for the file: making MLflow's tables takes two seconds."""
    return tmp_path_factory.mktemp("home") / "agent-r1-home"


@pytest.fixture
def tracker(home: Path) -> Tracker:
    return Tracker(home)


def fresh_run(tracker: Tracker) -> str:
    return tracker.ensure_run(f"run-{uuid4().hex}", "identity", {}, {})


def history(tracker: Tracker, run_id: str, key: str) -> list[tuple[int, float, int]]:
    points = tracker.client.get_metric_history(run_id, key)
    return [(point.step, point.value, point.timestamp) for point in points]


def rows(values: Sequence[float], at: datetime = NOON) -> list[MetricRow]:
    return [MetricRow(step, "eval/greedy/f1", value, at, "evaluate") for step, value in enumerate(values)]


def test_everything_lies_in_home(home: Path, tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    tracker.log_text(run_id, "note.txt", "x")
    assert sorted(path.name for path in home.iterdir()) == ["mlartifacts", "mlflow.db"]
    experiment = tracker.client.get_experiment_by_name("agent-r1")
    assert experiment is not None
    assert tracker.client.get_run(run_id).info.experiment_id == experiment.experiment_id


def test_a_run_is_found_by_its_id_and_by_its_tags(tracker: Tracker) -> None:
    first = tracker.ensure_run("found", "a", {"seed": 1}, {"note": "x"})
    assert tracker.ensure_run("found", "a", {"seed": 1}, {}, known_id=first) == first
    assert tracker.ensure_run("found", "a", {"seed": 1}, {}) == first
    assert tracker.ensure_run("found", "a", {}, {}, known_id="0" * 32) == first
    run = tracker.client.get_run(first)
    assert run.info.run_name == "found"
    assert run.data.tags["note"] == "x"


def test_another_identity_or_name_or_home_is_another_run(home: Path, tracker: Tracker, tmp_path: Path) -> None:
    first = tracker.ensure_run("a run", "a", {}, {})
    neighbour = Tracker(tmp_path, f"sqlite:///{home}/mlflow.db")
    others = [
        tracker.ensure_run("a run", "b", {}, {}),
        tracker.ensure_run("another", "a", {}, {}),
        neighbour.ensure_run("a run", "a", {}, {}),
    ]
    assert len({first, *others}) == 4


def test_parameters_are_plain_text_and_short_enough(tracker: Tracker) -> None:
    params = {
        "model.path": "tiny",
        "ppo.dual_clip": None,
        "ppo.epochs": 2,
        "whiten": True,
        "tools": ["ä"],
        "x": "y" * 9000,
    }
    many = {f"key.{i}": i for i in range(250)}
    run_id = tracker.ensure_run("params", "a", {**params, **many}, {})
    stored = tracker.client.get_run(run_id).data.params
    assert {key: stored[key] for key in params} == {
        "model.path": "tiny",
        "ppo.dual_clip": "null",
        "ppo.epochs": "2",
        "whiten": "true",
        "tools": '["ä"]',
        "x": "y" * 6000,
    }
    assert len(stored) == 256


def test_a_parameter_that_changed_on_resume_is_kept_as_a_tag(tracker: Tracker) -> None:
    run_id = tracker.ensure_run("changed", "a", {"iterations": 3, "seed": 0}, {})
    assert tracker.ensure_run("changed", "a", {"iterations": 5, "seed": 0, "new": 1}, {}) == run_id
    data = tracker.client.get_run(run_id).data
    assert data.params == {"iterations": "3", "seed": "0", "new": "1"}
    assert {key: data.tags[key] for key in data.tags if "changed" in key} == {"agent_r1.changed.iterations": "5"}


def test_metrics_have_the_iteration_as_step_and_the_rows_own_time(tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    assert tracker.log_metrics(run_id, rows([0.25, 0.5])) == 2
    milliseconds = 1_796_040_000_000  # 2026-11-30 12:00 UTC
    assert history(tracker, run_id, "eval/greedy/f1") == [(0, 0.25, milliseconds), (1, 0.5, milliseconds)]


def test_logging_again_adds_nothing_whenever_it_was_measured(tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    tracker.log_metrics(run_id, rows([0.25, math.nan]))
    before = history(tracker, run_id, "eval/greedy/f1")
    assert tracker.log_metrics(run_id, rows([0.25, math.nan])) == 0
    assert tracker.log_metrics(run_id, rows([0.25, math.nan], LATER)) == 0
    assert tracker.log_metrics(run_id, rows([0.25, math.nan, 0.75], LATER)) == 1
    assert len(history(tracker, run_id, "eval/greedy/f1")) == len(before) + 1 == 3


def test_a_point_that_differs_is_added_and_is_the_latest(tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    tracker.log_metrics(run_id, rows([0.25, 0.75]))
    assert tracker.log_metrics(run_id, rows([0.25, 0.5], LATER)) == 1
    assert tracker.log_metrics(run_id, rows([0.25, 0.5], LATER)) == 0
    assert tracker.client.get_run(run_id).data.metrics == {"eval/greedy/f1": 0.5}


def test_iterations_done_again_after_discard_have_one_value_a_step(tracker: Tracker) -> None:
    old = tracker.ensure_run("again", "a", {"seed": 0}, {})
    tracker.log_metrics(old, rows([0.25, 0.75]))
    for _ in range(2):
        tracker.discard(old)
    new = tracker.ensure_run("again", "a", {"seed": 0}, {}, known_id=old)
    assert new != old
    assert tracker.ensure_run("again", "a", {"seed": 0}, {}, known_id=old) == new
    tracker.log_metrics(new, rows([0.25, 0.5], LATER))
    assert [point[:2] for point in history(tracker, new, "eval/greedy/f1")] == [(0, 0.25), (1, 0.5)]


def test_more_metrics_than_a_batch_holds_are_all_logged(tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    assert tracker.log_metrics(run_id, [MetricRow(i, f"k/{i % 2}", i, NOON, "s") for i in range(1001)]) == 1001
    assert len(history(tracker, run_id, "k/0")) == 501


def test_a_table_is_shown_and_overwritten(tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    tracker.log_table(run_id, "trajectories/00001", [{"old": 1}])
    tracker.log_table(
        run_id, "trajectories/00001", [{"answer": "東京", "f1": math.nan}, {"answer": None, "calls": [1]}]
    )
    text = Path(tracker.client.download_artifacts(run_id, "trajectories/00001.json")).read_text(encoding="utf-8")
    assert json.loads(text) == {"columns": ["answer", "f1", "calls"], "data": [["東京", None, None], [None, None, [1]]]}
    tag = tracker.client.get_run(run_id).data.tags["mlflow.loggedArtifacts"]
    assert json.loads(tag) == [{"path": "trajectories/00001.json", "type": "table"}]


def test_a_dataset_is_named_once(tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    for _ in range(2):
        tracker.log_dataset(run_id, "world", "f" * 64, "built-in world", "train", {"questions": 4000})
    inputs = tracker.client.get_run(run_id).inputs
    assert inputs is not None
    assert [(each.dataset.name, each.dataset.digest, each.tags[0].value) for each in inputs.dataset_inputs] == [
        ("world", "f" * 36, "train")
    ]


def test_a_run_ends_and_goes_on(tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    for status in ("FAILED", "RUNNING", "KILLED", "FINISHED"):
        tracker.set_status(run_id, status)
        info = tracker.client.get_run(run_id).info
        assert info.status == status
    assert info.end_time is not None


def test_a_locked_file_is_waited_for(home: Path, tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    holder = sqlite3.connect(home / "mlflow.db", check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.7, holder.rollback)
    release.start()
    started = time.monotonic()
    tracker.log_metrics(run_id, rows([1.0]))
    assert time.monotonic() - started > 0.5
    release.join()
    holder.close()
    assert len(history(tracker, run_id, "eval/greedy/f1")) == 1


def test_a_call_that_meets_a_lock_is_made_again(tracker: Tracker) -> None:
    calls = []

    def locked_at_first() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("(sqlite3.OperationalError) database is locked")
        return "done"

    assert tracker._ask(locked_at_first) == "done"


def test_an_unknown_run_and_a_file_that_is_no_database_are_one_line(tracker: Tracker, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("hello" * 1000)
    for wrong in (lambda: tracker.set_status("nope", "FAILED"), lambda: Tracker(tmp_path)):
        with pytest.raises(StoreError, match="MLflow at sqlite") as caught:
            wrong()
        assert "\n" not in str(caught.value)
        assert ("delete mlflow.db" in str(caught.value)) == ("not a database" in str(caught.value))


@pytest.mark.parametrize("name", ["plain", "with a space, 100# ä"])
def test_a_home_opened_again_keeps_its_experiment_and_a_moved_one_gets_its_own(tmp_path: Path, name: str) -> None:
    home, moved = tmp_path / name / "home", tmp_path / name / "moved"
    before = Tracker(home)
    old = before.ensure_run("a", "i", {}, {})
    before.log_text(old, "note.txt", "x")
    assert Tracker(home).experiment == before.experiment
    shutil.copytree(home, moved)
    after = Tracker(moved)
    new = after.ensure_run("a", "i", {}, {}, known_id=old)
    assert new != old
    assert Tracker(moved).ensure_run("a", "i", {}, {}, known_id=new) == new
    after.log_text(new, "note.txt", "y")
    assert [path.read_text() for path in home.rglob("note.txt")] == ["x"]
    assert sorted(path.read_text() for path in moved.rglob("note.txt")) == ["x", "y"]
    names = sorted(each.name for each in after.client.search_experiments())
    assert names[1:] == ["agent-r1", f"agent-r1 {before.experiment} (moved from {home})"]


def test_a_run_is_shown_in_the_experiment_of_that_name_and_again_in_another(home: Path) -> None:
    mine, other = Tracker(home, experiment="mine"), Tracker(home, experiment="other's")
    first = mine.ensure_run("moves", "i", {}, {"colour": "blue"})
    assert mine.ensure_run("moves", "i", {}, {}, known_id=first) == first
    second = other.ensure_run("moves", "i", {}, {}, known_id=first)
    assert second != first
    assert mine.client.get_run(first).data.tags["colour"] == "blue"
    assert mine.client.get_run(first).info.lifecycle_stage == "active"


def test_a_server_that_does_not_answer_is_known_in_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"does not answer: .*refused") as caught:
        check_reachable(address)
    assert time.monotonic() - started < 5
    assert "\n" not in str(caught.value)
    check_reachable(f"sqlite:///{tmp_path}/mlflow.db")
    with pytest.raises(StoreError, match=r"^MLflow at http://127.0.0.1:\d+ .*refused") as caught:
        check_reachable(address.replace("://", "://me:s@cret@"))
    assert "cret" not in str(caught.value), "a password is not shown"


def test_a_server_that_answers_with_an_error_is_there() -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(403)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        check_reachable(f"http://127.0.0.1:{server.server_port}")
        thread.join()


@pytest.mark.slow
def test_processes_that_start_at_once_are_quiet_and_share_the_experiment(tmp_path: Path) -> None:
    code = f"""
import sys, warnings
from datetime import datetime, UTC
from pathlib import Path
from storage.metrics import MetricRow
from storage.tracking import Tracker
tracker = Tracker(Path({str(tmp_path)!r}))
run_id = tracker.ensure_run(sys.argv[1], "a", {{"seed": 0}}, {{}})
tracker.log_metrics(run_id, [MetricRow(i, "k/v", float(i), datetime.now(UTC), "s") for i in range(50)])
tracker.log_table(run_id, "table", [{{"a": 1}}])
tracker.set_status(run_id, "FINISHED")
"""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(i)], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for i in range(2)
    ]
    assert [child.communicate()[0] for child in children] == ["", ""]
    assert [child.returncode for child in children] == [0, 0]
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiments = [each.experiment_id for each in client.search_experiments() if each.name == "agent-r1"]
    assert len(experiments) == 1
    assert sorted(run.info.run_name or "" for run in client.search_runs(experiments)) == ["0", "1"]


def trajectory(question: str = "q") -> Trajectory:
    """A call that fails, then a right answer; three tokens and one."""
    call = CallRecord("lookup", {"entity": "x"}, ok=False, text="no such entity")
    turns = (
        Turn(0, 0, (1, 2), (3, 4, 5), (-0.5, -0.25, 0.0), "call", (call,), "no such entity"),
        Turn(1, 0, (6,), (7,), (-1.0,), "<answer>Ann</answer>"),
    )
    return Trajectory("a", 2, "train", question, 0, 1, "answered", "Ann", 1.0, 1.0, turns)


def test_a_trajectory_is_a_trace_of_chat_and_tool_spans_in_order_and_only_once(tracker: Tracker) -> None:
    run_id = fresh_run(tracker)
    rewards = {0: {"evidence": 0.25}, 1: {"outcome": 1.0}}
    for _ in range(2):
        tracker.log_traces(run_id, [Traced(trajectory(), Question("q", "Who?", ("Ann",)), NOON, rewards)])
    (trace,) = tracker.client.search_traces(locations=[tracker.experiment], run_id=run_id)
    assert {key: trace.info.tags[key] for key in ("run", "iteration", "purpose", "question", "ending")} == {
        "run": "a", "iteration": "2", "purpose": "train", "question": "q", "ending": "answered"
    }  # fmt: skip
    root, chat, tool, last = sorted(trace.data.spans, key=lambda span: (span.start_time_ns, span.parent_id or ""))
    assert [span.span_type for span in (root, chat, tool, last)] == ["AGENT", "CHAT_MODEL", "TOOL", "CHAT_MODEL"]
    assert {span.parent_id for span in (chat, tool, last)} == {root.span_id}
    assert (root.inputs, root.outputs["answer"], root.get_attribute("reward")) == ({"question": "Who?"}, "Ann", 1.25)
    assert chat.inputs == {"messages": [{"role": "user", "content": "Who?"}]}
    assert last.inputs == {"messages": [{"role": "tool", "content": "no such entity"}]}
    assert (chat.get_attribute("logprob_mean"), chat.get_attribute("rewards")) == (-0.25, {"evidence": 0.25})
    assert (tool.name, tool.inputs, tool.outputs) == ("lookup", {"entity": "x"}, {"result": "no such entity"})
    assert tool.status.status_code == "ERROR"
    milliseconds = [(span.start_time_ns - root.start_time_ns) // 1_000_000 for span in (chat, tool, last)]
    assert milliseconds == [0, 3, 4]
    assert trace.info.execution_duration == 5


def test_the_registry_has_one_version_of_a_run_and_it_is_there(tracker: Tracker, tmp_path: Path) -> None:
    run_id = fresh_run(tracker)

    def registered() -> list[tuple[str, str, list[str]]]:
        found = tracker.client.search_model_versions("name = 'agent-r1.reg'")
        versions = [tracker.client.get_model_version(each.name, each.version) for each in found]
        return [(each.source or "", each.tags["iteration"], each.aliases) for each in versions]

    folders = [tmp_path / f"0000{i}" / "policy" for i in (1, 2)]
    for i, folder in enumerate(folders):
        for _ in range(2):
            tracker.register("reg", run_id, Best(folder, f"weights {i}", {"iteration": str(i)}))
        assert registered() == [(folder.as_uri(), str(i), ["best"])]
    tracker.register("reg", run_id, Best(folders[1], "others", {"iteration": "1"}))
    assert registered() == [(folders[1].as_uri(), "1", ["best"])]
    tracker.discard(run_id)
    assert registered() == []


def test_a_file_that_was_deleted_while_it_was_open_is_made_anew(tmp_path: Path) -> None:
    run_id = Tracker(tmp_path).ensure_run("a", "i", {}, {})
    (tmp_path / "mlflow.db").unlink()
    again = Tracker(tmp_path)
    assert (tmp_path / "mlflow.db").is_file()
    assert again.ensure_run("a", "i", {}, {}, known_id=run_id) != run_id


def test_what_a_kill_left_of_mlflow_s_tables_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_path: Path, _target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as at_the_rename:
        at_the_rename.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            Tracker(tmp_path)
    assert not (tmp_path / "mlflow.db").exists()
    assert len([*tmp_path.glob(".tmp-*-mlflow.db")]) == 1
    assert Tracker(tmp_path).ensure_run("a", "i", {}, {})
    assert [path.name for path in tmp_path.glob(".tmp-*")] == []
