"""A run that was killed with kill -9 in the middle of any stage goes on to what the undisturbed run ends with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from benchmarks import kill_driver
from benchmarks.likeness import TABLES, finished, lasting, rows, shown_in_mlflow

pytestmark = pytest.mark.slow

DRIVER = Path(kill_driver.__file__)
SMALL = (
    "iterations=2",
    "world.warm_start=400",
    "world.train=60",
    "warm_start.curriculum_steps=10",
    "warm_start.steps=30",
    "warm_start.sloppy_steps=5",
    "rollout.questions=24",
    "rollout.shard_size=8",
    "evaluation.questions=12",
    "keep_checkpoints=[all]",
)
KILLS = (
    ("prepare", 0, 0),
    ("warm_start", 0, 0),
    ("evaluate", 0, 0),
    ("publish", 0, 0),
    ("rollout", 1, 1),
    ("annotate", 1, 0),
    ("update", 1, 0),
    ("rollout", 2, 2),
    ("update", 2, 0),
    ("evaluate", 2, 0),
    ("publish", 2, 0),
)


@dataclass(frozen=True)
class Undisturbed:
    """The run that nobody killed."""

    home: Path
    seconds: dict[tuple[str, int, int], float]


def command(home: Path) -> list[str]:
    return ["train", "--run", "small", "--home", str(home), *(f"--set={setting}" for setting in SMALL)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    home = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run([sys.executable, "-m", "flows.cli", *command(home)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    times = {key: (end - start).total_seconds() for key, (start, end) in finished(home).items()}  # type: ignore[operator]
    return Undisturbed(home, times)


def killed_in(
    kill: tuple[str, int, int], undisturbed: Undisturbed, folder: Path
) -> tuple[Path, dict[tuple[str, int, int], tuple[object, object]]]:
    """A home whose run was killed within a stage, and what was finished; killed sooner where the stage was faster."""
    for share in (0.5, 0.2, 0.05):
        home = folder / f"killed-at-{share}"
        home.mkdir()
        arguments = [*map(str, kill), str(undisturbed.seconds[kill] * share), "--", *command(home)]
        killed = subprocess.run([sys.executable, str(DRIVER), *arguments], capture_output=True, text=True)
        assert killed.returncode == -9, killed.stderr
        if kill not in (before := finished(home)):
            return home, before
    raise AssertionError(f"{kill} was over before it could be killed")


@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: "-".join(map(str, kill)))
def test_a_killed_run_ends_as_if_nothing_had_happened(
    kill: tuple[str, int, int], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    home, before = killed_in(kill, undisturbed, tmp_path)
    assert lasting(home) == []

    resume = [sys.executable, "-m", "flows.cli", "resume", "small", "--home", str(home)]
    resumed = subprocess.run(resume, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    after = finished(home)
    assert {key: after[key] for key in before} == before, "a finished stage was done again"
    for table in TABLES:
        assert rows(home, table) == rows(undisturbed.home, table), table
    assert shown_in_mlflow(home) == shown_in_mlflow(undisturbed.home)
    assert all(len(values) == 1 for values in shown_in_mlflow(home).values())
    for checkpoint in ("00000", "00001", "00002"):
        part = Path("runs/small/checkpoints") / checkpoint / "policy/model.safetensors"
        assert (home / part).read_bytes() == (undisturbed.home / part).read_bytes()


REPRICE = ("reannotate", "small", "--name", "dear", "--set=rewards.turn=-0.5")
REPRICE_KILLS = (("rollout", 1, 1), ("annotate", 1, 0), ("publish", 1, 0), ("rollout", 2, 0), ("publish", 2, 0))


@pytest.fixture(scope="module")
def repriced(undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the undisturbed home in which its run was priced anew."""
    home = tmp_path_factory.mktemp("repriced")
    shutil.copytree(undisturbed.home, home, dirs_exist_ok=True)
    done = subprocess.run([sys.executable, "-m", "flows.cli", *REPRICE, "--home", str(home)])
    assert done.returncode == 0
    return home


def killed_while_repricing(kill: tuple[str, int, int], undisturbed: Undisturbed, folder: Path) -> Path:
    """A home whose reannotation was killed within a stage; killed sooner where the stage was faster."""
    for moment in (0.1, 0.02, 0.0) if kill[0] == "publish" else (0.0,):
        home = folder / f"killed-at-{moment}"
        shutil.copytree(undisturbed.home, home)
        arguments = [*map(str, kill), str(moment), "--", *REPRICE, "--home", str(home)]
        subprocess.run([sys.executable, str(DRIVER), *arguments], capture_output=True)
        with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
            done = "SELECT stage, iteration, shard FROM stages WHERE run = 'dear'"
            if kill not in con.execute(done).fetchall():
                return home
    raise AssertionError(f"{kill} was over before it could be killed")


@pytest.mark.parametrize("kill", REPRICE_KILLS, ids=lambda kill: "-".join(map(str, kill)))
def test_a_killed_reannotation_ends_as_if_nothing_had_happened(
    kill: tuple[str, int, int], undisturbed: Undisturbed, repriced: Path, tmp_path: Path
) -> None:
    home = killed_while_repricing(kill, undisturbed, tmp_path)
    command = [*REPRICE, "--home", str(home)]
    again = subprocess.run([sys.executable, "-m", "flows.cli", *command], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "run dear: goes on" in again.stdout
    for table in TABLES[1:]:  # the notes of runs say when
        assert rows(home, table) == rows(repriced, table), table


def test_two_runs_of_one_configuration_are_alike_to_the_last_bit(undisturbed: Undisturbed, tmp_path: Path) -> None:
    again = subprocess.run([sys.executable, "-m", "flows.cli", *command(tmp_path)], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    for table in TABLES:
        assert rows(tmp_path, table) == rows(undisturbed.home, table), table
