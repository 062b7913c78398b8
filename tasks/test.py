"""test: the last checkpoint on the test split, greedy and sampled, once. Only where `evaluation.test` asks for it."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1.trajectory import Purpose
from tasks.data import question_ids
from tasks.evaluate import answered
from tasks.stage import RETRY_SECONDS, Receipt, RunContext, Work, run_stage, server_lost

PURPOSES: tuple[Purpose, ...] = ("test_greedy", "test_sampled")


@task(
    name="test",
    task_run_name="test {iteration}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_SECONDS),
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=server_lost,
)
def test(context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt) -> Receipt:
    """Receipt: how many questions were answered in each mode."""
    inputs = {"prepared": dict(prepared), "checkpoint": dict(checkpoint)}

    def work() -> Work:
        return answered(context, iteration, "test", question_ids(context, "test"), PURPOSES, "test")

    return run_stage(context, "test", iteration, inputs, work)
