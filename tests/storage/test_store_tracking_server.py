"""The same view at an MLflow server, which is killed and comes back."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_r1.errors import TrackingError
from agent_r1.questions.records import Question
from agent_r1.trajectory import Trajectory, Turn
from storage.metrics import MetricRow
from storage.tracking import Best, Traced, Tracker

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """MLflow's, over files of the folder; killed at the end."""
    where = ["--backend-store-uri", f"sqlite:///{folder}/m.db", "--artifacts-destination", str(folder / "artifacts")]
    child = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port), "--serve-artifacts", *where],
        cwd=folder,
        env={**os.environ, **QUIET},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        yield
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.mark.slow
def test_a_server_that_was_killed_and_came_back_has_one_value_a_metric_and_step(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    turns = (Turn(0, 0, (1,), (2,), (-0.5,), "<answer>Ann</answer>"),)
    trajectory = Trajectory("a", 1, "train", "q", 0, 1, "answered", "Ann", 1.0, 1.0, turns)
    shown = [Traced(trajectory, Question("q", "Who?", ("Ann",)), NOON)]
    rows = [MetricRow(step, "reward/mean", step / 4, NOON, "annotate") for step in range(4)]
    home, url = tmp_path / "home", f"http://127.0.0.1:{port}"
    with server(tmp_path, port):
        tracker = Tracker(home, url)
        run_id = tracker.ensure_run("a", "i", {"seed": 0}, {})
        assert tracker.log_metrics(run_id, rows[:2]) == 2
        tracker.log_traces(run_id, shown)
    with pytest.raises(TrackingError, match="does not answer"):
        Tracker(home, url)
    with server(tmp_path, port):
        tracker = Tracker(home, url)
        assert tracker.ensure_run("a", "i", {"seed": 0}, {}, run_id) == run_id
        assert tracker.log_metrics(run_id, rows) == 2
        tracker.log_traces(run_id, shown)
        tracker.log_table(run_id, "trajectories/00001", [{"answer": "Ann"}])
        tracker.register("a", run_id, Best(tmp_path / "checkpoints" / "00001" / "policy", "0" * 64, {"run": "a"}))
        points = tracker.client.get_metric_history(run_id, "reward/mean")
        assert [(point.step, point.value) for point in points] == [(0, 0.0), (1, 0.25), (2, 0.5), (3, 0.75)]
        (trace,) = tracker.client.search_traces(locations=[tracker.experiment], run_id=run_id)
        assert sorted(span.name for span in trace.data.spans) == ["trajectory", "turn 0"]
        assert {each.path for each in tracker.client.list_artifacts(run_id)} == {"best", "trajectories"}
        (model,) = tracker.client.search_registered_models()
        assert (model.name[:11], model.aliases) == ("agent-r1.a.", {"best": "1"})
