"""reannotate: an iteration that another run sampled, copied shard by shard, its rewards computed anew, and shown.

Three stages by the rule of resuming, and no Prefect task: nothing here takes long or is worth another try.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agent_r1.errors import RunError
from agent_r1.questions.records import Json
from agent_r1.trajectory import Trajectory
from storage import stages, trajectories
from storage.stages import StageRow
from tasks import annotate, publish
from tasks.stage import Receipt, RunContext, Work, input_hash, run_stage


def reannotate(context: RunContext, iteration: int, sampled: Sequence[StageRow], say: Callable[[str], None]) -> Receipt:
    """Receipt: how many metric rows are shown. `sampled` are the rollout shards of the run that the copies are of.

    An iteration that is annotated stays as it is, whatever that run did since.
    """
    priced = context.ledger.find(iteration, "annotate")
    annotated = _copied_and_priced(context, iteration, sampled, say) if priced is None else priced.receipt
    return run_stage(
        context,
        "publish",
        iteration,
        {"annotated": dict(annotated)},
        lambda: publish.published(context, iteration, prepared=None),
    )


def _copied_and_priced(
    context: RunContext, iteration: int, sampled: Sequence[StageRow], say: Callable[[str], None]
) -> Receipt:
    """Receipt: that of annotate. RunError where the trajectories are no longer those that the shards count."""
    source = sampled[0].run
    with context.store.read() as con:
        found = [trajectories.load(con, source, iteration, "train", shard.shard) for shard in sampled]
    if [len(each) for each in found] != [shard.receipt["trajectories"] for shard in sampled]:
        raise RunError(f"run {source!r} is doing iteration {iteration} again: try again when it is done")
    # of the whole iteration, so that no shard stands beside one of another time
    inputs: dict[str, Json] = {"copied from": source, "sha256": hashlib.sha256(repr(found).encode()).hexdigest()}
    if _has_others(context, iteration, inputs):
        say(f"iteration {iteration}  was copied in part, but {source} has sampled it anew since: copying it again")
        with context.store.write() as con:
            stages.forget_from(con, context.run, iteration)
        context.ledger.forget_from(iteration)
    rollouts = [_copy(context, shard, made, inputs) for shard, made in zip(sampled, found, strict=True)]
    return run_stage(
        context,
        "annotate",
        iteration,
        {"rollouts": [dict(receipt) for receipt in rollouts]},
        lambda: annotate.annotated(context, iteration, source),
    )


def _has_others(context: RunContext, iteration: int, inputs: Mapping[str, Json]) -> bool:
    return any(
        row.input_hash != input_hash(context, row.stage, iteration, row.shard, inputs)
        for row in context.ledger.rows
        if (row.iteration, row.stage) == (iteration, "rollout")
    )


def _copy(context: RunContext, shard: StageRow, found: Sequence[Trajectory], inputs: Mapping[str, Json]) -> Receipt:
    """Receipt: that of the shard."""
    made = [replace(trajectory, run=context.run) for trajectory in found]
    work = Work(
        dict(shard.receipt),
        lambda con: trajectories.save(con, context.run, shard.iteration, "train", shard.shard, made),
    )
    return run_stage(context, "rollout", shard.iteration, inputs, lambda: work, shard.shard)
