"""update: one PPO update on an iteration's annotations, from the checkpoint before to the next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1.ppo import Learner, learner_state, make_learner
from agent_r1.ppo import update as improve
from agent_r1.trajectory import Credit
from storage import annotations, checkpoints
from tasks import engine
from tasks.data import learning_policy
from tasks.stage import Connection, Receipt, RunContext, Work, run_stage


@task(name="update", task_run_name="update {iteration}", cache_policy=NO_CACHE, persist_result=False)
def update(context: RunContext, iteration: int, checkpoint: Receipt, annotated: Receipt) -> Receipt:
    """Receipt: the new checkpoint, its number, digest and the hash of its weights."""
    inputs = {"checkpoint": dict(checkpoint), "annotated": dict(annotated)}
    return run_stage(context, "update", iteration, inputs, lambda: _update(context, iteration))


def _update(context: RunContext, iteration: int) -> Work:
    config = context.config
    with context.store.read() as con:
        rows = annotations.load(con, context.run, iteration)
    engine.rest()
    policy = learning_policy(context, iteration - 1)
    state = checkpoints.load_trainer(context.checkpoint(iteration - 1) / "trainer.pt")
    learner = make_learner(policy, config, state)
    reference = None
    if config.ppo.kl_coefficient > 0:
        reference = policy.without_adapters if config.model.lora.rank else learning_policy(context, 0)
    done = improve(learner, reference, rows, config, iteration)
    return publish_checkpoint(context, iteration, learner, done.metrics, done.credits)


def publish_checkpoint(
    context: RunContext,
    iteration: int,
    learner: Learner,
    metrics: dict[str, float],
    credits: Sequence[Credit] = (),
) -> Work:
    """Write a learner as a checkpoint, complete before its receipt; rows and metrics follow in the transaction."""

    def write(folder: Path) -> None:
        learner.policy.save(folder)
        checkpoints.save_trainer(folder / "trainer.pt", learner_state(learner))

    folder = context.checkpoint(iteration)
    manifest = checkpoints.publish(folder, write)

    def save(con: Connection) -> None:
        annotations.save_credits(con, context.run, iteration, credits)

    receipt = {"checkpoint": iteration, "weights": manifest.weights, "files": {context.name(folder): manifest.digest}}
    return Work(receipt, save, metrics)
