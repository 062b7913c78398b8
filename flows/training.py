"""The training flow: the DAG of a run in the order in which it happens.

What surrounds it is left to session.py, what each stage does to tasks, when a stage is skipped to tasks/stage.py.
"""

from __future__ import annotations

import logging
from pathlib import Path

from prefect import flow, tags
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext, TagsContext

from flows import iteration_page, screens
from flows.home import stored_context, stored_row
from flows.progress import Progress
from flows.start import started_from
from storage import metrics, questions, trajectories
from tasks import annotate, evaluate, prepare, publish, rollout, test, update, warm_start
from tasks.context import RunContext
from tasks.stage import Receipt

log = logging.getLogger("agent_r1.training")


@flow(name="agent-r1 train", flow_run_name="{run}", persist_result=False, validate_parameters=False)
def train(home: str, run: str) -> None:
    """All stages of a stored run that are not done yet."""
    context = stored_context(Path(home), run)
    start_from = started_from(stored_row(context.home, run))
    progress = Progress(context, screens.current())
    _name_flow_run(context)
    with TagsContext(current_tags={f"run:{run}"}):  # the flow run's others say nothing of a task
        iterate(context, start_from, progress)


def _name_flow_run(context: RunContext) -> None:
    """Say in Prefect which iterations the flow run works on."""
    within = FlowRunContext.get()
    if within is None or within.flow_run is None:
        return
    done = (row.iteration for row in context.ledger.rows if row.stage == "publish")
    first, last = max(done, default=0) + 1, context.config.iterations
    which = f"iterations {first} to {last}" if first < last else f"iteration {last}"
    with get_client(sync_client=True) as client:
        client.update_flow_run(within.flow_run.id, name=f"{context.run}: {which}")


def iterate(context: RunContext, start_from: str | None, progress: Progress) -> None:
    """prepare, warm start, evaluate and publish checkpoint 0, then the iterations."""
    shards = rollout.shards(context)
    progress.begin(shards)
    progress.stage("prepare")
    prepared = prepare.prepare(context)
    progress.stage("warm_start")
    checkpoint = warm_start.warm_start(context, prepared, start_from)
    progress.stage("evaluate")
    evaluated = evaluate.evaluate(context, 0, prepared, checkpoint)
    _test_the_last(context, 0, prepared, checkpoint)
    _publish(context, 0, prepared, checkpoint, evaluated)
    progress.iteration(0)
    for iteration in range(1, context.config.iterations + 1):
        with tags(f"iteration:{iteration}"):
            checkpoint = _iteration(context, iteration, shards, prepared, checkpoint)
        progress.iteration(iteration)


def _iteration(context: RunContext, iteration: int, shards: int, prepared: Receipt, checkpoint: Receipt) -> Receipt:
    """One pass through the DAG; the checkpoint that it ends with."""
    rollouts = [rollout.rollout(context, iteration, shard, prepared, checkpoint) for shard in range(shards)]
    annotated = annotate.annotate(context, iteration, prepared, rollouts)
    checkpoint = update.update(context, iteration, checkpoint, annotated)
    evaluated = None
    if iteration % context.config.evaluation.every == 0 or iteration == context.config.iterations:
        evaluated = evaluate.evaluate(context, iteration, prepared, checkpoint)
    _test_the_last(context, iteration, prepared, checkpoint)
    _publish(context, iteration, prepared, checkpoint, evaluated)
    return checkpoint


def _publish(
    context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt, evaluated: Receipt | None
) -> None:
    """Show the iteration in MLflow, and in Prefect where this process did it."""
    found = context.ledger.find(iteration, "publish") is not None
    publish.publish(context, iteration, prepared, checkpoint, evaluated)
    if found or FlowRunContext.get() is None:
        return
    try:
        _show_in_prefect(context, iteration)
    except Exception as error:  # the boundary of a view, which must not stop the run
        log.warning("iteration %s is not shown in Prefect: %s", iteration, error)


def _show_in_prefect(context: RunContext, iteration: int) -> None:
    """A page of the iteration, in a history of such pages of the run."""
    with context.store.read() as con:
        rows = metrics.load(con, context.run)
        shown = trajectories.load(con, context.run, iteration, "sampled", limit=1) or trajectories.load(
            con, context.run, iteration, "train", limit=1
        )
        asked = questions.load(con, [each.question_id for each in shown])
    create_markdown_artifact(
        iteration_page.page(context.run, iteration, rows, next(iter(shown), None), next(iter(asked), None)),
        key=iteration_page.key(context.run),
        description=f"{context.run}, iteration {iteration}",
    )


def _test_the_last(context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt) -> None:
    if context.config.evaluation.test and iteration == context.config.iterations:
        test.test(context, iteration, prepared, checkpoint)
