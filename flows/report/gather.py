"""Everything that a report says, out of the store in one look: brief, reading only, also beside a run that goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_r1.errors import AgentR1Error
from agent_r1.questions.records import Json
from flows import reports
from flows.home import all_rows, find_home, stored_context, stored_row, trajectories_of
from flows.report import words
from flows.report.curves import Chart, charts
from flows.report.packing import Decode, pack
from flows.report.sample import RULE, choose
from flows.report.words import Figure
from flows.tables import Grid
from storage import annotations, metrics, questions, stages, trajectories
from storage.runs import RunRow
from tasks.context import RunContext

if TYPE_CHECKING:
    from agent_r1.trajectory import Trajectory

SIBLINGS = 20  # other seeds that are drawn
TRAJECTORIES = 1200


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
        lead=words.lead(context.config, row, status, values),
        figures=words.figures(context.config, row, values, done, outlines),
        alarms=_alarms(home, run),
        facts=words.facts(context.config, row, done),
        notes=[words.note(note) for note in row.notes],
        remarks=remarks,
        grids=words.grids(run, context.config, values, done),
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


def _alarms(home: Path, run: str) -> list[tuple[str, str, str]]:
    found = reports.diagnosis(home, run).json
    assert isinstance(found, dict)
    alarms = found["alarms"]
    assert isinstance(alarms, list)
    return [(str(each["alarm"]), str(each["seen"]), str(each["try"])) for each in alarms if isinstance(each, dict)]
