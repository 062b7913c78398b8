"""What an iteration costs beside the computing: Prefect, DuckDB, MLflow and files, inside a real training run.

Run as `python -m benchmarks.overhead train ...` it is `agent-r1 train ...` with a clock in it, which prints a line of
JSON for each iteration: seconds by place, each second in one place only.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.pairs import ROOT, child_environment

MARK = "iteration clock "
PLACES: tuple[str, ...] = ("compute", "prefect", "duckdb", "mlflow", "checkpoints", "glue")
"""compute: sampling, pricing, updating, loading a policy and its tools. checkpoints: writing and checking files. glue:
what else a stage does, such as hashing its inputs. prefect: whatever lies outside a stage."""

TRACKER = (
    "__init__", "ensure_run", "shown", "set_shown", "set_status", "register",
    "log_metrics", "log_dataset", "log_table", "log_text", "log_file", "log_traces",
)  # fmt: skip
WRAPPED: dict[str, tuple[str, ...]] = {
    "compute": (
        "tasks.rollout.sample",
        "tasks.evaluate.rollout",
        "tasks.evaluate.evaluation_metrics",
        "tasks.annotate.price",
        "tasks.annotate.rollout_metrics",
        "tasks.update.improve",
        "tasks.update.make_learner",
        "tasks.data.load",
        "agent_r1.environments.open_tools",
    ),
    "checkpoints": tuple(
        f"storage.checkpoints.{name}" for name in ("publish", "verify", "read_manifest", "load_trainer", "remove")
    ),
    "mlflow": tuple(f"storage.tracking.Tracker.{name}" for name in TRACKER),
    "glue": tuple(
        f"tasks.{name}.run_stage"
        for name in ("prepare", "warm_start", "rollout", "annotate", "update", "evaluate", "publish")
    ),
}


class Clock:
    """Seconds by place. The place entered last has the time, until it is left."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PLACES, 0.0)
        self._now, self._since, self._places = now, now(), ["prefect"]

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Be there for a while."""
        self._charge()
        self._places.append(place)
        try:
            yield
        finally:
            self._charge()
            self._places.pop()

    def lap(self) -> dict[str, float]:
        """What there was since the last lap."""
        self._charge()
        found, self.seconds = self.seconds, dict.fromkeys(PLACES, 0.0)
        return found

    def _charge(self) -> None:
        now = self._now()
        self.seconds[self._places[-1]] += now - self._since
        self._since = now


def measure(config: str, home: Path, threads: int, iterations: int, settings: Sequence[str]) -> list[dict[str, float]]:
    """Seconds by place of each iteration of a run of a shipped configuration; the first, which warms up, left out."""
    sets = [word for setting in (*settings, f"threads={threads}") for word in ("--set", setting)]
    command = [sys.executable, "-m", "benchmarks.overhead", "train", config, "--home", str(home), "--run", config]
    done = subprocess.run(
        [*command, "--iterations", str(iterations + 1), *sets],
        cwd=ROOT,
        env=child_environment(threads),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"agent-r1 train {config} ended with {done.returncode}: {done.stderr[-2000:]}")
    laps = [json.loads(line.removeprefix(MARK)) for line in done.stdout.splitlines() if line.startswith(MARK)]
    return laps[-iterations:]


def shares(laps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median seconds of an iteration, and of each place the median share of it."""
    total = [sum(lap.values()) for lap in laps]

    def share(*places: str) -> float:
        return statistics.median(sum(lap[place] for place in places) / sum(lap.values()) for lap in laps)

    found = {f"{place}/share": share(place) for place in PLACES}
    found["prefect+duckdb+mlflow/share"] = share("prefect", "duckdb", "mlflow")
    found["all but compute/share"] = share(*PLACES[1:])
    return {"iteration_seconds": statistics.median(total), **found}


def _install(clock: Clock) -> None:
    """Put the clock into the modules, once they are imported."""
    for place, names in WRAPPED.items():
        for name in names:
            owner, attribute = _owner(name)
            setattr(owner, attribute, _timed(clock, place, getattr(owner, attribute)))
    store = import_module("storage.database").Store
    for name in ("read", "write"):
        setattr(store, name, _timed_context(clock, "duckdb", getattr(store, name)))
    progress = import_module("flows.progress").Progress
    said = progress.iteration

    def iteration(self: object, number: int) -> None:
        said(self, number)
        print(MARK + json.dumps(clock.lap()), flush=True)

    progress.iteration = iteration


def _owner(name: str) -> tuple[Any, str]:
    path, _, attribute = name.rpartition(".")
    module, _, owner = path.rpartition(".")
    return (getattr(import_module(module), owner) if owner[0].isupper() else import_module(path)), attribute


def _timed(clock: Clock, place: str, function: Callable[..., object]) -> Callable[..., object]:
    @wraps(function)
    def timed(*args: object, **kwargs: object) -> object:
        with clock.at(place):
            return function(*args, **kwargs)

    return timed


def _timed_context(clock: Clock, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    @wraps(function)
    def timed(*args: object, **kwargs: object) -> Iterator[object]:
        with clock.at(place), function(*args, **kwargs) as con:
            yield con

    return timed


def _main(arguments: Sequence[str]) -> int:
    from flows import cli, session

    clock, imported = Clock(), session._import_training

    def import_and_install() -> None:
        imported()
        _install(clock)

    session._import_training = import_and_install
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
