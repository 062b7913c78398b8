"""What a report says of a run beside its curves: its result in a line, large numbers, facts, tables.

Pure functions of stored rows; the machine that a page is made on is the one thing that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_r1.config import Config
from agent_r1.questions.records import Json
from flows import tables
from flows.home import EVALUATES, noted, trajectories_of
from flows.tables import Grid
from storage.metrics import MetricRow
from storage.runs import RunRow
from storage.stages import StageRow
from storage.trajectories import Outline
from tasks.versions import machine


@dataclass(frozen=True)
class Figure:
    """A number worth a large print: what it is, the number, and what to compare it with."""

    name: str
    value: str
    beside: str


def lead(config: Config, row: RunRow, status: str, values: Sequence[MetricRow]) -> str:
    """How it stands and what it reached, in one line."""
    answers = noted(row, EVALUATES)
    if answers is not None:
        return f"Answers of {answers}: nothing is trained in this run."
    source = trajectories_of(row)
    if source is not None:
        return f"Trajectories of {source} at other prices: nothing is sampled or trained in this run."
    key = config.evaluation.metric
    points = {each.iteration: each.value for each in values if each.key == key and each.value == each.value}
    last = max((each.iteration for each in values), default=None)
    reached = f"{status.capitalize()}, {last} of {config.iterations} iterations"
    how = "Nothing is measured yet" if last is None else reached
    if not points:
        return f"{how}."
    first, best, end = min(points), max(points, key=lambda each: (points[each], -each)), max(points)
    return (
        f"{how}: {_named(key)} from {points[first]:.3f} at iteration {first} to {points[end]:.3f} at {end}; "
        f"best {points[best]:.3f} at {best}."
    )


def _named(key: str) -> str:
    """ "eval/sampled/exact_match" as people say it."""
    group, _, rest = key.partition("/")
    return f"{rest.replace('/', ' ').replace('_', ' ')} on validation" if group == "eval" else key


def figures(
    config: Config, row: RunRow, values: Sequence[MetricRow], done: Sequence[StageRow], outlines: Sequence[Outline]
) -> list[Figure]:
    """Numbers worth a large print."""
    found: list[Figure] = []
    named = {
        config.evaluation.metric: _named(config.evaluation.metric),
        "eval/sampled/exact_match": "sampled exact match on validation",
        "eval/greedy/exact_match": "greedy exact match on validation",
        tables.REWARD: "reward of a rollout",
        "rollout/tool_calls_mean": "tool calls of a rollout",
    }
    for key, name in named.items():
        series = [(row.iteration, row.value) for row in values if row.key == key and row.value == row.value]
        if series:
            (start, first), (_, last) = series[0], series[-1]
            beside = f"{first:.3f} at iteration {start}" if len(series) > 1 else f"at iteration {start}"
            found.append(Figure(name, f"{last:.3f}", beside))
    trained = sum(each.purpose == "train" for each in outlines)
    use = "priced anew" if trajectories_of(row) is not None else "trained on"
    found.append(Figure(f"trajectories {use}", f"{trained:,}", f"{len(outlines) - trained:,} more in evaluations"))
    seconds = sum((row.finished_at - row.started_at).total_seconds() for row in done)
    iterations = len({row.iteration for row in done if row.iteration})
    found.append(Figure("time in stages", _duration(seconds), f"{_count(iterations, 'iteration')} and the start"))
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def facts(config: Config, row: RunRow, done: Sequence[StageRow]) -> dict[str, str]:
    """What was trained on what, with what, when and where."""
    here = machine()
    model = config.model.path
    if model == "tiny":
        model = f"tiny, from nothing: {config.model.tiny.layers} layers, {config.model.tiny.width} wide"
    if config.model.lora.rank:
        model += f", adapters of rank {config.model.lora.rank}"
    counts = next((each.receipt.get("questions") for each in done if each.stage == "prepare"), None)
    splits = counts if isinstance(counts, dict) else {}
    asked = ", ".join(f"{number} {split.replace('_', ' ')}" for split, number in splits.items())
    hops = ", ".join(str(each) for each in config.world.hops)
    data = config.data.path or f"the built-in world (seed {config.world.seed}; questions of {hops} hops)"
    tools = [*config.tools, *(f"MCP: {' '.join(each.command)}" for each in config.mcp)]
    rollout = config.rollout
    code = {each.code_version: None for each in done} or {row.code_version: None}
    return {
        "Model": model,
        "Data": data,
        "Questions": asked or "none prepared yet",
        "Tools": ", ".join(tools) or "none",
        "Environment": config.environment,
        "Draw of an iteration": f"{rollout.questions} questions, {_count(rollout.attempts, 'attempt')} at each",
        "Engine": rollout.engine,
        "Credit": config.advantages.estimator,
        "Seed": str(row.seed),
        "Identity": row.identity,
        "Started": row.created_at.strftime("%Y-%m-%d %H:%M UTC"),
        "Last stage ended": f"{max(each.finished_at for each in done):%Y-%m-%d %H:%M UTC}" if done else "none yet",
        "Agent-R1": ", ".join(code),
        "Libraries": ", ".join(f"{name} {version}" for name, version in row.library_versions.items()),
        "This page was made on": f"{here['processor']} ({here['architecture']}, {here['cpus']} processors)",
    }


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def note(note: Mapping[str, Json]) -> str:
    """A change on resume, as a line."""
    return f"{str(note['at'])[:16].replace('T', ' ')} {note['what']}: {note['before']} -> {note['after']}"


def grids(run: str, config: Config, values: Sequence[MetricRow], done: Sequence[StageRow]) -> list[Grid]:
    """Configuration, learning and times as tables."""
    flat, default = config.flat(), Config().flat()
    changed: list[list[Json]] = [
        [key, _shown(value), _shown(default.get(key))] for key, value in flat.items() if value != default.get(key)
    ]
    every: list[list[Json]] = [[key, _shown(value)] for key, value in flat.items()]
    return [
        Grid("Configuration that differs from the defaults", ("key", "value", "default"), changed),
        Grid("All of the configuration", ("key", "value"), every),
        tables.learning(run, values),
        tables.stage_times(run, done),
    ]
