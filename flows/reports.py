"""What the reading commands answer: rows of the store gathered into views, for a terminal or as JSON.

How tables look is left to tables.py, how a trajectory looks to trajectory_view.py.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from agent_r1.alarms import Alarm
from agent_r1.diagnosis import diagnose
from agent_r1.errors import RunError
from agent_r1.history import History, history
from agent_r1.questions.records import Json
from agent_r1.trajectory import Turn
from flows import progress, tables, trajectory_view
from flows.home import EVALUATES, all_rows, find_home, noted, stored_context, stored_row, trajectories_of
from flows.locks import holder
from flows.tables import Grid
from storage import metrics, stages
from storage.addresses import without_login
from storage.database import Store
from storage.metrics import MetricRow
from storage.runs import RunRow
from storage.stages import StageRow
from tasks.context import STORE, RunContext

if TYPE_CHECKING:
    from flows.evaluation import Result


@dataclass(frozen=True)
class View:
    """One answer in two forms."""

    json: Json
    draw: Callable[[Console], None]

    def json_text(self) -> str:
        """The JSON form as text."""
        return tables.as_json(self.json)


def runs(home: Path) -> View:
    """All runs of a home."""
    home = find_home(home)
    rows = all_rows(home)
    done: dict[str, list[StageRow]] = {}
    if rows:
        with Store(home / STORE).read() as con:
            done = {row.run: stages.of_run(con, row.run) for row in rows}
    return _grids(tables.run_list(rows, done, {row.run: status(home, row) for row in rows}))


def status(home: Path, row: RunRow) -> str:
    """The stored status; "killed" where a run says that it is running and no process works on it."""
    alive = holder(home / "runs" / row.run) is not None
    return "killed" if row.status == "running" and not alive else row.status


def run(home: Path, name: str) -> View:
    """How a run stands: its row, its learning, its stages."""
    home = find_home(home)
    row, context = stored_row(home, name), stored_context(home, name)
    with context.store.read() as con:
        values, done = metrics.load(con, name), stages.of_run(con, name)
    grids = (tables.learning(name, values), tables.stage_times(name, done))
    facts: dict[str, Json] = {
        "run": name,
        "status": status(home, row),
        "iterations": context.config.iterations,
        "identity": row.identity,
        "seed": row.seed,
        "code_version": row.code_version,
        "folder": str(context.folder),
    }
    redone = [f"{stage.stage} {stage.iteration}" for stage in done if stage.attempt > 1]

    def draw(console: Console) -> None:
        for key, value in facts.items():
            console.print(Text(f"{key:12} {value}"), soft_wrap=True)
        for note in row.notes:
            console.print(Text(f"note         {note['at']} {note['what']}: {note['before']} -> {note['after']}"))
        if redone:
            console.print(Text(f"done again   {', '.join(redone)}"))
        console.print()
        tables.show(console, *grids)

    everything: dict[str, Json] = {
        **facts,
        "config": row.config,
        "library_versions": dict(row.library_versions),
        "notes": list(row.notes),
        "learning": grids[0].records(),
        "stages": tables.stage_records(done),
    }
    return View(everything, draw)


def iteration(home: Path, name: str, number: int, every: bool) -> View:
    """The metrics of an iteration and its trajectories: some, or every one."""
    context = stored_context(find_home(home), name)
    with context.store.read() as con:
        values = {row.key: row.value for row in metrics.load(con, name) if row.iteration == number}
    listing = trajectory_view.listing(context, number, every)
    if not values and not listing.rows:
        raise RunError(f"run {name!r} has nothing of iteration {number}")
    grids = {"metrics": tables.metric_list(f"{name}: metrics of iteration {number}", values), "trajectories": listing}
    return View(
        {key: grid.records() for key, grid in grids.items()}, lambda console: tables.show(console, *grids.values())
    )


def trajectory(home: Path, name: str, wanted: str) -> View:
    """One trajectory, turn by turn."""
    home = find_home(home)
    context = stored_context(home, name)
    sampled_by = stored_context(home, trajectories_of(stored_row(home, name)) or name)
    found = trajectory_view.find(context, wanted)
    marked, credited = trajectory_view.notes_of(context, found)

    def draw(console: Console) -> None:
        decode = decoder(sampled_by, found.turns, found.checkpoint)
        trajectory_view.render(console, found, marked, credited, decode)

    return View(trajectory_view.record(found, marked, credited), draw)


def comparison(home: Path, names: Sequence[str]) -> View:
    """Runs side by side."""
    home = find_home(home)
    contexts = {name: stored_context(home, name) for name in names}
    with next(iter(contexts.values())).store.read() as con:
        values = {name: metrics.load(con, name) for name in contexts}
    configs = {name: context.config for name, context in contexts.items()}
    return _grids(
        by_iteration=tables.side_by_side(values),
        summary=tables.summary(values),
        diagnostics=tables.diagnostics(values),
        config=tables.config_differences(configs),
    )


def diagnosis(home: Path, name: str) -> View:
    """How a run stands, and every alarm that its metrics raise."""
    home = find_home(home)
    row, context = stored_row(home, name), stored_context(home, name)
    answers = noted(row, EVALUATES)
    with context.store.read() as con:
        seen = _history(context, metrics.load(con, name), evaluated=trajectories_of(row) is None)
    alarms = [] if answers is not None else _alarms(context, seen)
    facts: dict[str, Json] = {
        "run": name,
        "status": status(home, row),
        "iterations": seen.last,
        "evaluations": len(seen.series(seen.score)),
    }
    healthy = "nothing wrong was seen" if seen.last else "no iteration is done yet, and nothing wrong was seen"
    if answers is not None:
        healthy = f"answers of {answers}; alarms are about training"

    def draw(console: Console) -> None:
        counts = f"iterations {seen.last}, evaluations {facts['evaluations']}"
        console.print(Text(f"{name}: {facts['status']}, {counts}: {healthy if not alarms else 'see the alarms'}"))
        for alarm in alarms:
            console.print(Text(f"{_alarm_line(alarm)}\n  try: {alarm.advice}"), soft_wrap=True)

    listed: list[Json] = [{"alarm": alarm.name, "seen": alarm.seen, "try": alarm.advice} for alarm in alarms]
    return View({**facts, "alarms": listed}, draw)


def reannotated(home: Path, run: str, name: str) -> View:
    """What one run's trajectories are paid by another's prices, by component."""
    context = stored_context(home, name)
    with context.store.read() as con:
        before, after = metrics.load(con, run), metrics.load(con, name)
    return _grids(rewards=tables.reward_change(run, before, name, after))


def evaluation(title: str, values: Mapping[str, float]) -> View:
    """The metrics of one evaluation."""
    grid = tables.metric_list(title, values)
    return View(dict(values), lambda console: tables.show(console, grid))


def methods(target: str, results: Sequence[Result]) -> View:
    """What several methods answered, or one of several files: by data set and by hops."""
    grid = tables.methods(target, [(each.method, each.asked, score) for each in results for score in each.scores])
    rows: list[Json] = [
        {
            "method": each.method,
            "data": each.asked,
            "dataset": score.dataset,
            "hops": score.hops,
            "questions": score.questions,
            "metrics": dict(score.metrics),
        }
        for each in results
        for score in each.scores
    ]
    return View(rows, lambda console: tables.show(console, grid))


def after_training(context: RunContext, home_option: str) -> View:
    """What was learned, which alarms that raises, and what to open next."""
    with context.store.read() as con:
        rows = metrics.load(con, context.run)
    grid = tables.learning(context.run, rows)
    alarms = [_alarm_line(alarm) for alarm in _alarms(context, _history(context, rows, evaluated=True))]
    name = context.run
    remote = context.tracking_uri or ""
    ui = f"agent-r1 ui{home_option}"
    if remote.startswith(("http://", "https://")):
        ui = without_login(remote)
    where = f"trajectories.run = $${name}$$"  # DuckDB's other quotes: no ' inside the shell's
    sql = f"SELECT * FROM trajectories JOIN annotations USING (trajectory_id) WHERE {where} LIMIT 5"
    store = json.dumps(str(context.home / STORE), ensure_ascii=False)
    query = f'import duckdb; print(duckdb.connect({store}, read_only=True).sql("{sql}"))'
    hints = {
        **({"what to try against alarms": f"agent-r1 doctor {name}{home_option}"} if alarms else {}),
        "an iteration, its trajectories": f"agent-r1 show {name} --iteration {context.config.iterations}{home_option}",
        "all of it on one page": f"agent-r1 report {name}{home_option}",
        "runs side by side": f"agent-r1 compare {name} OTHER{home_option}",
        "curves and tables": ui,
        "every row": f"python -c {shlex.quote(query)}",
    }

    def draw(console: Console) -> None:
        console.print()
        tables.show(console, grid)
        for line in alarms:
            console.print(Text(line), soft_wrap=True)
        console.print(Text("What to open next", style="bold"))
        for what, command in hints.items():
            console.print(Text(f"  {what}:\n    {command}"), soft_wrap=True)

    return View({"learning": grid.records(), "alarms": [*alarms]}, draw)


def last_line(context: RunContext) -> str:
    """How a run that ended stands, for a log: its last results, and the names of its alarms."""
    with context.store.read() as con:
        rows = metrics.load(con, context.run)
    line = progress.iteration_line(rows, max((row.iteration for row in rows), default=0), context.config.iterations)
    alarms = ", ".join(alarm.name for alarm in _alarms(context, _history(context, rows, evaluated=True)))
    return f"{context.run}: finished, {line.partition('  |')[0]}{f'; alarms: {alarms}' if alarms else ''}"


def _history(context: RunContext, rows: Sequence[MetricRow], *, evaluated: bool) -> History:
    return history(
        ((row.iteration, row.key, row.value) for row in rows),
        context.config.evaluation.metric,
        evaluated=evaluated,
        grouped=context.config.advantages.grouped,
    )


def _alarms(context: RunContext, seen: History) -> list[Alarm]:
    """What the metrics raise; that nothing is called is no alarm where there is nothing to call."""
    config = context.config
    return [alarm for alarm in diagnose(seen) if alarm.name != "no_call" or config.tools or config.mcp]


def _alarm_line(alarm: Alarm) -> str:
    return f"alarm {alarm.name}: {alarm.seen}"


def _grids(grid: Grid | None = None, **named: Grid) -> View:
    if grid is not None:
        return View(grid.records(), lambda console: tables.show(console, grid))
    records: dict[str, Json] = {name: one.records() for name, one in named.items()}
    return View(records, lambda console: tables.show(console, *named.values()))


def decoder(context: RunContext, turns: Sequence[Turn], checkpoint: int) -> trajectory_view.Decode:
    """Ids to text by the tokenizer of the trajectory's checkpoint, or another's of the run where that is gone.

    A run that only evaluates keeps one without a checkpoint.
    """
    from agent_r1.chat import load_tokenizer

    kept = [context.checkpoint(checkpoint), *sorted(context.checkpoints.glob("[0-9]*")), context.folder]
    policy = next((folder / "policy" for folder in kept if (folder / "policy" / "tokenizer.json").is_file()), None)
    if policy is None:
        raise RunError(
            f"run {context.run!r} keeps no tokenizer to show {len(turns)} turns with; --json shows the texts"
        )
    tokenizer = load_tokenizer(policy)
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))
