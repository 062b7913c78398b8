"""An experiment: named variants of one configuration, each with several seeds, and what is compared. Strict, as it.

What its numbers say is left to comparison.py, doing it to flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from agent_r1.config import Config, checked, parse
from agent_r1.config_file import lay_over, read
from agent_r1.errors import ConfigError
from agent_r1.questions.records import Json

BASE = "base"
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Primary = Literal[
    "test/sampled/exact_match", "test/sampled/f1", "test/greedy/exact_match", "test/greedy/f1",
    "eval/sampled/exact_match", "eval/sampled/f1", "eval/greedy/exact_match", "eval/greedy/f1",
]  # fmt: skip
OURS = ("seed", "world.seed", "evaluation.test", "tracking.experiment")
SHARED = ("seed", "iterations", "tools", "model.", "data.", "world.", "warm_start.", "evaluation.", "rollout.")
"""Beginnings of keys in which the runs of a seed are alike: else they could not share their start, or be compared."""
FREE = ("rollout.questions", "rollout.attempts", "rollout.shard_size")
"""But for these: what else is in rollout decides the warm start's transcripts or the evaluation, too."""


class Experiment(BaseModel):
    """The file of an experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    base: str = Field(min_length=1, description="a shipped configuration, or a file (beside this one, or anywhere)")
    set: dict[str, JsonValue] = Field(default={}, description="what all variants change of it, nested as it is")
    seeds: tuple[Seed, ...] = Field(min_length=1, description="each is seed and world.seed of a run")
    variants: dict[str, dict[str, JsonValue]] = Field(min_length=1, description="what each changes, nested")
    variant_seeds: dict[str, tuple[Seed, ...]] = Field(default={}, description="variants with some of the seeds only")
    primary: Primary = Field(default="test/sampled/exact_match", description="what decides, fixed beforehand")
    last: int = Field(default=3, ge=1, description="evaluations whose mean is a run's level on validation")
    threshold: float = Field(default=0.5, gt=0, le=1, description="a level on validation to be reached")
    comparisons: tuple[tuple[str, str], ...] = Field(default=(), description="pairs of a variant and its baseline")
    notes: str = Field(default="", description="kept in the summary")

    @field_validator("set", "variants", "variant_seeds", mode="before")
    @classmethod
    def _empty_is_nothing(cls, value: object) -> object:
        """`dense:` without keys changes nothing."""
        if isinstance(value, dict):
            return {key: {} if inner is None else inner for key, inner in value.items()}
        return {} if value is None else value


@dataclass(frozen=True)
class Piece:
    """One run of an experiment; the variant "base" is the start that the others of its seed share."""

    run: str
    variant: str
    seed: int
    config: Config


@dataclass(frozen=True)
class Plan:
    """All runs of an experiment, each with a whole configuration. `pieces` go seed by seed, variants in their order."""

    name: str
    experiment: Experiment
    bases: dict[int, Piece]
    pieces: tuple[Piece, ...]


def load(path: Path) -> Experiment:
    """Read the file of an experiment. ConfigError names the file and the key that is wrong."""
    experiment = checked(Experiment, read(path), str(path))
    for problem in _contradictions(experiment):
        raise ConfigError(f"{path}: {problem}")
    return experiment


def plan(experiment: Experiment, name: str, base: dict[str, Json], source: str) -> Plan:
    """Every run with its configuration; `base` are the nested keys of the base configuration.

    ConfigError names the variant and the key that is wrong, or that breaks what the runs of a seed share.
    """
    bases: dict[int, Piece] = {}
    pieces: list[Piece] = []
    for seed in experiment.seeds:
        common = lay_over(lay_over(base, dict(experiment.set)), {"seed": seed, "world": {"seed": seed}})
        reference = parse(common, f"{source}, base and set")
        _check_reference(experiment, reference, source)
        start = lay_over(_own(common, name, BASE, seed), {"iterations": 0, "evaluation": {"test": False}})
        bases[seed] = Piece(_run(name, BASE, seed), BASE, seed, parse(start, f"{source}, base"))
        for variant, changes in experiment.variants.items():
            if seed not in experiment.variant_seeds.get(variant, experiment.seeds):
                continue
            where = f"{source}, variant {variant!r}"
            tree = lay_over(common, dict(changes))
            _check_alike(parse(tree, where), reference, where)
            test: dict[str, Json] = {"evaluation": {"test": reference.data.path is None}}
            config = parse(lay_over(_own(tree, name, variant, seed), test), where)
            pieces.append(Piece(_run(name, variant, seed), variant, seed, config))
    return Plan(name, experiment, bases, tuple(pieces))


def _run(name: str, variant: str, seed: int) -> str:
    return f"{name}-{variant}-s{seed}"


def _own(tree: dict[str, Json], name: str, variant: str, seed: int) -> dict[str, Json]:
    """With the tags by which MLflow groups the runs."""
    tags: dict[str, Json] = {"experiment": name, "variant": variant, "seed": str(seed)}
    return lay_over(tree, {"tracking": {"experiment": name, "tags": tags}})


def _contradictions(experiment: Experiment) -> list[str]:
    found = []
    for name in experiment.variants:
        if name == BASE:
            found.append(f"variants: {BASE!r} is the name of the start that all variants share")
    for where, tree in {"set": experiment.set, **{f"variants.{k}": v for k, v in experiment.variants.items()}}.items():
        found += [f"{where}: {key} is set by the experiment itself" for key in OURS if _has(tree, key.split("."))]
    if len({*experiment.seeds}) < len(experiment.seeds):
        found.append(f"seeds: one stands twice in {list(experiment.seeds)}")
    for name, seeds in experiment.variant_seeds.items():
        if name not in experiment.variants:
            found.append(f"variant_seeds: there is no variant {name!r}")
        if not seeds or not {*seeds} <= {*experiment.seeds}:
            found.append(f"variant_seeds.{name}: expected some of seeds, got {list(seeds)}")
    for pair in experiment.comparisons:
        if pair[0] == pair[1] or not {*pair} <= {*experiment.variants}:
            found.append(f"comparisons: expected two different variants, got {list(pair)}")
    return found


def _has(tree: object, parts: Sequence[str]) -> bool:
    return not parts or (isinstance(tree, dict) and parts[0] in tree and _has(tree[parts[0]], parts[1:]))


def _check_reference(experiment: Experiment, config: Config, source: str) -> None:
    evaluations = -(-config.iterations // config.evaluation.every)
    if experiment.last > evaluations:
        raise ConfigError(f"{source}: last {experiment.last} is above the {evaluations} evaluations of a run")
    if experiment.primary.startswith("test/") and config.data.path is not None:
        raise ConfigError(f"{source}: primary {experiment.primary} needs the built-in world's test split")


def _check_alike(config: Config, reference: Config, where: str) -> None:
    """The same start, the same evaluation and the same budget as all others."""
    before, after = reference.flat(), config.flat()
    for key in after:
        if key.startswith(SHARED) and key not in FREE and after[key] != before[key]:
            raise ConfigError(f"{where}: {key} is {after[key]!r}, but all variants share {before[key]!r}: use set")
    here, there = (one.rollout.questions * one.rollout.attempts for one in (config, reference))
    if here != there:
        raise ConfigError(
            f"{where}: rollout.questions x rollout.attempts is {here} trajectories an iteration, but {there} in the "
            "base: the budgets would differ"
        )
