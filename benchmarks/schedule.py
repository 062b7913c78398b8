"""A schedule of which one firing is killed (kill -9), against the same run trained in one go.

    python -m benchmarks.schedule [CONFIG] --every 1m --kill-after 10 --set threads=1

Three firings of an iteration each begin; the second one's process is killed. What the run then has must be what an
undisturbed run of the same length has: all rows but times and the notes of resuming, and the weights' bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

from benchmarks.pairs import ROOT, child_environment

FIRINGS = 3
TABLES = ("runs", "stages", "questions", "trajectories", "turns", "annotations", "credits", "metrics")
CLOCK = ("started_at", "finished_at", "created_at", "at", "pid", "mlflow_run_id", "notes")
UNCLOCKED = {"metrics": "WHERE key NOT LIKE 'time/%' AND key <> 'rollout/tokens_per_second'"}
BEGINS = re.compile(r"run \S+: a firing, process (\d+)")


def compare(
    config: str, folder: Path, every: str, kill_after: float, settings: Sequence[str], port: int
) -> dict[str, object]:
    """What happened, and whether both runs are the same: keys "equal" and "overlaps" decide."""
    sets = [word for setting in settings for word in ("--set", setting)]
    scheduled, straight = folder / "scheduled", folder / "straight"
    begun, seconds, code = _fire(
        [config, "--run", "run", "--home", str(scheduled), "--every", every, "--port", str(port), *sets], kill_after
    )
    iterations = _one(scheduled, "SELECT max(iteration) FROM stages WHERE stage = 'publish'")
    train = _command("train", config, "--run", "run", "--home", str(straight), "--iterations", str(iterations), *sets)
    subprocess.run(train, cwd=ROOT, env=child_environment(1), check=True, stdout=sys.stderr)
    differing = [table for table in TABLES if _rows(scheduled, table) != _rows(straight, table)]
    weights = [path.relative_to(straight) for path in sorted(straight.rglob("checkpoints/*/policy/model.safetensors"))]
    return {
        "firings": len(begun),
        "killed": begun[1],
        "iterations": iterations,
        "seconds": round(seconds),
        "exit_code": code,
        "flow_runs": _flow_runs(scheduled),
        "overlaps": _overlaps(scheduled),
        "rows": {table: len(_rows(straight, table)) for table in TABLES},
        "tables_that_differ": differing,
        "weights": [str(path) for path in weights],
        "equal": not differing
        and bool(weights)
        and all((scheduled / path).read_bytes() == (straight / path).read_bytes() for path in weights),
        "processes_left": _left(folder),
    }


def _fire(arguments: Sequence[str], kill_after: float) -> tuple[list[int], float, int]:
    """The processes of three firings, of which the second is killed; seconds in all, and how Ctrl-C ended it."""
    start = time.monotonic()
    schedule = subprocess.Popen(
        _command("schedule", *arguments), cwd=ROOT, env=child_environment(1), stdout=subprocess.PIPE, text=True
    )
    begun: list[int] = []
    try:
        for line in _lines(schedule):
            if found := BEGINS.search(line):
                begun.append(int(found[1]))
            elif len(begun) == 2 and line.startswith("skipping what is done"):  # and the first of the rest begins
                time.sleep(kill_after)
                os.kill(begun[1], signal.SIGKILL)
            elif len(begun) >= FIRINGS and "iterations are done" in line:
                time.sleep(5)  # until Prefect knows it, too
                break
    finally:
        schedule.send_signal(signal.SIGINT)
        code = schedule.wait(60)
    return begun, time.monotonic() - start, code


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", file=sys.stderr, flush=True)
        yield line


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "flows.cli", *arguments]


def _one(home: Path, query: str) -> object:
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        found = con.execute(query).fetchone()
    return None if found is None else found[0]


def _rows(home: Path, table: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        names = [row[0] for row in con.execute(f"SELECT column_name FROM (DESCRIBE {table})").fetchall()]
        columns = ", ".join(f'"{name}"::VARCHAR' for name in names if name not in CLOCK)
        return con.execute(f"SELECT {columns} FROM {table} {UNCLOCKED.get(table, '')} ORDER BY ALL").fetchall()


def _overlaps(home: Path) -> object:
    """Pairs of stages of different processes that were done at the same time."""
    return _one(
        home,
        "SELECT count(*) FROM stages a, stages b "
        "WHERE a.pid < b.pid AND a.started_at < b.finished_at AND b.started_at < a.finished_at",
    )


def _flow_runs(home: Path) -> dict[str, int]:
    with sqlite3.connect(home / "prefect" / "prefect.db") as con:
        return dict(con.execute("SELECT state_name, count(*) FROM flow_run GROUP BY state_name").fetchall())


def _left(folder: Path) -> int:
    """Living processes that name the folder."""
    listed = subprocess.run(["ps", "-ww", "-eo", "stat=,args="], capture_output=True, text=True, check=True).stdout
    me = "benchmarks.schedule"
    return sum(str(folder) in line and me not in line and not line.startswith("Z") for line in listed.splitlines())


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="quickstart")
    parser.add_argument("--every", default="1m")
    parser.add_argument("--kill-after", type=float, default=10.0, help="seconds into the second firing's work")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--port", type=int, default=4260)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agent-r1-schedule-") as folder:
        found = compare(given.config, Path(folder), given.every, given.kill_after, given.settings, given.port)
    print(json.dumps(found, indent=2))
    return 0 if found["equal"] and found["overlaps"] == 0 and found["processes_left"] == 0 else 1


if __name__ == "__main__":
    sys.exit(_main())
