"""Results of an experiment, one JSON file a run, so that they can be made in pieces and put together.

What they say is left to agent_r1/comparison.py; gathering them from the store to flows.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar, cast

from agent_r1.errors import RunError
from agent_r1.questions.records import Json
from storage.files import replace_file

FORMAT = 1
KINDS: dict[str, type] = {
    "iterations": int, "config": dict, "overrides": dict, "library_versions": dict, "machine": dict, "changes": list,
    "start_weights": str, "code_version": str, "finished_at": str,
}  # fmt: skip
Key = TypeVar("Key", int, str)


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


def find(folder: Path, experiment: str, variant: str, seed: int) -> RunResult | None:
    """The stored result, None where there is none. RunError names a file that is something else."""
    path = path_of(folder, variant, seed)
    if not path.is_file():
        return None
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        if tree.pop("format") != FORMAT:
            raise ValueError("of another format")
        series = {key: _numbers({int(i): value for i, value in each.items()}) for key, each in tree["series"].items()}
        result = RunResult(**{**tree, "series": series, "test": _numbers(tree["test"])})
        _check(result, {"experiment": experiment, "variant": variant, "seed": seed})
        return result
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{path}: not the result of a run: {type(error).__name__}: {error}") from error


def _numbers(values: dict[Key, object]) -> dict[Key, float | None]:
    for key, value in values.items():
        if value is not None and type(value) not in (int, float):
            raise ValueError(f"{key}: expected a number or null, got {value!r}")
    return cast(dict[Key, float | None], values)


def _check(result: RunResult, names: dict[str, str | int]) -> None:
    """ValueError where the result is another run's, or not of the types that it should have."""
    for key, value in names.items():
        if getattr(result, key) != value:
            raise ValueError(f"{key} is {getattr(result, key)!r}, expected {value!r}")
    for key, kind in KINDS.items():
        if not isinstance(getattr(result, key), kind):
            raise ValueError(f"{key}: expected {kind.__name__}, got {getattr(result, key)!r}")


def number(value: float) -> float | None:
    """As JSON has it: None where it is not finite."""
    return value if math.isfinite(value) else None


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
