"""How long a run will still take, by how long its own stages took. Showing it is left to live.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent_r1.config import Config
from storage.stages import StageRow

RECENT = 5
"""So many of the latest times of a stage count: trajectories get longer or shorter as a policy learns."""


def seconds_left(rows: Sequence[StageRow], config: Config, shards: int) -> float | None:
    """Seconds of the stages that are not done; None while one of them has never been timed.

    Of a run that was resumed, what is done does not count, but its times do.
    """
    took = _typical(rows)
    done = {(row.iteration, row.stage, row.shard) for row in rows}
    left = [stage for stage, place in _whole(config, shards) if (place[0], stage, place[1]) not in done]
    if any(stage not in took for stage in left):
        return None
    return sum(took[stage] for stage in left)


def _typical(rows: Sequence[StageRow]) -> dict[str, float]:
    """The mean of each stage's latest times, of one shard where it has those."""
    times: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda each: each.finished_at):
        times.setdefault(row.stage, []).append((row.finished_at - row.started_at).total_seconds())
    return {stage: sum(each[-RECENT:]) / len(each[-RECENT:]) for stage, each in times.items()}


def _whole(config: Config, shards: int) -> Iterable[tuple[str, tuple[int, int]]]:
    """Every stage of a run but the test, as (stage, (iteration, shard)): it is done once, and never timed before."""
    yield from ((stage, (0, 0)) for stage in ("prepare", "warm_start", "evaluate", "publish"))
    for iteration in range(1, config.iterations + 1):
        yield from (("rollout", (iteration, shard)) for shard in range(shards))
        yield from ((stage, (iteration, 0)) for stage in ("annotate", "update", "publish"))
        if iteration % config.evaluation.every == 0 or iteration == config.iterations:
            yield "evaluate", (iteration, 0)
