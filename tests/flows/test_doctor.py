"""`doctor`: alarms of a run as text and JSON, and what is odd with an installation and a home."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fakes import Fakes

from flows import health, installation
from flows.cli import main
from flows.home import TRAJECTORIES_OF
from storage import metrics, runs
from storage.database import SCHEMA_VERSION, Store
from storage.runs import RunRow

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SCORE = "eval/sampled/exact_match"
Install = Callable[[str], Fakes]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable that this machine may have, and no waiting for locks."""
    for name in installation.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(installation, "PATIENCE", 0.0)


def add_run(
    home: Path, run: str, values: Mapping[str, Sequence[float]], status: str = "finished", copied_from: str = ""
) -> None:
    """A run with metrics from iteration 0 on."""
    row = RunRow(
        run=run, config={}, identity="i", seed=0, code_version="1", library_versions={}, status=status, created_at=NOW,
        notes=[{"what": TRAJECTORIES_OF, "after": copied_from}] if copied_from else [],
    )  # fmt: skip
    with Store(home / "store.duckdb").write() as con:
        runs.insert(con, row)
        for iteration in range(max(map(len, values.values()), default=0)):
            here = {key: series[iteration] for key, series in values.items() if iteration < len(series)}
            metrics.save(con, run, iteration, "evaluate", here, NOW)


