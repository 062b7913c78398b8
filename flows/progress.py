"""What a run says while it goes on: a line an iteration. How it is shown is left to screens.py, tables to tables.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from flows.screens import Screen
from storage import metrics
from storage.metrics import MetricRow
from storage.stages import StageRow
from tasks.context import STAGES, RunContext

SHOWN = (
    ("reward", "rollout/reward_mean"),
    ("sampled EM", "eval/sampled/exact_match"),
    ("greedy EM", "eval/greedy/exact_match"),
)


class Progress:
    """Says what this process does of a run, and once what it finds done."""

    def __init__(self, context: RunContext, screen: Screen) -> None:
        self._context = context
        self._screen = screen
        self._found = {(row.iteration, row.stage) for row in context.ledger.rows}

    def begin(self, shards: int) -> None:
        """Say what is skipped."""
        self._screen.begin_run(self._context, shards)
        line = skipped_line(self._context.ledger.rows, shards)
        if line:
            self._screen.say(line)

    def stage(self, name: str) -> None:
        """Say that a stage before the first iteration begins, which may take minutes."""
        if (0, name) not in self._found:
            self._screen.passing(f"{name.replace('_', ' ')} ...")

    def iteration(self, iteration: int) -> None:
        """Say how an iteration went."""
        if (iteration, "publish") in self._found:
            return
        with self._context.store.read() as con:
            rows = metrics.load(con, self._context.run)
        line = iteration_line(rows, iteration, self._context.config.iterations)
        values = {row.key: row.value for row in rows if row.iteration == iteration}
        self._screen.iteration(self._context, iteration, line, values)


def iteration_line(rows: Sequence[MetricRow], iteration: int, total: int) -> str:
    """Results first, then seconds by stage: "iteration 3/20  reward 0.412  sampled EM 0.310  | ..."."""
    values = {row.key: row.value for row in rows if row.iteration == iteration}
    width = len(str(total))
    results = [f"{name} {values[key]:6.3f}" for name, key in SHOWN if not math.isnan(values.get(key, math.nan))]
    return "  ".join([f"iteration {iteration:{width}}/{total}", *results, "|", seconds_line(values)])


def seconds_line(values: Mapping[str, float]) -> str:
    """ "rollout 12.1 s, update 5.0 s": every stage with a time, in the order of the DAG."""
    times = {stage: values.get(f"time/{stage}_seconds") for stage in STAGES}
    return ", ".join(f"{stage.replace('_', ' ')} {took:.1f} s" for stage, took in times.items() if took is not None)


def skipped_line(rows: Sequence[StageRow], shards: int) -> str | None:
    """What a resume need not do again: whole iterations, then those of the one that was begun; None for nothing."""
    last = max((row.iteration for row in rows if row.stage == "publish"), default=-1)
    parts = [f"iteration{'s 0 to' if last else ''} {last}"] if last >= 0 else []
    counts: dict[str, int] = {}
    for row in rows:
        if row.iteration == last + 1:
            counts[row.stage] = counts.get(row.stage, 0) + 1
    begun = [f"{count} of {shards} shards" if stage == "rollout" else stage for stage, count in counts.items()]
    if begun:
        parts.append(f"{' and '.join(begun)} of iteration {last + 1}")
    return f"skipping what is done: {', '.join(parts)}" if parts else None
