"""Everything that a report says, out of the store, in one look: briefly, reading only, also beside a run that goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_r1.config import Config
from agent_r1.errors import AgentR1Error
from agent_r1.questions.records import Json
from flows import reports, tables
from flows.home import EVALUATES, all_rows, find_home, noted, stored_context, stored_row, trajectories_of
from flows.report.curves import Chart, charts
from flows.report.packing import Decode, pack
from flows.report.sample import RULE, choose
from flows.tables import Grid
from storage import annotations, metrics, questions, stages, trajectories
from storage.metrics import MetricRow
from storage.runs import RunRow
from storage.stages import StageRow
from storage.trajectories import Outline
from tasks.context import RunContext
from tasks.versions import machine

if TYPE_CHECKING:
    from agent_r1.trajectory import Trajectory

SIBLINGS = 20  # other seeds that are drawn
TRAJECTORIES = 1200


@dataclass(frozen=True)
class Figure:
    """A number worth a large print: what it is, the number, and what to compare it with."""

    name: str
    value: str
    beside: str


@dataclass(frozen=True)
class Sample:
    """The trajectories that are shown, packed, of how many, and by which rule."""

    shown: int
    stored: int
    rule: str
    packed: dict[str, Json]


@dataclass(frozen=True)
class Report:
    """All of a page. `alarms` are (name, what was seen, what to try); `facts` are for reading, by what they are."""

    run: str
    status: str
    lead: str
    figures: Sequence[Figure]
    alarms: Sequence[tuple[str, str, str]]
    facts: Mapping[str, str]
    notes: Sequence[str]
    remarks: Sequence[str]
    grids: Sequence[Grid]
    charts: Sequence[Chart]
    sample: Sample


def gather(home: Path, run: str, count: int = TRAJECTORIES) -> Report:
    """The report of a run with at most `count` trajectories. RunError where there is no such run."""
    home = find_home(home)
    row, context = stored_row(home, run), stored_context(home, run)
    siblings = _siblings(all_rows(home), row)
    with context.store.read() as con:
        values = metrics.load(con, run)
        others = [metrics.load(con, each) for each in siblings]
        done = stages.of_run(con, run)
        outlines = trajectories.outlines(con, run)
        ids = [each.trajectory_id for each in choose(outlines, count)]
        chosen = trajectories.some(con, run, ids)
        marked, credited = annotations.load(con, run, ids=ids), annotations.load_credits(con, run, ids=ids)
        asked = questions.known(con, {each.question_id for each in chosen})
    decode, remarks = _decode(stored_context(home, trajectories_of(row) or run), chosen)
    if siblings:
        remarks.append(f"Thin lines and bands are other seeds of the same variant: {', '.join(siblings)}.")
    status = reports.status(home, row)
    return Report(
        run=run,
        status=status,
        lead=_lead(context.config, row, status, values),
        figures=_figures(context.config, values, done, outlines),
        alarms=_alarms(home, run),
        facts=_facts(context, row, done),
        notes=[_note(note) for note in row.notes],
        remarks=remarks,
        grids=_grids(run, context.config, values, done),
        charts=charts(values, others),
        sample=Sample(len(chosen), len(outlines), RULE, pack(chosen, marked, credited, asked, decode)),
    )


def _siblings(rows: Sequence[RunRow], own: RunRow) -> list[str]:
    """The other runs of the same variant of the same experiment."""
    variant = _variant(own)
    found = [row.run for row in rows if variant is not None and row.run != own.run and _variant(row) == variant]
    return found[:SIBLINGS]


def _variant(row: RunRow) -> tuple[Json, Json] | None:
    tracking = row.config.get("tracking")
    tags = tracking.get("tags") if isinstance(tracking, dict) else None
    if not isinstance(tags, dict) or not {"experiment", "variant", "seed"} <= set(tags):
        return None
    return tags["experiment"], tags["variant"]


def _decode(context: RunContext, chosen: Sequence[Trajectory]) -> tuple[Decode, list[str]]:
    """Ids to text by the run's tokenizer, and what to know about it; to numbers where it keeps none."""
    turns = [turn for each in chosen for turn in each.turns]
    if not turns:
        return str, []
    try:
        return reports.decoder(context, turns, chosen[-1].checkpoint), []
    except AgentR1Error as error:
        said = f"Tokens are shown as numbers: {error}."
        return lambda ids: "".join(f"‹{token}›" for token in ids), [said]


def _lead(config: Config, row: RunRow, status: str, values: Sequence[MetricRow]) -> str:
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
    how = "Nothing is measured yet" if last is None else f"{status.capitalize()}, {last} of {config.iterations} iterations"
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


def _figures(
    config: Config, values: Sequence[MetricRow], done: Sequence[StageRow], outlines: Sequence[Outline]
) -> list[Figure]:
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
    found.append(Figure("trajectories trained on", f"{trained:,}", f"{len(outlines) - trained:,} more in evaluations"))
    seconds = sum((row.finished_at - row.started_at).total_seconds() for row in done)
    found.append(Figure("time in stages", _duration(seconds), f"{len({row.iteration for row in done})} iterations"))
    return found


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _alarms(home: Path, run: str) -> list[tuple[str, str, str]]:
    found = reports.diagnosis(home, run).json
    assert isinstance(found, dict)
    alarms = found["alarms"]
    assert isinstance(alarms, list)
    return [(str(each["alarm"]), str(each["seen"]), str(each["try"])) for each in alarms if isinstance(each, dict)]


def _facts(context: RunContext, row: RunRow, done: Sequence[StageRow]) -> dict[str, str]:
    config, here = context.config, machine()
    model = config.model.path
    if model == "tiny":
        model = f"tiny, from nothing: {config.model.tiny.layers} layers, {config.model.tiny.width} wide"
    if config.model.lora.rank:
        model += f", adapters of rank {config.model.lora.rank}"
    counts = next((each.receipt.get("questions") for each in done if each.stage == "prepare"), None)
    asked = ", ".join(f"{number} {split}" for split, number in counts.items()) if isinstance(counts, dict) else ""
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
        "Draw of an iteration": f"{rollout.questions} questions, {rollout.attempts} attempts each",
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


def _note(note: Mapping[str, Json]) -> str:
    return f"{str(note['at'])[:16].replace('T', ' ')} {note['what']}: {note['before']} -> {note['after']}"


def _grids(run: str, config: Config, values: Sequence[MetricRow], done: Sequence[StageRow]) -> list[Grid]:
    flat, default = config.flat(), Config().flat()
    changed: list[list[Json]] = [
        [key, _shown(value), _shown(default.get(key))]
        for key, value in flat.items()
        if value != default.get(key)
    ]
    every: list[list[Json]] = [[key, _shown(value)] for key, value in flat.items()]
    return [
        Grid("Configuration that differs from the defaults", ("key", "value", "default"), changed),
        Grid("All of the configuration", ("key", "value"), every),
        tables.learning(run, values),
        tables.stage_times(run, done),
    ]
