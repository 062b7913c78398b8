"""A run that was killed with kill -9 in the middle of any stage goes on to what the undisturbed run ends with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).with_name("kill_driver.py")
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
CLOCK = ("started_at", "finished_at", "created_at", "at", "pid", "mlflow_run_id")
CLOCKED_METRICS = "key NOT LIKE 'time/%' AND key <> 'rollout/tokens_per_second'"
TABLES = ("runs", "stages", "questions", "trajectories", "turns", "annotations", "credits", "metrics")


@dataclass(frozen=True)
class Undisturbed:
    """The run that nobody killed."""

    home: Path
    seconds: dict[tuple[str, int, int], float]


def command(home: Path) -> list[str]:
    return ["train", "--run", "small", "--home", str(home), *(f"--set={setting}" for setting in SMALL)]


def rows(home: Path, table: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        names = [row[0] for row in con.execute(f"SELECT column_name FROM (DESCRIBE {table})").fetchall()]
        columns = ", ".join(f'"{name}"::VARCHAR' for name in names if name not in CLOCK)
        where = f"WHERE {CLOCKED_METRICS}" if table == "metrics" else ""
        return con.execute(f"SELECT {columns} FROM {table} {where} ORDER BY ALL").fetchall()


def finished(home: Path) -> dict[tuple[str, int, int], tuple[object, object]]:
    if not (home / "store.duckdb").exists():
        return {}
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        query = "SELECT stage, iteration, shard, started_at, finished_at FROM stages"
        return {(row[0], row[1], row[2]): (row[3], row[4]) for row in con.execute(query).fetchall()}


def shown_in_mlflow(home: Path) -> dict[tuple[str, int], list[float]]:
    from storage.tracking import Tracker

    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        (run_id,) = con.execute("SELECT mlflow_run_id FROM runs").fetchone() or ("",)
    client = Tracker(home).client
    runs = client.search_runs([Tracker(home).experiment])
    assert [run.info.run_id for run in runs] == [run_id], "one MLflow run for one run"
    shown: dict[tuple[str, int], list[float]] = {}
    for key in runs[0].data.metrics:
        if not key.startswith("time/") and key != "rollout/tokens_per_second":
            for point in client.get_metric_history(run_id, key):
                shown.setdefault((key, point.step), []).append(point.value)
    assert runs[0].info.status == "FINISHED"
    return shown


def left_over(home: Path) -> list[str]:
    """Command lines of living processes that name the home."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    mine = str(os.getpid())
    living = [line for line in listed.splitlines() if str(home) in line and not line.split()[1].startswith("Z")]
    return [line for line in living if line.split()[0] != mine]


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
    deadline = time.monotonic() + 5
    while left_over(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_over(home) == []

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
