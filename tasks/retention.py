"""Which checkpoints `keep_checkpoints` names. Removing the others is left to publish and to housekeeping."""

from __future__ import annotations

from collections.abc import Sequence

from storage import checkpoints, metrics
from storage.metrics import MetricRow
from tasks.context import RunContext


def best_iteration(context: RunContext, rows: Sequence[MetricRow], iteration: int) -> int | None:
    """The best of a run's iterations up to one by its own metric, whether its checkpoint is there or not."""
    return metrics.best(rows, context.config.evaluation.metric, range(iteration + 1))


def kept(context: RunContext, rows: Sequence[MetricRow], iteration: int) -> set[int]:
    """The checkpoints up to an iteration that its run keeps, by the metrics up to there."""
    best = best_iteration(context, rows, iteration)
    return checkpoints.retained(_made(context, iteration), context.config.keep_checkpoints, best)


def unkept(context: RunContext, rows: Sequence[MetricRow], iteration: int) -> list[int]:
    """The checkpoints up to an iteration that its run need not keep, by the metrics up to there."""
    return sorted({*_made(context, iteration)} - kept(context, rows, iteration))


def _made(context: RunContext, iteration: int) -> list[int]:
    return [each for each in checkpoints.finished(context.checkpoints) if each <= iteration]
