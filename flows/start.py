"""How a run begins and goes on: its row, what may change on resume, where it goes on from.

Plain functions on the store, called while the run's lock is held. Running the stages is left to training.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from agent_r1.config import Config, parse
from agent_r1.errors import CheckpointError, ConfigError, RunError, StoreError
from agent_r1.own import digests
from agent_r1.questions.records import Json
from flows.home import (
    EVALUATES,
    check_run_name,
    context_of,
    find_row,
    noted,
    stored_context,
    stored_row,
    trajectories_of,
)
from flows.surroundings import check_files, check_surroundings
from storage import checkpoints, runs, stages
from storage.database import DuckDBPyConnection as Connection
from storage.files import replace_file
from storage.runs import RunRow
from storage.stages import StageRow
from tasks.context import RunContext
from tasks.stage import intact
from tasks.versions import code_version, library_versions

START_FROM = "start from"


@dataclass(frozen=True)
class Begun:
    """A run that may go on now, and what its user should know about that, a line each."""

    context: RunContext
    start_from: str | None
    lines: list[str]


def begin(home: Path, run: str, config: Config, start_from: str | None = None) -> Begun:
    """Make the run, or go on with the one of that name. RunError where that one computes something else.

    One that failed before any stage was finished has computed nothing: another configuration takes its place.
    """
    context = context_of(home, check_run_name(run), config)
    row = find_row(home, run)
    _check_samples_its_own(row)
    rows = [] if row is None else _stages(context)
    replaced = row is not None and not rows and not _same_start(row, config, start_from)
    if row is None or replaced:
        check_files(config)
    check_surroundings(context)
    if row is None or replaced:
        start_from = None if start_from is None else _existing_checkpoint(context, start_from)
        lines = [f"run {run}: new{f', from {start_from}' if start_from else ''}, in {home}"]
        with context.store.write() as con:
            runs.remove(con, run)
            runs.insert(con, new_row(context, START_FROM, start_from))
    else:
        stored = started_from(row)
        if start_from not in (None, stored) and not (stored or "").startswith(f"{start_from}@"):
            raise RunError(f"run {run!r} exists and starts from {stored or 'nothing'}, not from {start_from}")
        start_from = stored
        finished = _published(rows)
        fewer = [f"run {run}: {finished} iterations are done already, {config.iterations} are asked for"]
        lines = fewer if config.iterations < finished else []
        config = config.model_copy(update={"iterations": max(config.iterations, finished)})
        context = context_of(home, run, config)
        with context.store.write() as con:
            lines = [*_go_on(con, row, config), *lines]
            runs.set_status(con, run, "running")
    write_config(context)
    return Begun(context, start_from, lines)


def resume(home: Path, run: str, from_iteration: int | None = None) -> Begun:
    """Go on with a run as it is stored. RunError where there is none, or not enough of it for `from_iteration`."""
    _check_samples_its_own(stored_row(home, run))
    context = stored_context(home, run)
    if from_iteration is not None:
        _check_from(context, from_iteration)
    begun = begin(home, run, context.config, started_from(stored_row(home, run)))
    if from_iteration is not None:
        _forget_from(begun.context, from_iteration)
        begun.lines.append(f"doing iteration {from_iteration} and all after it again")
    return begun


def further(home: Path, run: str, config: Config, more: int) -> Config:
    """The configuration with so many iterations more than the run has done, or with those that it was asked for last.

    Whichever are fewer: one who was broken off is finished first, so that asking again after a crash adds nothing.
    Call it while holding the run's lock. ConfigError where `more` is below 1.
    """
    if more < 1:
        raise ConfigError(f"{more} more iterations are asked for: expected 1 or more")
    row = find_row(home, run)
    asked, done = 0, 0
    if row is not None:
        asked = parse(row.config, f"the stored configuration of run {run!r}").iterations
        done = _published(_stages(context_of(home, run, config)))
    total = done + (min(more, asked - done) if asked > done else more)
    return config.model_copy(update={"iterations": total})


def started_from(row: RunRow) -> str | None:
    """RUN@I where the run started from another run's checkpoint."""
    return noted(row, START_FROM)


