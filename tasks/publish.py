"""publish: what the rows say, shown in MLflow; checkpoints that are no longer kept, removed. Both can be repeated.

MLflow is only a view: where it fails, the stage is done all the same, and whoever publishes next shows what is missing.
Which that is says a tag of the MLflow run itself, so a view that was lost or restored is made whole, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import yaml
from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1.errors import CheckpointError, TrackingError
from agent_r1.questions.records import Json, Question
from agent_r1.trajectory import Purpose, Trajectory
from storage import annotations, checkpoints, metrics, questions, runs, trajectories
from storage.metrics import MetricRow
from storage.runs import EVALUATES, TRAJECTORIES_OF, RunRow, noted
from storage.tracking import Best, Status, Traced, Tracker
from tasks.retention import best_iteration, kept, unkept
from tasks.stage import Connection, Receipt, RunContext, Work, run_stage
from tasks.versions import code_version

EXAMPLES = 12
STATUS: dict[str, Status] = {"running": "RUNNING", "finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
CURVES = "curves.png"
SCORES = ("eval/sampled/exact_match", "eval/greedy/exact_match")

log = logging.getLogger("agent_r1.publish")


@dataclass(frozen=True)
class Stored:
    """What the store says of a run, up to an iteration."""

    row: RunRow
    metrics: list[MetricRow]
    iteration: int


@task(name="publish", task_run_name="publish {iteration}", cache_policy=NO_CACHE, persist_result=False)
def publish(
    context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt, evaluated: Receipt | None
) -> Receipt:
    """Receipt: how many metric rows there are to show. The MLflow run's id is in the table of runs."""
    del evaluated  # comes first, but is no input: whether the last iteration has one depends on `iterations`
    inputs = {"checkpoint": dict(checkpoint)}
    return run_stage(context, "publish", iteration, inputs, lambda: published(context, iteration, prepared))


def published(context: RunContext, iteration: int, prepared: Receipt | None) -> Work:
    """Show the run in MLflow up to the iteration, with its data sets where it prepared them."""
    stored = _stored(context, iteration)
    run_id = _tried(context, lambda: _show(context, stored, prepared, "running"))
    for each in unkept(context, stored.metrics, iteration):
        checkpoints.remove(context.checkpoint(each))

    def save(con: Connection) -> None:
        if run_id is not None:
            runs.set_mlflow_run_id(con, context.run, run_id)

    return Work({"metrics": len(stored.metrics)}, save)


def close(context: RunContext, status: str, draw: Callable[[Sequence[MetricRow]], bytes] | None = None) -> None:
    """Show how the run ended and what is missing of its published iterations; `draw` makes a picture of its curves.

    Also a test that was asked for after the last publish. Nothing where no iteration was published.
    """
    done = [row.iteration for row in context.ledger.rows if row.stage == "publish"]
    if not done:
        return
    stored = _stored(context, max(done))
    prepared = context.ledger.find(0, "prepare")

    def show() -> str:
        run_id = _show(context, stored, None if prepared is None else prepared.receipt, status)
        if draw is not None:
            _tracker(context).log_file(run_id, CURVES, draw(stored.metrics))
        return run_id

    run_id = _tried(context, show)
    if run_id is not None and run_id != stored.row.mlflow_run_id:
        with context.store.write() as con:
            runs.set_mlflow_run_id(con, context.run, run_id)


def _stored(context: RunContext, iteration: int) -> Stored:
    with context.store.read() as con:
        row = runs.find(con, context.run)
        rows = [each for each in metrics.load(con, context.run) if each.iteration <= iteration]
    assert row is not None
    return Stored(row, rows, iteration)


def _tried(context: RunContext, show: Callable[[], str]) -> str | None:
    """What `show` returns, None where MLflow fails: a warning that says so, for the run goes on."""
    try:
        return show()
    except TrackingError as error:
        log.warning("run %s is not shown for now, the next publish or resume catches up: %s", context.run, error)
        return None


def _show(context: RunContext, stored: Stored, prepared: Receipt | None, status: str) -> str:
    """Everything that is missing in MLflow, and how the run stands; the id of the MLflow run."""
    tracker, row = _tracker(context), stored.row
    tags = {**context.config.tracking.tags, **_code(), **_source(row)}
    run_id = tracker.ensure_run(context.run, row.identity, context.config.flat(), tags, row.mlflow_run_id)
    tracker.set_status(run_id, STATUS[status])
    shown = tracker.shown(run_id)
    if shown < 0:
        tracker.log_text(run_id, "config.yaml", yaml.safe_dump(row.config, sort_keys=False, allow_unicode=True))
        if prepared is not None:
            _show_data(context, tracker, run_id, prepared)
    tracker.log_metrics(run_id, [each for each in stored.metrics if each.iteration >= shown])
    for iteration in range(shown + 1, stored.iteration + 1):
        with context.store.read() as con:
            examples, traced = _examples(con, context, iteration), _traced(con, context, iteration, stored.metrics)
        if examples:
            tracker.log_table(run_id, f"trajectories/{iteration:05d}", examples)
        tracker.log_traces(run_id, traced)
    tracker.register(context.run, run_id, _best(context, stored))
    if shown < stored.iteration:
        tracker.set_shown(run_id, stored.iteration)
    return run_id


