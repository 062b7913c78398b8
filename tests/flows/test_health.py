"""What `doctor` finds in a home that is damaged, locked, left behind or moved to an odd place; it changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fakes import config
from test_doctor import add_run, held

from flows import health, installation, processes
from flows.cli import main
from flows.locks import run_lock
from flows.processes import Process
from flows.start import begin
from storage import checkpoints, stages
from storage.database import Store
from storage.stages import StageRow

NOW = datetime(2026, 12, 1, tzinfo=UTC)
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable that this machine may have, no waiting, and no torch."""
    for name in installation.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(installation, "PATIENCE", 0.0)
    monkeypatch.setattr("agent_r1.model.machine", lambda: ("cpu", 1))


def warnings(capsys: Captured, home: Path, *options: str) -> Sequence[str]:
    return asked(capsys, home, *options)["warnings"]


def asked(capsys: Captured, home: Path, *options: str) -> Any:
    assert main(["doctor", "--home", str(home), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A home with a run that has checkpoint 0."""
    context = begin(tmp_path, "a", config()).context
    made = checkpoints.publish(context.checkpoint(0), lambda draft: _write(draft / "trainer.pt"))
    with context.store.write() as con:
        con.execute("UPDATE runs SET status = 'finished'")
        stages.record(
            con,
            StageRow(
                run="a", iteration=0, stage="warm_start", input_hash="", started_at=NOW, finished_at=NOW, pid=1,
                receipt={"files": {context.name(context.checkpoint(0)): made.digest}}, code_version="1",
                library_versions={},
            ),
        )  # fmt: skip
    return tmp_path


def _write(path: Path) -> None:
    path.write_text("weights")


def test_a_whole_home_raises_nothing(trained: Path, capsys: Captured) -> None:
    assert warnings(capsys, trained, "--deep") == []


def test_a_checkpoint_that_is_gone_is_named_with_what_makes_it_again(trained: Path, capsys: Captured) -> None:
    (trained / "runs/a/checkpoints/00000/trainer.pt").unlink()
    (warning,) = warnings(capsys, trained)
    assert warning.startswith("run a: files of warm_start 0 are missing or damaged (agent-r1 resume a")


def test_a_flipped_byte_is_found_by_a_deep_look_only(trained: Path, capsys: Captured) -> None:
    (trained / "runs/a/checkpoints/00000/trainer.pt").write_text("Weights")
    assert warnings(capsys, trained) == []
    (warning,) = warnings(capsys, trained, "--deep")
    assert "trainer.pt: damaged" in warning


@pytest.mark.parametrize("size", [0, 100, 5000, 20000])
def test_a_store_that_is_cut_off_is_a_warning(trained: Path, size: int, capsys: Captured) -> None:
    store = trained / "store.duckdb"
    store.write_bytes(store.read_bytes()[:size])
    assert "store.duckdb" in warnings(capsys, trained)[0]


def test_rows_of_runs_that_are_gone_are_counted(trained: Path, capsys: Captured) -> None:
    with Store(trained / "store.duckdb").write() as con:
        con.execute("INSERT INTO metrics VALUES ('gone', 0, 'evaluate', 'x', 1.0, '2026-12-01')")
    assert warnings(capsys, trained) == ["rows of runs that are gone: 1 in metrics (agent-r1 gc removes them)"]


def test_who_holds_the_store_is_named_with_its_command(tmp_path: Path, capsys: Captured) -> None:
    add_run(tmp_path, "a", {})
    with held(tmp_path / "store.duckdb") as pid:
        found = asked(capsys, tmp_path)
    assert f"process {pid} (" in found["warnings"][0]
    assert "import duckdb" in found["warnings"][0]
    assert any(f"process {pid} " in each for each in found["home"]["processes"])


def test_who_works_on_a_run_is_named(trained: Path, capsys: Captured) -> None:
    with run_lock(trained / "runs" / "a"):
        found = asked(capsys, trained)
    assert found["home"]["in_use"]["a"].startswith(f"process {os.getpid()} (")


def test_servers_whose_run_is_gone_are_left_over() -> None:
    run = Process(10, "python -m flows.cli train", 5.0, 1)
    living, orphan = Process(11, "python server_child.py 3", 5.0, 10), Process(12, "python server_child.py 3", 5.0, 1)
    assert processes.left_over([run, living, orphan]) == [orphan]


def test_a_process_that_names_the_home_is_found(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", f"{tmp_path}/x"], stdin=subprocess.PIPE) as child:
        assert child.pid in [each.pid for each in processes.around(tmp_path)]
        child.communicate(b"\n")


def test_drafts_and_files_from_the_future_are_named(trained: Path, capsys: Captured) -> None:
    (trained / "runs/a/checkpoints/.tmp-00001").mkdir()
    later = trained / "runs/a/config.yaml"
    os.utime(later, (time.time() + 9999, time.time() + 9999))
    assert warnings(capsys, trained) == [
        "drafts left by what was killed: runs/a/checkpoints/.tmp-00001 (agent-r1 gc removes them)",
        "files from the future: runs/a/config.yaml: set the clock of this machine",
    ]


@pytest.mark.parametrize("path", ["mlflow.db", "prefect/prefect.db"])
def test_a_damaged_view_may_be_deleted(trained: Path, path: str, capsys: Captured) -> None:
    (trained / path).parent.mkdir(exist_ok=True)
    (trained / path).write_text("no database " * 999)
    (warning,) = warnings(capsys, trained)
    assert path in warning
    assert "delete it" in warning


def test_a_home_on_a_network_file_system_is_a_warning(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(health, "_kind", lambda _: "nfs4")
    (warning,) = warnings(capsys, trained)
    assert "network file system (nfs4)" in warning


def test_little_memory_and_few_files_are_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(installation, "LOW_MEMORY", 1e15)
    monkeypatch.setattr(installation, "FEW_FILES", 10**9)
    monkeypatch.setattr(installation, "LOW_SHARED", 1e15)
    found = warnings(capsys, tmp_path)
    assert [warning.partition(":")[0] for warning in found] == ["memory", found[1].partition(":")[0], "/dev/shm"]
    assert "ulimit -n" in found[1]
