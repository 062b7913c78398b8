"""What the fault campaign draws, compares and judges; the faults themselves are made by python -m benchmarks.faults."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks import faults_named, likeness
from benchmarks.faults import NAMED
from benchmarks.faults_damage import cut, flip
from benchmarks.faults_kills import Forks, drawn, hit
from benchmarks.faults_named import Case, Ended, Fault
from benchmarks.faults_table import table
from benchmarks.likeness import differences
from storage import metrics
from storage.database import Store
from tasks.context import STAGES

LASTED = {
    ("prepare", 0, 0): 1.0, ("warm_start", 0, 0): 0.5, ("evaluate", 0, 0): 0.1, ("publish", 0, 0): 2.0,
    ("rollout", 1, 0): 0.1, ("rollout", 1, 1): 0.1, ("annotate", 1, 0): 0.02, ("update", 1, 0): 0.2,
    ("evaluate", 1, 0): 0.1, ("publish", 1, 0): 0.1, ("update", 2, 0): 0.2, ("test", 2, 0): 0.1, ("publish", 2, 0): 0.1,
}  # fmt: skip


def home_at(folder: Path, value: float = 0.5, weights: bytes = b"w") -> Path:
    """A home with one metric and one checkpoint."""
    with Store(folder / "store.duckdb").write() as con:
        metrics.save(con, "small", 1, "update", {"ppo/kl": value, "time/update_seconds": value}, datetime.now(UTC))
    policy = folder / "runs/small/checkpoints/00001/policy/model.safetensors"
    policy.parent.mkdir(parents=True)
    policy.write_bytes(weights)
    return folder


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], list[float]]:
    """What MLflow shows of every home."""
    values = {("ppo/kl", 1): [0.5]}
    monkeypatch.setattr(likeness, "shown_in_mlflow", lambda *_: values)
    return values


def test_kills_follow_from_the_seed_and_come_to_every_stage_in_the_order_of_the_dag() -> None:
    runs = [drawn(0, number, LASTED) for number in range(8)]
    assert runs == [drawn(0, number, LASTED) for number in range(8)]
    assert runs != [drawn(1, number, LASTED) for number in range(8)]
    assert {kill.stage for kills in runs for kill in kills if not kill.place} >= set(STAGES)
    assert all(kills == sorted(kills) and len(kills) >= 4 for kills in runs)
    assert {"between two renames", "before the old one goes", "inside publishing", "at the commit"} <= {
        kill.place for number in range(40) for kill in drawn(0, number, LASTED)
    }


def test_a_kill_hit_the_stage_that_had_begun_and_was_not_over() -> None:
    assert hit("") == "before the first stage"
    assert hit("begin prepare 0 0\n") == "prepare"
    assert hit("begin prepare 0 0\nover prepare 0 0\n") == "between stages"


def test_homes_are_alike_whatever_the_clock_says(tmp_path: Path, shown: dict[tuple[str, int], list[float]]) -> None:
    del shown
    assert differences(home_at(tmp_path / "a"), home_at(tmp_path / "b")) == []


def test_a_row_a_weight_and_a_draft_are_differences(tmp_path: Path, shown: dict[tuple[str, int], list[float]]) -> None:
    calm = home_at(tmp_path / "calm")
    assert differences(home_at(tmp_path / "a", value=0.25), calm) == ["metrics: other rows"]
    assert differences(home_at(tmp_path / "b", weights=b"v"), calm) == ["other weights"]
    (home_at(tmp_path / "c") / "runs/small/checkpoints/.tmp-00002").mkdir()
    assert differences(tmp_path / "c", calm) == ["left over: runs/small/checkpoints/.tmp-00002"]
    shown["ppo/kl", 1].append(0.5)
    assert differences(home_at(tmp_path / "d"), calm) == ["MLflow: 2 values of ('ppo/kl', 1)"]


def test_a_process_that_names_the_home_in_its_environment_is_left_over(tmp_path: Path) -> None:
    assert likeness.left_over(tmp_path) == []
    with subprocess.Popen(["sleep", "60"], env={"PREFECT_HOME": str(tmp_path)}) as process:
        assert [line.split()[0] for line in likeness.left_over(tmp_path)] == [str(process.pid)]
        process.kill()


class NoForks(Forks):
    """No process at all."""

    def __init__(self) -> None:
        pass


def case_in(folder: Path) -> Case:
    """A case of which only the judging is used."""
    return Case(folder, folder, NoForks())


def ended(code: int, error: str = "") -> Ended:
    """A process that ended so."""
    return subprocess.CompletedProcess([], code, "", error)


def test_an_error_is_clear_where_it_is_one_line_that_says_what_it_has_to(tmp_path: Path) -> None:
    case = case_in(tmp_path)
    case.clear(ended(1, "agent-r1: x: damaged; restore it\n"), "x", ("x", "restore"))
    assert (case.wrong, case.seen) == ([], ["exit 1: x: damaged; restore it"])
    for bad in (
        ended(0, "agent-r1: x: damaged; restore it\n"),
        ended(1, "Traceback (most recent call last):\nagent-r1: x: damaged; restore it\n"),
        ended(1, "agent-r1: x: damaged\n"),
        ended(1, ""),
    ):
        case = case_in(tmp_path)
        case.clear(bad, "x", ("x", "restore"))
        assert case.wrong, bad


def test_a_run_that_goes_on_to_something_else_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults_named, "differences", lambda *_, **__: ["other weights"])
    case = case_in(tmp_path)
    case.same(ended(0), "x")
    case.same(ended(1, "agent-r1: no"), "y")
    assert case.wrong == ["x: other weights", "y: ended with 1: agent-r1: no"]
    assert case.seen == []


def test_damage_is_one_bit_or_what_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(10))
    flip(path, 0.5)
    assert path.read_bytes() == bytes(5) + b"\x10" + bytes(4)
    cut(path, 0.3)
    assert path.read_bytes() == bytes(3)


def test_the_table_counts_the_kills_that_struck_and_shows_what_is_wrong() -> None:
    def kill(hit: str, place: str = "", struck: bool = True) -> dict[str, object]:
        return {"kill": {"place": place}, "struck": struck, "hit": hit}

    kills = [
        {"hits": [kill("update"), kill("update"), kill("test", struck=False)], "wrong": []},
        {"hits": [kill("update", "at the commit"), kill("before the first stage")], "wrong": ["other weights"]},
    ]
    faults = {"disk full": Fault("an error", lambda _: None)}
    lines, wrong = table(kills, [{"fault": "disk full", "seen": ["a | b"], "wrong": [], "times": 2}], faults)
    assert wrong == 1
    assert any(line.startswith("| kill -9 | in update | 2 |") and line.endswith("| as expected |") for line in lines)
    assert any("commit: at the commit | 1 |" in line and "WRONG in 1 of 1" in line for line in lines)
    assert "| disk full | | 2 | an error | a / b |" in lines
    assert "4 kills in 2 runs, 1 named faults; not as it should be: 1." in lines
    assert set(NAMED) >= {"disk full", "write-ahead log cut", "clock goes back a day"}
