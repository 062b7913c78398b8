"""Schedules: how far a firing goes, what it says of itself, what is refused; and a real one that is killed once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from fakes import Fakes, config
from whole_runs import SMALL, Scripted

from agent_r1.errors import ConfigError, RunError
from flows import schedule
from flows.cli import main
from flows.commands.schedule import parse_interval
from flows.home import stored_context, stored_row
from flows.locks import run_lock
from flows.session import run_training
from flows.start import begin, further
from storage import stages

ROOT = Path(__file__).parents[2]
Install = Callable[[str], Fakes]


def done(home: Path) -> int:
    context = stored_context(home, "a")
    with context.store.read() as con:
        return max(row.iteration for row in stages.of_run(con, "a") if row.stage == "publish")


def add(home: Path, more: int) -> None:
    run_training(home, "a", lambda: begin(home, "a", further(home, "a", config(), more)), lambda _: None)


def test_a_firing_adds_to_what_is_done(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    counts = []
    for more in (2, 2, 3):
        add(tmp_path, more)
        counts.append(done(tmp_path))
    assert counts == [2, 4, 7]


def test_a_firing_after_a_crash_finishes_what_that_one_left(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    add(tmp_path, 3)
    fakes("update 5")
    with pytest.raises(RuntimeError):
        add(tmp_path, 3)
    assert done(tmp_path) == 4
    fakes("")
    add(tmp_path, 3)
    assert done(tmp_path) == 6


def test_a_firing_never_does_more_than_its_iterations(tmp_path: Path, fakes: Install) -> None:
    fakes("update 2")
    with pytest.raises(RuntimeError):
        run_training(tmp_path, "a", lambda: begin(tmp_path, "a", config(iterations=20)), lambda _: None)
    fakes("")
    add(tmp_path, 2)
    assert done(tmp_path) == 3


def fire(home: Path, path: Path, iterations: int = 1) -> schedule.State[object]:
    return schedule.firing.fn(str(path), str(home), "a", iterations, ["threads=1"])


@pytest.fixture
def small(tmp_path: Path, whole: type[Scripted], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of whole runs, as a file; firings in this process."""
    del whole
    monkeypatch.setattr(schedule, "_obey_parent", os.getppid)
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


def test_a_firing_says_how_far_the_run_is(small: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert fire(home, small).message == "run a: 1 iterations are done"
    assert fire(home, small).message == "run a: 2 iterations are done"


def test_a_firing_that_meets_another_process_is_cancelled_and_names_it(small: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with run_lock(home / "runs" / "a"):
        state = fire(home, small)
    assert state.is_cancelled()
    assert state.message == f"run 'a' is in use by process {os.getpid()}: nothing done in this firing"


def test_a_configuration_that_changed_between_firings_fails_and_leaves_the_run_as_it_was(
    small: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    fire(home, small)
    before = stored_row(home, "a")
    text = small.read_text()
    small.write_text(text + "seed: 7\n")
    with pytest.raises(RunError, match="seed is 0 there and 7 here"):
        fire(home, small)
    assert stored_row(home, "a") == before
    small.write_text(text)
    assert fire(home, small).message == "run a: 2 iterations are done"


def test_train_more_adds_to_what_is_done(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", str(small), "--run", "a", "--home", str(tmp_path / "home")]
    for _ in range(2):
        assert main([*command, "--more", "1"]) == 0
    assert done(tmp_path / "home") == 2
    assert main([*command, "--more", "1", "--iterations", "3"]) == 2
    assert main([*command, "--more", "0"]) == 2
    assert "expected 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1h", timedelta(hours=1)),
        ("2d", timedelta(days=2)),
    ],
)
def test_an_interval_is_a_number_and_a_unit(text: str, expected: timedelta) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize("text", ["", "1", "h", "1w", "-1h", "1.5h", "0s", "9s", "1h30m"])
def test_another_interval_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--every '{text}': expected a number and a unit"):
        parse_interval(text)


def test_a_cron_expression_is_checked_and_of_the_local_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Paris")
    assert schedule.times(None, "0 3 * * *").timezone == "Europe/Paris"
    with pytest.raises(ConfigError, match="--cron 'at dawn': expected five fields"):
        schedule.times(None, "at dawn")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["quickstart"], "either --every or --cron"),
        (["quickstart", "--every", "1h", "--cron", "0 3 * * *"], "either --every or --cron"),
        (["quickstart", "--every", "soon"], "--every 'soon'"),
        (["quickstart", "--every", "1h", "--iterations", "0"], "--iterations 0: expected 1 or more"),
        (["nothing", "--every", "1h"], "nothing: no such file"),
        (["quickstart", "--every", "1h", "--set", "sed=1"], "sed"),
    ],
)
def test_a_wrong_schedule_is_one_line_before_anything_is_started(
    arguments: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", *arguments, "--home", str(tmp_path / "home")]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "home").exists()


SMALL_QUICKSTART = (
    "threads=1", "world.warm_start=200", "world.train=60", "warm_start.curriculum_steps=5", "warm_start.steps=10",
    "warm_start.sloppy_steps=5", "rollout.questions=24", "rollout.shard_size=8", "evaluation.questions=12",
)  # fmt: skip


@pytest.mark.slow
def test_a_schedule_of_which_a_firing_is_killed_makes_what_an_undisturbed_run_makes() -> None:
    settings = [word for setting in SMALL_QUICKSTART for word in ("--set", setting)]
    command = [sys.executable, "-m", "benchmarks.schedule", "--every", "10s", "--kill-after", "2", "--port", "4280"]
    said = subprocess.run([*command, *settings], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["iterations"] == 2  # three firings of one each, of which one was killed
    assert found["flow_runs"]["Completed"] == 2
    assert found["flow_runs"]["Crashed"] == 1
    assert found["exit_code"] == 130
