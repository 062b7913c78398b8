"""reannotate: an iteration that another run sampled, copied shard by shard, its rewards computed anew, and shown.

Three stages by the rule of resuming, and no Prefect task: nothing here takes long or is worth another try.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_r1.errors import RunError
from agent_r1.questions.records import Json
from storage import trajectories
from storage.stages import StageRow
from tasks import annotate, publish
from tasks.stage import Receipt, RunContext, Work, run_stage


def reannotate(context: RunContext, iteration: int, sampled: Sequence[StageRow]) -> Receipt:
    """Receipt: how many metric rows are shown. `sampled` are the rollout shards of the run that the copies are of."""
    rollouts = [_copy(context, shard) for shard in sampled]
    source = sampled[0].run
    inputs: dict[str, Json] = {"rollouts": [dict(receipt) for receipt in rollouts]}
    annotated = run_stage(
        context, "annotate", iteration, inputs, lambda: annotate.annotated(context, iteration, source)
    )
    tags = {"mlflow.source.name": "agent-r1 reannotate", "agent_r1.trajectories_of": source}
    return run_stage(
        context,
        "publish",
        iteration,
        {"annotated": dict(annotated)},
        lambda: publish.published(context, iteration, prepared=None, tags=tags),
    )


def _copy(context: RunContext, shard: StageRow) -> Receipt:
    """Receipt: that of the shard. RunError where its trajectories are no longer those that the receipt counts."""

    def work() -> Work:
        with context.store.read() as con:
            found = trajectories.load(con, shard.run, shard.iteration, "train", shard.shard)
        if len(found) != shard.receipt["trajectories"]:
            raise RunError(f"run {shard.run!r} is doing iteration {shard.iteration} again: try again when it is done")
        made = [replace(trajectory, run=context.run) for trajectory in found]
        return Work(
            dict(shard.receipt),
            lambda con: trajectories.save(con, context.run, shard.iteration, "train", shard.shard, made),
        )

    inputs = {"copied from": shard.run, "receipt": shard.receipt}
    return run_stage(context, "rollout", shard.iteration, inputs, work, shard.shard)