def asked(capsys: Captured, *arguments: str) -> Any:
    assert main(["doctor", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# A run


def test_a_healthy_run_says_so(tmp_path: Path, capsys: Captured) -> None:
    add_run(tmp_path, "a", {SCORE: [0.1, 0.2, 0.3]})
    assert main(["doctor", "a", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "a: finished, iterations 2, evaluations 3: nothing wrong was seen\n"
    found = asked(capsys, "a", "--home", str(tmp_path))
    assert found == {"run": "a", "status": "finished", "iterations": 2, "evaluations": 3, "alarms": []}


def test_an_alarm_says_what_was_seen_and_what_to_try(tmp_path: Path, capsys: Captured) -> None:
    """A finding is no failure: the exit code is 0."""
    add_run(tmp_path, "a", {SCORE: [0.1, 0.8, 0.2]})
    (alarm,) = asked(capsys, "a", "--home", str(tmp_path))["alarms"]
    assert (alarm["alarm"], alarm["seen"]) == ("collapse", f"{SCORE} is 0.2 at iteration 2 and was 0.8 at iteration 1")
    assert main(["doctor", "a", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"alarm collapse: {alarm['seen']}"
    assert lines[2] == f"  try: {alarm['try']}"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {SCORE: [0.5]},
        {SCORE: [float("nan")] * 4, "ppo/kl": [float("nan")] * 4},
        {"ppo/entropy": [0.1] * 4},
        {"made/up": [1.0]},
    ],
)
def test_odd_runs_are_examined_too(values: Mapping[str, Sequence[float]], tmp_path: Path, capsys: Captured) -> None:
    add_run(tmp_path, "a", values)
    found = asked(capsys, "a", "--home", str(tmp_path))
    assert {alarm["alarm"] for alarm in found["alarms"]} <= {"few_evaluations", "not_finite"}
    assert main(["doctor", "a", "--home", str(tmp_path)]) == 0


def test_an_unknown_run_is_the_usual_error(tmp_path: Path, capsys: Captured) -> None:
    add_run(tmp_path, "a", {})
    assert main(["doctor", "b", "--home", str(tmp_path)]) == 1
    assert "there is no run 'b'" in capsys.readouterr().err
    assert main(["doctor", "b", "--home", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_training_ends_with_its_alarms_a_line_each(tmp_path: Path, fakes: Install, capsys: Captured) -> None:
    """The fake evaluations are 2, of iterations 0 and 1."""
    fakes("")
    path, home = tmp_path / "small.yaml", tmp_path / "home"
    path.write_text("iterations: 1\n")
    assert main(["train", str(path), "--home", str(home)]) == 0
    out = capsys.readouterr().out
    assert f"\nalarm few_evaluations: values of {SCORE} up to iteration 1: 2, too few to say how it goes\n" in out
    assert f"agent-r1 doctor small --home {home}" in out
    path.write_text("iterations: 2\n")
    assert main(["train", str(path), "--home", str(home)]) == 0
    out = capsys.readouterr().out
    assert "alarm" not in out
    assert "agent-r1 doctor" not in out


def test_examining_a_run_needs_neither_torch_nor_prefect_nor_mlflow(tmp_path: Path) -> None:
    add_run(tmp_path, "a", {SCORE: [0.1, 0.2, 0.3]})
    code = (
        "import sys; from flows.cli import main; code = main(['doctor', 'a', '--home', sys.argv[1]]); "
        "print(code, sorted({'torch', 'prefect', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.splitlines()[-1] == "0 []"


# What is installed, and the home


def test_an_installation_is_examined_without_a_home_and_makes_none(tmp_path: Path, capsys: Captured) -> None:
    home = tmp_path / "none" / "home"
    found = asked(capsys, "--home", str(home))
    assert found["warnings"] == []
    assert found["home"].items() >= {"path": str(home), "exists": False}.items()
    assert {"python", "torch", "transformers", "prefect", "mlflow", "duckdb"} <= set(found["versions"])
    assert {"device", "threads", "cores", "vllm", "memory_free_gb", "gpu_memory"} <= set(found["machine"])
    assert not home.parent.exists()
    assert main(["doctor", "--home", str(home)]) == 0
    assert capsys.readouterr().out.endswith("nothing odd was found\n")


def test_runs_are_counted_by_status_and_dead_ones_named(tmp_path: Path, capsys: Captured) -> None:
    """One that says it is running, with no process on it, was killed."""
    for run, status in (("a", "finished"), ("b", "running"), ("c", "failed"), ("d", "finished")):
        add_run(tmp_path, run, {}, status)
    found = asked(capsys, "--home", str(tmp_path))
    assert found["home"]["runs"] == {"finished": 2, "killed": 1, "failed": 1}
    assert (found["home"]["writable"], found["home"]["schema_version"]) == (True, SCHEMA_VERSION)
    assert found["warnings"] == ["killed: b (agent-r1 resume RUN goes on)", "failed: c (agent-r1 resume RUN goes on)"]
    assert main(["doctor", "--home", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "2 finished, 1 killed, 1 failed" in out
    assert "\nwarning: killed: b" in out


def test_a_reannotated_run_goes_on_by_the_same_command_and_needs_no_evaluations(
    tmp_path: Path, capsys: Captured
) -> None:
    add_run(tmp_path, "a", {}, "failed")
    add_run(tmp_path, "b", {"rollout/answered": [0.9, 0.9]}, "failed", copied_from="a")
    assert asked(capsys, "--home", str(tmp_path))["warnings"] == [
        "failed: a (agent-r1 resume RUN goes on)",
        "failed: b (the same agent-r1 reannotate command goes on)",
    ]
    assert asked(capsys, "b", "--home", str(tmp_path))["alarms"] == []


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Another process has the store open; its id."""
    code = f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.kill()


def test_who_holds_the_lock_of_the_store_is_named(tmp_path: Path, capsys: Captured) -> None:
    add_run(tmp_path, "a", {})
    with held(tmp_path / "store.duckdb") as pid:
        found = asked(capsys, "--home", str(tmp_path))
    assert found["home"]["locked_by"] == f"process {pid}"
    assert "locked by" in found["warnings"][0]
    assert asked(capsys, "--home", str(tmp_path))["home"]["locked_by"] is None


def test_a_file_that_is_no_store_and_a_newer_store_are_warnings(tmp_path: Path, capsys: Captured) -> None:
    add_run(tmp_path, "a", {})
    with Store(tmp_path / "store.duckdb").write() as con:
        con.execute("UPDATE store SET schema_version = 99")
    (warning,) = asked(capsys, "--home", str(tmp_path))["warnings"]
    assert "99 is newer" in warning
    (tmp_path / "store.duckdb").write_text("no database " * 999)
    (warning,) = asked(capsys, "--home", str(tmp_path))["warnings"]
    assert "store.duckdb" in warning


def test_an_older_store_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    add_run(tmp_path, "a", {})
    before = (tmp_path / "store.duckdb").read_bytes()
    monkeypatch.setattr(health, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    found = asked(capsys, "--home", str(tmp_path))
    assert found["home"]["schema_version"] == SCHEMA_VERSION
    assert "the next command" in found["warnings"][0]
    assert (tmp_path / "store.duckdb").read_bytes() == before


def test_a_home_that_cannot_be_used_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "file").touch()
    found = asked(capsys, "--home", str(tmp_path / "file"))
    assert found["home"]["writable"] is False
    assert "regular file" in found["warnings"][0]
    monkeypatch.setattr(installation, "LOW_DISK", 1e18)
    assert "GB are free" in asked(capsys, "--home", str(tmp_path))["warnings"][0]


def test_what_is_missing_or_does_not_load_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def broken() -> tuple[str, int]:
        raise OSError("libcudart.so:\nno such file")

    monkeypatch.setattr(installation, "library_versions", lambda: {"torch": "2", "prefect": "absent"})
    monkeypatch.setattr("agent_r1.model.machine", broken)
    found = asked(capsys, "--home", str(tmp_path))
    assert found["versions"]["prefect"] == "absent"
    assert found["warnings"] == [
        "prefect is not installed",
        "torch or transformers do not work: libcudart.so: no such file",
    ]
    monkeypatch.setattr("agent_r1.model.machine", lambda: ("cpu", 4096))
    assert "4096 threads on" in asked(capsys, "--home", str(tmp_path))["warnings"][1]


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://me:secret@127.0.0.1:9/mlflow", "http://127.0.0.1:9/mlflow"),
        ("http://me:se/cret@127.0.0.1:9", "http://127.0.0.1:9"),
        ("http://[no address", "http://[no address"),
    ],
)
def test_variables_are_shown_without_passwords_and_a_dead_mlflow_is_a_warning(
    uri: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("AGENT_R1_HOME", str(tmp_path))
    assert main(["doctor", "--json"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out)
    assert found["environment"]["MLFLOW_TRACKING_URI"] == shown
    assert found["environment"]["AGENT_R1_HOME"] == found["home"]["path"] == str(tmp_path)
    assert "does not answer" in found["warnings"][0]
    assert "cret" not in out