def _code() -> dict[str, str]:
    """The version of the code, for us and as MLflow's pages show it."""
    version = code_version()
    _, _, commit = version.partition(" ")
    return {
        "agent_r1.code_version": version,
        **({"mlflow.source.git.commit": commit.removesuffix("+dirty")} if commit else {}),
    }


def _source(row: RunRow) -> dict[str, str]:
    """The command that made the run."""
    origin, answers = noted(row, TRAJECTORIES_OF), noted(row, EVALUATES)
    if origin is not None:
        return {"mlflow.source.name": "agent-r1 reannotate", "agent_r1.trajectories_of": origin}
    if answers is not None:
        return {"mlflow.source.name": "agent-r1 evaluate", "agent_r1.evaluates": answers}
    return {"mlflow.source.name": "agent-r1 train"}


def _tracker(context: RunContext) -> Tracker:
    return Tracker(context.home, context.tracking_uri, context.config.tracking.experiment)


def _show_data(context: RunContext, tracker: Tracker, run_id: str, prepared: Receipt) -> None:
    """The data sets: each split's counts, and as digest the hash of its question ids."""
    counts, files = prepared["questions"], prepared["files"]
    assert isinstance(counts, dict)
    assert isinstance(files, dict)
    for split, count in counts.items():
        digest = str(files[context.name(context.data / split / "questions.txt")])
        source = context.config.data.path or "the built-in world"
        tracker.log_dataset(run_id, split, digest, source, split, {"questions": count})


def _examples(con: Connection, context: RunContext, iteration: int) -> list[Mapping[str, Json]]:
    """Some trajectories to read: of the evaluation where there was one, else of the rollout."""
    for purpose in ("sampled", "train"):
        found = trajectories.load(con, context.run, iteration, purpose, limit=EXAMPLES)
        if found:
            asked = questions.load(con, [each.question_id for each in found])
            return [_example(each, question) for each, question in zip(found, asked, strict=True)]
    return []


def _example(trajectory: Trajectory, question: Question) -> Mapping[str, Json]:
    turns = [f"{turn.action_text}\n-> {turn.observation_text}".removesuffix("\n-> ") for turn in trajectory.turns]
    return {
        "trajectory": trajectory.trajectory_id,
        "question": question.text,
        "gold": " | ".join(question.answers),
        "answer": trajectory.answer,
        "exact_match": trajectory.exact_match,
        "ending": trajectory.ending,
        "turns": "\n".join(turns),
    }


def _traced(con: Connection, context: RunContext, iteration: int, rows: Sequence[MetricRow]) -> list[Traced]:
    """The first trajectories of the evaluation, of the same questions each time, and as many of the rollout."""
    each = context.config.tracking.traces
    ended = {row.stage: row.at for row in rows if row.iteration == iteration}
    wanted: tuple[tuple[Purpose, str, int], ...] = (
        ("sampled", "evaluate", (each + 1) // 2),
        ("train", "rollout", each // 2),
    )
    found: list[Traced] = []
    for purpose, stage, number in wanted:
        some = trajectories.load(con, context.run, iteration, purpose, limit=number) if number else []
        if not some:
            continue
        asked = questions.load(con, [trajectory.question_id for trajectory in some])
        at = ended.get(stage) or ended.get("annotate") or datetime.fromtimestamp(0, UTC)
        rewards = annotations.reward_parts(con, context.run, iteration, [one.trajectory_id for one in some])
        found += [
            Traced(one, question, at, rewards.get(one.trajectory_id, {}))
            for one, question in zip(some, asked, strict=True)
        ]
    return found


def _best(context: RunContext, stored: Stored) -> Best | None:
    """The best checkpoint by the configuration's metric, where it is kept."""
    best = best_iteration(context, stored.metrics, stored.iteration)
    if best is None or best not in kept(context, stored.metrics, stored.iteration):
        return None
    folder = context.checkpoint(best)
    try:
        weights = checkpoints.read_manifest(folder).weights
    except CheckpointError:  # damaged: nothing to show; who needs it says so
        return None
    values = {
        each.key: f"{each.value:.6g}"
        for each in stored.metrics
        if each.iteration == best and each.key in {context.config.evaluation.metric, *SCORES}
    }
    return Best(folder / "policy", weights, {"run": context.run, "iteration": str(best), **values})