def differing(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[tuple[str, Json, Json]]:
    """(key, before, after) of every key whose values differ, in the order of the configuration."""
    keys = [*after, *(key for key in before if key not in after)]
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


def rewind(context: RunContext) -> str | None:
    """Go back to the newest checkpoint that is whole, where the last one is not; the line that says so.

    Older ones may be missing by retention; they are read by nobody. CheckpointError where checkpoint 0, the reference
    of all updates, is damaged.
    """
    checkpoints.clear_drafts(context.checkpoints)
    made = _checkpoints(context)
    last = max(made, default=0)
    whole = next((i for i in sorted(made, reverse=True) if _whole(context, made[i])), None)
    if whole and context.config.ppo.kl_coefficient > 0:
        _check_reference(context, made[0])
    if not made or whole == last:
        return None
    goal = 0 if whole is None else whole + 1
    _forget_from(context, goal)
    return f"checkpoint {last} is missing or damaged: going on from {'the beginning' if whole is None else whole}"


def _check_samples_its_own(row: RunRow | None) -> None:
    source = None if row is None else trajectories_of(row)
    if row is not None and source is not None:
        raise RunError(
            f"run {row.run!r} cannot be trained: policies of run {source!r} sampled its trajectories, so all updates "
            f"after the first would be off-policy. Use: agent-r1 train --run NEW --from {source}@0 --set rewards..."
        )
    answers = None if row is None else noted(row, EVALUATES)
    if row is not None and answers is not None:
        raise RunError(
            f"run {row.run!r} cannot be trained: it holds the answers of {answers}, and no policy of its own"
        )


def _same_start(row: RunRow, config: Config, start_from: str | None) -> bool:
    return row.identity == config.identity and start_from in (None, started_from(row))


def _stages(context: RunContext) -> list[StageRow]:
    with context.store.read() as con:
        return stages.of_run(con, context.run)


def _published(rows: Iterable[StageRow]) -> int:
    """How many iterations are done."""
    return max((each.iteration for each in rows if each.stage == "publish"), default=0)


def _checkpoints(context: RunContext) -> dict[int, StageRow]:
    """The stages that made checkpoints, by iteration."""
    return {row.iteration: row for row in _stages(context) if row.stage in ("warm_start", "update")}


def _whole(context: RunContext, row: StageRow) -> bool:
    """Whether the stage's checkpoint is there, each byte as it was made."""
    return _problem(context, row) is None


def _problem(context: RunContext, row: StageRow) -> str | None:
    """What is wrong with the stage's checkpoint, None where each byte is as it was made."""
    folder = context.checkpoint(row.iteration)
    try:
        checkpoints.verify(folder)
    except CheckpointError as error:
        return str(error)
    return None if intact(context.home, row.receipt) else f"{folder}: not the checkpoint that was made here"


def _check_reference(context: RunContext, row: StageRow) -> None:
    """CheckpointError where checkpoint 0 looks complete but is not; one that is gone is simply made again."""
    problem = _problem(context, row)
    if problem and intact(context.home, row.receipt):
        raise CheckpointError(
            f"checkpoint 0 of run {context.run!r}, the reference of its updates, is damaged ({problem}): restore "
            f"{context.checkpoint(0)}, or do everything again: agent-r1 resume {context.run} --from-iteration 0"
        )


def _forget_from(context: RunContext, iteration: int) -> None:
    """Forget an iteration and all after it: rows, checkpoints, and the MLflow run, where no point can be replaced."""
    with context.store.read() as con:
        row = runs.find(con, context.run)
    if row is not None and row.mlflow_run_id is not None:
        from storage.tracking import Tracker

        with suppress(StoreError, OSError):  # only a view, which must not stop the run
            Tracker(context.home, context.tracking_uri, context.config.tracking.experiment).discard(row.mlflow_run_id)
    with context.store.write() as con:
        runs.set_mlflow_run_id(con, context.run, None)
        stages.forget_from(con, context.run, iteration)
    for each in checkpoints.finished(context.checkpoints):
        if each >= iteration:
            checkpoints.remove(context.checkpoint(each))


def new_row(context: RunContext, what: str, after: str | None) -> RunRow:
    """A run that begins now; `what` notes where it comes from, unless that is nowhere."""
    now = datetime.now(UTC)
    note: dict[str, Json] = {"at": now.isoformat(), "what": what, "before": None, "after": after}
    return RunRow(
        run=context.run,
        config=context.config.model_dump(mode="json"),
        identity=context.config.identity,
        seed=context.config.seed,
        code_version=code_version(),
        library_versions=library_versions() | digests(context.config),
        status="running",
        created_at=now,
        notes=[note] if after is not None else [],
    )


def check_same(run: str, before: Config, config: Config) -> None:
    """RunError, naming the keys, where the stored run computes something else than the configuration."""
    others = differing(before.identity_keys(), config.identity_keys())
    if others:
        named = "; ".join(f"{key} is {old!r} there and {new!r} here" for key, old, new in others)
        raise RunError(f"run {run!r} exists and computes something else: {named}. Use another name")


def _go_on(con: Connection, row: RunRow, config: Config) -> list[str]:
    """Check and record what changed since the run was made; the lines that say so."""
    before = parse(row.config, f"the stored configuration of run {row.run!r}")
    check_same(row.run, before, config)
    lines = [f"run {row.run}: goes on"]
    now = datetime.now(UTC)
    for key, old, new in differing(before.flat(), config.flat()):
        lines.append(f"{key}: {old} -> {new}")
        runs.add_note(con, row.run, key, old, new, now)
    runs.set_config(con, row.run, config.model_dump(mode="json"))
    known = {"code": row.code_version, **row.library_versions}
    known |= {str(note["what"]): str(note["after"]) for note in row.notes if note["what"] in known}
    now_used = {"code": code_version(), **library_versions(), **digests(config)}
    for what, old, new in differing(known, now_used):
        lines.append(f"warning: {what} is {new} now and was {old}: results may differ")
        runs.add_note(con, row.run, what, old, new, now)
    return lines


def _check_from(context: RunContext, iteration: int) -> None:
    """RunError where the run has no checkpoint to do this iteration from."""
    if iteration < 0:
        raise ConfigError(f"--from-iteration {iteration}: expected 0 or more")
    made = _checkpoints(context)
    row = made.get(iteration - 1)
    problem = "no such checkpoint was made" if row is None else _problem(context, row)
    if iteration and problem:
        kept = ", ".join(str(i) for i in checkpoints.finished(context.checkpoints)) or "none"
        before = [i for i in range(iteration - 1) if i in made and _whole(context, made[i])]
        raise RunError(
            f"run {context.run!r}: --from-iteration {iteration} needs checkpoint {iteration - 1}, which is not kept "
            f"or damaged ({problem}; kept are: {kept}); go on with: agent-r1 resume {context.run} --from-iteration "
            f"{before[-1] + 1 if before else 0}"
        )


def _existing_checkpoint(context: RunContext, start_from: str) -> str:
    """RUN@I, the last checkpoint where no I is given. ConfigError where it is of another model."""
    other, at, text = start_from.partition("@")
    if other == context.run:
        raise ConfigError(f"--from {start_from}: a run cannot start from itself; use resume --from-iteration")
    if at and not text.isdigit():
        raise ConfigError(f"--from {start_from}: expected RUN or RUN@ITERATION")
    origin = stored_context(context.home, other)
    for key, there, here in differing(origin.config.flat(), context.config.flat()):
        if key == "model.path" or (key.startswith("model.tiny.") and context.config.model.path == "tiny"):
            raise ConfigError(f"--from {start_from}: of another model: {key} is {there} there and {here} here")
    kept = checkpoints.finished(origin.checkpoints)
    if not kept or (at and int(text) not in kept):
        raise RunError(f"--from {start_from}: no such checkpoint; {other} keeps {_listed(kept)}")
    return f"{other}@{int(text) if at else kept[-1]}"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in numbers) or "none"


def write_config(context: RunContext) -> None:
    """Write the run's config.yaml, for people."""
    text = yaml.safe_dump(context.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    replace_file(context.folder / "config.yaml", write)
