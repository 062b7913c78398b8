"""annotate: stored trajectories become flat rows with masks and rewards."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1.evaluation import rollout_metrics
from agent_r1.rewards import annotate as price
from agent_r1.rewards import components
from storage import annotations, metrics, trajectories
from tasks.data import load_questions
from tasks.stage import Receipt, RunContext, Work, run_stage


@task(name="annotate", task_run_name="annotate {iteration}", cache_policy=NO_CACHE, persist_result=False)
def annotate(context: RunContext, iteration: int, prepared: Receipt, rollouts: list[Receipt]) -> Receipt:
    """Receipt: how many rows, and the trajectories they came from."""
    inputs = {"prepared": dict(prepared), "rollouts": [dict(receipt) for receipt in rollouts]}
    return run_stage(context, "annotate", iteration, inputs, lambda: annotated(context, iteration, context.run))


def annotated(context: RunContext, iteration: int, sampled_by: str) -> Work:
    """The rows and metrics of the run's trajectories; `sampled_by` is the run whose rollout made them, in its time."""
    with context.store.read() as con:
        sampled = trajectories.load(con, context.run, iteration, "train")
        seconds = metrics.value(con, sampled_by, iteration, "time/rollout_seconds")
    questions = load_questions(context, [trajectory.question_id for trajectory in sampled])
    rows = [row for one in sampled for row in price(one, questions[one.question_id], context.config.rewards)]
    return Work(
        {"trajectories": len(sampled), "rows": len(rows)},
        lambda con: annotations.save(con, context.run, iteration, rows),
        rollout_metrics(sampled, questions, rows, seconds, components(context.config.rewards)),
    )
