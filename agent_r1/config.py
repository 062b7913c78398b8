"""The one configuration of a run: strict, frozen, every key with its meaning. Reading YAML is left to config_file.py.

What identifies a run is every key that is not marked `operational`: those say where and how it runs, not what.
Finding shipped files is left to flows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from agent_r1.config_file import read
from agent_r1.contradictions import contradictions
from agent_r1.errors import ConfigError, did_you_mean
from agent_r1.questions.records import Json
from agent_r1.sections import (
    OPERATIONAL,
    OWN,
    AdvantageConfig,
    DataConfig,
    EvaluationConfig,
    MaskConfig,
    McpConfig,
    ModelConfig,
    PpoConfig,
    RewardConfig,
    RolloutConfig,
    SearchConfig,
    Section,
    StoreConfig,
    TrackingConfig,
    WarmStartConfig,
    WorldConfig,
)

Model = TypeVar("Model", bound=BaseModel)


class Config(Section):
    """All of it. Defaults are the quickstart's in spirit; the shipped YAML files say what they change."""

    seed: int = Field(default=0, ge=0, lt=2**63, description="of everything random but the worlds")
    iterations: int = Field(
        default=1, ge=0, description="in total, over all starts of the run", json_schema_extra=OPERATIONAL
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$",
        description="auto: CUDA where there is one, else CPU",
        json_schema_extra=OPERATIONAL,
    )
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="torch threads; none: torch's choice", json_schema_extra=OPERATIONAL
    )
    keep_checkpoints: tuple[str, ...] = Field(
        default=("last", "best"),
        description="any of last, best, all, every:N; 0 is always kept",
        json_schema_extra=OPERATIONAL,
    )
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    world: WorldConfig = WorldConfig()
    tools: tuple[str, ...] = Field(
        default=("lookup",),
        description="any of search, sql, schema, lookup, calculator, and your own as module:name; empty: none",
    )
    mcp: tuple[McpConfig, ...] = Field(default=(), description="MCP servers, whose tools are offered behind `tools`")
    environment: str = Field(
        default="tools",
        pattern=f"^tools$|{OWN}",
        description="tools: the question, and what the tools return; or a class of your own as module:name",
    )
    search: SearchConfig = SearchConfig()
    rollout: RolloutConfig = RolloutConfig()
    rewards: RewardConfig = RewardConfig()
    advantages: AdvantageConfig = AdvantageConfig()
    ppo: PpoConfig = PpoConfig()
    masks: MaskConfig = MaskConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    store: StoreConfig = StoreConfig()
    tracking: TrackingConfig = TrackingConfig()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Config:
        for problem in contradictions(self):
            raise ValueError(problem)
        return self

    @property
    def identity(self) -> str:
        """A hash of every key that says what the run computes and is not at its default.

        So a key that a later version adds, with what was done before as its default, leaves stored runs as they are. A
        default that changed shows where stored configurations are compared with new ones, key by key.
        """
        default = Config().flat()
        said = {key: value for key, value in self.identity_keys().items() if value != default[key]}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def identity_keys(self) -> dict[str, Json]:
        """The flat keys (`ppo.epochs`) and values that make up the identity."""
        return {key: value for key, value in self.flat().items() if key not in operational_keys()}

    def flat(self) -> dict[str, Json]:
        """Every key as `section.key`, values as JSON."""
        return dict(_flatten(self))


@cache
def operational_keys() -> frozenset[str]:
    """The flat keys that may change on resume without making another run."""

    def walk(model: type[BaseModel], prefix: str) -> list[str]:
        keys = []
        for name, field in model.model_fields.items():
            extra = field.json_schema_extra
            if isinstance(extra, dict) and extra.get("operational"):
                keys.append(prefix + name)
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                keys.extend(walk(field.annotation, f"{prefix}{name}."))
        return keys

    return frozenset(walk(Config, ""))


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file and apply `key.sub=value` overrides (values are YAML).

    ConfigError names the file and key for anything unknown, wrong, or contradictory.
    """
    return parse(read(path, overrides), str(path))


def parse(tree: dict[str, Json], source: str) -> Config:
    """A checked Config from nested keys; `source` names where they came from in errors."""
    return checked(Config, tree, source)


def checked(model: type[Model], tree: dict[str, Json], source: str) -> Model:
    """Any model from nested keys. ConfigError names every key that is wrong."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        known = [*_keys(model)]
        raise ConfigError(f"{source}: {'; '.join(_problem(item, known) for item in error.errors())}") from error


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key and section of a model, nested ones as `section.key`."""
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")


def _problem(item: object, known: Sequence[str]) -> str:
    assert isinstance(item, dict)
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"unknown key {key!r}{_nearest(key, known)}"
    message = str(item["msg"]).removeprefix("Value error, ")
    given = (
        ""
        if item["type"] in ("value_error", "missing") or isinstance(item["input"], dict)
        else f" (got {item['input']!r})"
    )
    return f"{key}: {message}{given}" if key else message


def _nearest(key: str, known: Sequence[str]) -> str:
    """The nearest of all keys, or the one whose last part was given without its section."""
    below = [each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]]
    return f"; did you mean {below[0]!r}?" if len(below) == 1 else did_you_mean(key, known)


def _flatten(section: BaseModel, prefix: str = "") -> list[tuple[str, Json]]:
    rows: list[tuple[str, Json]] = []
    for key, value in section.model_dump(mode="json").items():
        inner = getattr(section, key)
        rows.extend(_flatten(inner, f"{prefix}{key}.") if isinstance(inner, BaseModel) else [(prefix + key, value)])
    return rows
