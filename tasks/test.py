"""test: the last checkpoint on the test split, greedy and sampled, once. Only where `evaluation.test` asks for it."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1.trajectory import Purpose
from storage import trajectories
from tasks.data import load_questions, open_split, question_ids, sampling_policy
from tasks.evaluate import answer, score
from tasks.stage import Connection, Receipt, RunContext, Work, run_stage

PURPOSES: tuple[Purpose, ...] = ("test_greedy", "test_sampled")


@task(name="test", task_run_name="test {iteration}", cache_policy=NO_CACHE, persist_result=False)
def test(context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt) -> Receipt:
    """Receipt: how many questions were answered in each mode."""
    inputs = {"prepared": dict(prepared), "checkpoint": dict(checkpoint)}
    return run_stage(context, "test", iteration, inputs, lambda: _test(context, iteration))


def _test(context: RunContext, iteration: int) -> Work:
    questions = load_questions(context, question_ids(context, "test"))
    policy = sampling_policy(context, iteration)
    with open_split(context, "test", policy) as environment:
        made = answer(policy, environment, questions, context.config, context.run, iteration, PURPOSES)

    def save(con: Connection) -> None:
        for purpose, rows in made.items():
            trajectories.save(con, context.run, iteration, purpose, 0, rows)

    return Work({"questions": len(questions)}, save, score(made, questions, "test"))
