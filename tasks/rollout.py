"""rollout: attempts at the questions of an iteration, in shards; a shard that is stored is never sampled again."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1 import watching
from agent_r1.rollout import Attempt, Origin, draw
from agent_r1.rollout import rollout as sample
from storage import trajectories
from tasks.data import load_questions, question_ids
from tasks.engine import sample_with
from tasks.stage import RETRY_SECONDS, Receipt, RunContext, Work, run_stage, server_lost


def shards(context: RunContext) -> int:
    """How many shards an iteration has."""
    settings = context.config.rollout
    return -(-settings.questions * settings.attempts // settings.shard_size)


@task(
    name="rollout",
    task_run_name="rollout {iteration}.{shard}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_SECONDS),
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=server_lost,
)
def rollout(context: RunContext, iteration: int, shard: int, prepared: Receipt, checkpoint: Receipt) -> Receipt:
    """Receipt: how many trajectories and sampled tokens. The weights are those of the checkpoint before."""
    inputs = {"prepared": dict(prepared), "checkpoint": dict(checkpoint)}
    return run_stage(context, "rollout", iteration, inputs, lambda: _rollout(context, iteration, shard), shard)


def _rollout(context: RunContext, iteration: int, shard: int) -> Work:
    config = context.config
    pairs = draw(question_ids(context, "train"), config.rollout, config.seed, iteration)
    size = config.rollout.shard_size
    mine = pairs[shard * size : (shard + 1) * size]
    questions = load_questions(context, [question_id for question_id, _ in pairs])  # all shards': read once
    attempts = [Attempt(questions[question_id], number) for question_id, number in mine]
    origin = Origin(context.run, iteration, "train", iteration - 1)
    watching.expect("trajectories", len(attempts))
    made, weights = sample_with(
        context, iteration - 1, "train", lambda sampler, world: sample(attempts, sampler, world, config, origin)
    )
    engine: Receipt = {} if config.rollout.engine == "embedded" else {"engine": "vllm", "weights": weights}
    return Work(
        {"trajectories": len(made), "action_tokens": sum(each.action_tokens for each in made), **engine},
        lambda con: trajectories.save(con, context.run, iteration, "train", shard, made),
    )
