"""What `evaluate` means by TARGET: a run's best checkpoint, a checkpoint folder, or a Hugging Face model.

Answering the questions and scoring are left to tasks/evaluate.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_r1.config import Config, load
from agent_r1.errors import CheckpointError, ConfigError
from flows.home import find_row, stored_context
from storage import metrics
from storage.metrics import MetricRow
from tasks.context import RunContext

METHODS = ("policy",)
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Target:
    """A policy to evaluate: its folder or hub id, the configuration to do it with, and what to call it."""

    policy: str
    config: Config
    name: str


def resolve(home: Path, target: str, default: Config) -> Target:
    """Find what TARGET names, in this order: a run of the home, a folder, else a model of the hub under `default`."""
    if find_row(home, target) is not None:
        context = stored_context(home, target)
        best = best_checkpoint(context)
        return Target(str(context.checkpoint(best) / "policy"), context.config, f"{target}@{best}")
    folder = Path(target).expanduser()
    if folder.is_dir():
        return _of_folder(folder.resolve(), default)
    if folder.is_absolute() or target.startswith(".") or target.count("/") > 1:
        raise ConfigError(f"{target}: no such run in {home}, and no such folder")
    return Target(target, default, target)


def best_checkpoint(context: RunContext) -> int:
    """The kept checkpoint with the best validation metric, the earliest of equals. CheckpointError for none."""
    with context.store.read() as con:
        rows = metrics.load(con, context.run)
    kept = {iteration for iteration in _iterations(rows) if (context.checkpoint(iteration) / MANIFEST).is_file()}
    metric = context.config.evaluation.metric
    values = {row.iteration: row.value for row in rows if row.key == metric and row.iteration in kept}
    values = {iteration: value for iteration, value in values.items() if not math.isnan(value)}
    if not values:
        raise CheckpointError(f"run {context.run!r} keeps no checkpoint with a value of {metric} yet")
    return max(sorted(values), key=lambda iteration: values[iteration])


def evaluate(target: Target, data: Path | None, split: str) -> Mapping[str, float]:
    """Metrics of the target by name."""
    from tasks.evaluate import evaluate_target

    return evaluate_target(target.policy, target.config, data, split)


def _of_folder(folder: Path, default: Config) -> Target:
    """A checkpoint with its run's configuration two folders up, or any folder with a model."""
    policy = folder / "policy" if (folder / "policy").is_dir() else folder
    if not (policy / "config.json").is_file():
        raise CheckpointError(f"{folder}: holds no model (no config.json in it or in its policy/)")
    checkpoint = folder.parent if folder.name == "policy" else folder
    config = checkpoint.parent.parent / "config.yaml"
    return Target(str(policy), load(config) if config.is_file() else default, str(folder))


def _iterations(rows: Sequence[MetricRow]) -> set[int]:
    return {row.iteration for row in rows}
