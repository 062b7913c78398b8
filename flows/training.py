"""The training flow: the DAG of a run in the order in which it happens.

What surrounds it is left to session.py, what each stage does to tasks, when a stage is skipped to tasks/stage.py.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from prefect.context import TagsContext

from flows import screens
from flows.home import stored_context, stored_row
from flows.progress import Progress
from flows.start import started_from
from tasks import annotate, evaluate, prepare, publish, rollout, test, update, warm_start
from tasks.context import RunContext
from tasks.stage import Receipt


@flow(name="agent-r1 train", flow_run_name="{run}", persist_result=False, validate_parameters=False)
def train(home: str, run: str) -> None:
    """All stages of a stored run that are not done yet."""
    context = stored_context(Path(home), run)
    start_from = started_from(stored_row(context.home, run))
    progress = Progress(context, screens.current())
    with TagsContext(current_tags=set()):  # the flow run has them: each task with tags would ask for a slot by them
        iterate(context, start_from, progress)


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
    publish.publish(context, 0, prepared, checkpoint, evaluated)
    progress.iteration(0)
    for iteration in range(1, context.config.iterations + 1):
        rollouts = [rollout.rollout(context, iteration, shard, prepared, checkpoint) for shard in range(shards)]
        annotated = annotate.annotate(context, iteration, prepared, rollouts)
        checkpoint = update.update(context, iteration, checkpoint, annotated)
        evaluated = None
        if iteration % context.config.evaluation.every == 0 or iteration == context.config.iterations:
            evaluated = evaluate.evaluate(context, iteration, prepared, checkpoint)
        _test_the_last(context, iteration, prepared, checkpoint)
        publish.publish(context, iteration, prepared, checkpoint, evaluated)
        progress.iteration(iteration)


def _test_the_last(context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt) -> None:
    if context.config.evaluation.test and iteration == context.config.iterations:
        test.test(context, iteration, prepared, checkpoint)
