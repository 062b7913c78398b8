"""Results of an experiment, one JSON file a run, so that they can be made in pieces and put together.

What they say is left to agent_r1/comparison.py; gathering them from the store to flows.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from agent_r1.errors import RunError
from agent_r1.questions.records import Json
from storage.files import replace_file

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a finished run measured, and what it was.

    `config` are all its keys, nested; `overrides` those of its variant. `series` are values by metric and iteration,
    `test` those of the test split; NaN is None. `start_weights` is the hash of the weights that it started from.
    """

    experiment: str
    variant: str
    seed: int
    run: str
    identity: str
    iterations: int
    overrides: dict[str, Json]
    config: dict[str, Json]
    start_weights: str
    code_version: str
    library_versions: dict[str, str]
    changes: list[str]
    machine: dict[str, Json]
    finished_at: str
    series: dict[str, dict[int, float | None]]
    test: dict[str, float | None]


def path_of(folder: Path, variant: str, seed: int) -> Path:
    """The file of a run's result."""
    return folder / f"{variant}-s{seed}.json"


def save(folder: Path, result: RunResult) -> Path:
    """Write the file in place of one of that variant and seed; it appears complete or not at all."""
    text = json.dumps({"format": FORMAT, **asdict(result)}, indent=1, ensure_ascii=False, allow_nan=False)
    path = path_of(folder, result.variant, result.seed)
    replace_file(path, lambda draft: _write(draft, text + "\n"))
    return path


def find(folder: Path, variant: str, seed: int) -> RunResult | None:
    """The stored result, None where there is none. RunError names a file that is something else."""
    path = path_of(folder, variant, seed)
    if not path.is_file():
        return None
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        if tree.pop("format") != FORMAT:
            raise ValueError("of another format")
        series = {key: {int(i): value for i, value in points.items()} for key, points in tree.pop("series").items()}
        return RunResult(series=series, **tree)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{path}: not the result of a run: {type(error).__name__}: {error}") from error


def number(value: float) -> float | None:
    """As JSON has it: None where it is not finite."""
    return value if math.isfinite(value) else None


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
