"""Which checkpoints `keep_checkpoints` no longer names. Removing them is left to publish and to housekeeping."""

from __future__ import annotations

from collections.abc import Sequence

from storage import checkpoints, metrics
from storage.metrics import MetricRow
from tasks.context import RunContext


def unkept(context: RunContext, rows: Sequence[MetricRow], iteration: int) -> list[int]:
    """The checkpoints up to an iteration that is published which its run need not keep, by the metrics up to there."""
    made = [each for each in checkpoints.finished(context.checkpoints) if each <= iteration]
    best = metrics.best(rows, context.config.evaluation.metric, range(iteration + 1))
    return sorted(set(made) - checkpoints.retained(made, context.config.keep_checkpoints, best))
