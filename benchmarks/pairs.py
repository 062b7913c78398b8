"""Two processes, one on each side, that take turns at the same work: a busy machine then slows both alike."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from agent_r1.questions.records import Json

ROOT = Path(__file__).parents[1]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def child_environment(threads: int) -> dict[str, str]:
    """Both sides': so many threads, which do not spin while they wait, and nothing is asked of the network."""
    quiet = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **quiet, **dict.fromkeys(THREADS, str(threads))}


class Side(AbstractContextManager["Side"]):
    """A child process that measures once for each line it is given."""

    def __init__(self, command: Sequence[str], place: Path, settings: Mapping[str, Json]) -> None:
        threads = settings["threads"]
        assert isinstance(threads, int)
        self._process = subprocess.Popen(
            [*command, str(place), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=child_environment(threads),
        )
        self.memory_before = self._answer()["peak_mib"]

    def measure(self) -> dict[str, float]:
        """Have it done once. RuntimeError where the process ends instead."""
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{") and "peak_mib" in line:
                return json.loads(line)
        raise RuntimeError(f"{self._process.args} ended with exit code {self._process.wait()}")

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def ours(place: Path, settings: Mapping[str, Json]) -> Side:
    """Our side."""
    return Side([sys.executable, "-m", "benchmarks.our_side"], place, settings)


def trl(place: Path, settings: Mapping[str, Json], python: Path) -> Side:
    """TRL's, by the interpreter of its own environment."""
    return Side([str(python), str(ROOT / "benchmarks" / "trl_side.py")], place, settings)


def take_turns(sides: Mapping[str, Side], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Each side in turn, `rounds` times after one that does not count; who begins changes with every round."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            measured = sides[name].measure()
            if number:
                found[name].append(measured)
    return found


def rate(measured: Mapping[str, float], of: str) -> float:
    """How many of these a second."""
    return measured[of] / measured["seconds"]


def ratios(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]], of: str) -> list[float]:
    """Of the rates, pair by pair."""
    return [rate(a, of) / rate(b, of) for a, b in zip(one, other, strict=True)]


def median_rate(measured: Sequence[Mapping[str, float]], of: str) -> float:
    """The median of the rates."""
    return statistics.median(rate(each, of) for each in measured)
