"""evaluate: a checkpoint on validation questions, greedy and sampled.

Answering any questions with any model, by other methods too, is left to answer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1 import watching
from agent_r1.config import Config
from agent_r1.environments import Environments
from agent_r1.evaluation import evaluation_metrics
from agent_r1.questions.records import Question
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.sampler import Sampler
from agent_r1.trajectory import GREEDY, Purpose, Trajectory
from storage import trajectories
from tasks.data import load_questions, question_ids
from tasks.engine import sample_with
from tasks.stage import RETRY_SECONDS, Connection, Receipt, RunContext, Work, run_stage, server_lost

MODES: tuple[Purpose, ...] = ("greedy", "sampled")


@task(
    name="evaluate",
    task_run_name="evaluate {iteration}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_SECONDS),
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=server_lost,
)
def evaluate(context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt) -> Receipt:
    """Receipt: how many questions were answered in each mode."""
    inputs = {"prepared": dict(prepared), "checkpoint": dict(checkpoint)}
    return run_stage(context, "evaluate", iteration, inputs, lambda: _evaluate(context, iteration))


def _evaluate(context: RunContext, iteration: int) -> Work:
    ids = question_ids(context, "validation")[: context.config.evaluation.questions]
    return answered(context, iteration, "validation", ids, MODES, "eval")


def answered(
    context: RunContext, iteration: int, split: str, ids: Sequence[str], purposes: Sequence[Purpose], group: str
) -> Work:
    """A checkpoint's answers to questions of a split, a trajectory for each purpose; metrics under `group`."""
    questions = load_questions(context, ids)
    made, _ = sample_with(
        context,
        iteration,
        split,
        lambda sampler, world: answer(sampler, world, questions, context.config, context.run, iteration, purposes),
    )

    def save(con: Connection) -> None:
        for purpose, rows in made.items():
            trajectories.save(con, context.run, iteration, purpose, 0, rows)

    return Work({"questions": len(questions)}, save, _score(made, questions, group))


def answer(
    sampler: Sampler,
    environment: Environments,
    questions: Mapping[str, Question],
    config: Config,
    run: str,
    iteration: int,
    purposes: Sequence[Purpose],
) -> dict[Purpose, list[Trajectory]]:
    """One trajectory for each question and purpose, a shard's size at a time."""
    made: dict[Purpose, list[Trajectory]] = {}
    attempts = [Attempt(question, 0) for question in questions.values()]
    watching.expect("trajectories", len(attempts) * len(purposes))
    for purpose in purposes:
        made[purpose] = []
        for start in range(0, len(attempts), config.rollout.shard_size):
            part = attempts[start : start + config.rollout.shard_size]
            origin = Origin(run, iteration, purpose, iteration)
            made[purpose] += rollout(part, sampler, environment, config, origin)
    return made


def _score(
    made: Mapping[Purpose, Sequence[Trajectory]], questions: Mapping[str, Question], group: str = "eval"
) -> dict[str, float]:
    """The metrics of a group, `<group>/greedy/...` and `<group>/sampled/...`."""
    metrics: dict[str, float] = {}
    for purpose, rows in made.items():
        metrics |= evaluation_metrics("greedy" if purpose in GREEDY else "sampled", rows, questions, group)
    return metrics
