"""publish: what the rows say, shown in MLflow; checkpoints that are no longer kept, removed. Both can be repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1.questions.records import Json, Question
from agent_r1.trajectory import Trajectory
from storage import checkpoints, metrics, questions, runs, trajectories
from storage.metrics import MetricRow
from storage.tracking import Status, Tracker
from tasks.retention import unkept
from tasks.stage import Connection, Receipt, RunContext, Work, run_stage
from tasks.versions import code_version

EXAMPLES = 12
TRAINED = {"mlflow.source.name": "agent-r1 train"}
STATUS: dict[str, Status] = {"running": "RUNNING", "finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


@task(name="publish", task_run_name="publish {iteration}", cache_policy=NO_CACHE, persist_result=False)
def publish(
    context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt, evaluated: Receipt | None
) -> Receipt:
    """Receipt: how many metric rows are shown. The MLflow run's id is in the table of runs."""
    del evaluated  # comes first, but is no input: whether the last iteration has one depends on `iterations`
    inputs = {"checkpoint": dict(checkpoint)}
    return run_stage(context, "publish", iteration, inputs, lambda: published(context, iteration, prepared))


def close(context: RunContext, status: str) -> None:
    """Show how the run ended, and a test that was asked for after its last publish; nothing where none was shown."""
    with context.store.read() as con:
        row = runs.find(con, context.run)
        tested = [each for each in metrics.load(con, context.run) if each.key.startswith("test/")]
    if row is not None and row.mlflow_run_id is not None:
        tracker = _tracker(context)
        tracker.log_metrics(row.mlflow_run_id, tested)
        tracker.set_status(row.mlflow_run_id, STATUS[status])


def published(context: RunContext, iteration: int, prepared: Receipt | None, tags: Mapping[str, str] = TRAINED) -> Work:
    """Show the run in MLflow up to the iteration, with its data sets where it prepared them."""
    with context.store.read() as con:
        row = runs.find(con, context.run)
        rows = [each for each in metrics.load(con, context.run) if each.iteration <= iteration]
        examples = {iteration: _examples(con, context, iteration)}
    assert row is not None
    tracker = _tracker(context)
    all_tags = {**context.config.tracking.tags, "agent_r1.code_version": code_version(), **tags}
    run_id = tracker.ensure_run(context.run, row.identity, context.config.flat(), all_tags, row.mlflow_run_id)
    tracker.set_status(run_id, "RUNNING")
    first = iteration if run_id == row.mlflow_run_id else 0  # a new MLflow run is shown everything
    if first == 0 and prepared is not None:
        _show_data(context, tracker, run_id, prepared)
    tracker.log_metrics(run_id, rows)
    if first < iteration:
        with context.store.read() as con:
            examples |= {each: _examples(con, context, each) for each in range(first, iteration)}
    for each, shown in sorted(examples.items()):
        if shown:
            tracker.log_table(run_id, f"trajectories/{each:05d}", shown)

    _retain(context, rows, iteration)

    def save(con: Connection) -> None:
        runs.set_mlflow_run_id(con, context.run, run_id)

    return Work({"metrics": len(rows)}, save)


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


def _retain(context: RunContext, rows: Sequence[MetricRow], iteration: int) -> None:
    """Remove the checkpoints before this one that keep_checkpoints does not name."""
    for each in unkept(context, rows, iteration):
        checkpoints.remove(context.checkpoint(each))
