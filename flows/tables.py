"""Tables for people and, with --json, for programs: a run's learning, its stages, runs side by side.

Pure functions of stored rows. Reading those rows is left to the commands.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_r1.config import Config
from agent_r1.evaluation import Score
from agent_r1.questions.records import Json
from agent_r1.sections import COMPONENTS
from storage.metrics import MetricRow
from storage.runs import RunRow
from storage.stages import StageRow
from tasks.context import STAGES

REWARD = "rollout/reward_mean"
LEARNING = {
    "sampled EM": "eval/sampled/exact_match",
    "greedy EM": "eval/greedy/exact_match",
    "reward": REWARD,
    "answered": "rollout/answered",
    "turns": "rollout/turns_mean",
    "calls": "rollout/tool_calls_mean",
    "KL": "ppo/kl",
}
COMPARED = ("eval/sampled/exact_match", "eval/greedy/exact_match", "eval/sampled/f1", REWARD)
DIAGNOSTICS = (
    "eval/sampled/no_call", "eval/sampled/malformed", "eval/sampled/failed", "eval/sampled/repeated",
    "eval/sampled/truncated", "eval/sampled/answered", "eval/sampled/evidence", "eval/sampled/turns_mean",
    "eval/sampled/action_tokens_mean", "eval/sampled/action_span_mean",
    "ppo/kl", "ppo/kl_reference_k1", "ppo/kl_reference_k2", "ppo/kl_reference_k3", "ppo/entropy", "ppo/clip_fraction",
    "ppo/grad_norm", "ppo/explained_variance", "ppo/advantage_std", "ppo/advantage_max", "rollout/group_zero_variance",
)  # fmt: skip
METHODS = {
    "EM": "eval/greedy/exact_match",
    "EM sampled": "eval/sampled/exact_match",
    "F1": "eval/greedy/f1",
    "F1 sampled": "eval/sampled/f1",
    "calls": "eval/greedy/tool_calls_mean",
    "failed": "eval/greedy/failed",
    "malformed": "eval/greedy/malformed",
    "answered": "eval/greedy/answered",
    "gold in view": "eval/greedy/gold_in_view",
}
Values = dict[tuple[int, str], float]
T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True)
class Grid:
    """A titled table. A cell of None is empty."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Json]]

    def records(self) -> list[Json]:
        """A dict a row, not-a-number as null."""
        return [{name: finite(cell) for name, cell in zip(self.columns, row, strict=True)} for row in self.rows]

    def texts(self) -> list[list[str]]:
        """The cells as people read them."""
        return [[_text(cell) for cell in row] for row in self.rows]

    def markdown(self) -> str:
        """The same for a page, its title above it."""
        lines = [self.columns, ["---" for _ in self.columns], *self.texts()]
        body = "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)
        return f"**{self.title}**\n\n{body}"

    def table(self) -> Table:
        """The same for a terminal: numbers to the right. What is in brackets is text, not markup."""
        table = Table(title=Text(self.title), title_justify="left", title_style="bold", header_style="bold")
        for index, name in enumerate(self.columns):
            numbers = all(_is_number(row[index]) for row in self.rows)
            table.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in self.texts():
            table.add_row(*(Text(visible(cell)) for cell in row))
        return table


def show(console: Console, *grids: Grid) -> None:
    """Print tables with a blank line between."""
    for grid in grids:
        console.print(grid.table())
        console.print()


def visible(text: str) -> str:
    """Text that cannot steer a terminal."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def as_json(value: Json) -> str:
    """JSON text for a program: standard JSON, so NaN is null."""
    return json.dumps(finite(value), ensure_ascii=False, indent=2, allow_nan=False)


def run_list(rows: Sequence[RunRow], done: Mapping[str, Sequence[StageRow]], statuses: Mapping[str, str]) -> Grid:
    """All runs: how they stand and how far they are."""
    cells: list[list[Json]] = []
    for row in rows:
        finished = max((stage.iteration for stage in done[row.run] if stage.stage == "publish"), default=None)
        total = row.config.get("iterations")
        created = row.created_at.strftime("%Y-%m-%d %H:%M")
        cells.append([row.run, statuses[row.run], finished, total, row.seed, row.identity, created, row.code_version])
    return Grid("runs", ("run", "status", "done", "of", "seed", "identity", "created (UTC)", "code"), cells)


def learning(run: str, rows: Sequence[MetricRow]) -> Grid:
    """The metrics that matter, by iteration."""
    values = _values(rows)
    columns = {name: key for name, key in LEARNING.items() if any(found == key for _, found in values)}
    iterations = sorted({iteration for iteration, key in values if key in columns.values()})
    cells = [[iteration, *(values.get((iteration, key)) for key in columns.values())] for iteration in iterations]
    return Grid(f"{run}: exact match (EM) on validation", ("iteration", *columns), cells)


def stage_times(run: str, rows: Sequence[StageRow]) -> Grid:
    """Seconds by stage and iteration, empty where a stage is not done; shards are added up."""
    seconds: Values = {}
    counts: dict[tuple[int, str], int] = {}
    for row in rows:
        cell = (row.iteration, row.stage)
        seconds[cell] = seconds.get(cell, 0.0) + (row.finished_at - row.started_at).total_seconds()
        counts[cell] = counts.get(cell, 0) + 1
    names = [stage for stage in STAGES if any(row.stage == stage for row in rows)]
    iterations = sorted({row.iteration for row in rows})
    cells = [
        [iteration, *(_seconds(seconds.get((iteration, name))) for name in names), counts.get((iteration, "rollout"))]
        for iteration in iterations
    ]
    return Grid(f"{run}: seconds by stage", ("iteration", *names, "shards"), cells)


def stage_records(rows: Sequence[StageRow]) -> list[Json]:
    """Every stage with its receipt, for programs."""
    return [
        {
            "iteration": row.iteration,
            "stage": row.stage,
            "shard": row.shard,
            "attempt": row.attempt,
            "started_at": row.started_at.isoformat(),
            "finished_at": row.finished_at.isoformat(),
            "code_version": row.code_version,
            "receipt": row.receipt,
        }
        for row in rows
    ]


def side_by_side(metrics: Mapping[str, Sequence[MetricRow]]) -> Grid:
    """One column a run and main metric, by iteration."""
    values = {run: _values(rows) for run, rows in metrics.items()}
    names = [(name, key) for name, key in LEARNING.items() if key in COMPARED]
    names = [(name, key) for name, key in names if any(key == found for run in values.values() for _, found in run)]
    keys = {key for _, key in names}
    iterations = sorted({iteration for run in values.values() for iteration, key in run if key in keys})
    columns = [f"{run} {name}" for name, _ in names for run in values]
    cells = [
        [iteration, *(values[run].get((iteration, key)) for _, key in names for run in values)]
        for iteration in iterations
    ]
    return Grid("by iteration", ("iteration", *columns), cells)


def summary(metrics: Mapping[str, Sequence[MetricRow]]) -> Grid:
    """First, best and last value of the main metrics, a row a run and metric."""
    cells: list[list[Json]] = []
    for key in COMPARED:
        for run, rows in metrics.items():
            series = [(row.iteration, row.value) for row in rows if row.key == key and math.isfinite(row.value)]
            if series:
                best_at, best = max(series, key=lambda point: point[1])
                cells.append([key, run, series[0][1], best, best_at, series[-1][1], series[-1][0]])
    return Grid("summary", ("metric", "run", "first", "best", "at", "last", "at iteration"), cells)


def diagnostics(metrics: Mapping[str, Sequence[MetricRow]]) -> Grid:
    """The last value of each diagnostic, a column a run; those that no run has are left out."""
    last = {run: {row.key: row.value for row in rows} for run, rows in metrics.items()}
    keys = [key for key in DIAGNOSTICS if any(key in values for values in last.values())]
    cells: list[list[Json]] = [[key, *(values.get(key) for values in last.values())] for key in keys]
    return Grid("diagnostics: the last value of each", ("metric", *last), cells)


def reward_change(run: str, before: Sequence[MetricRow], name: str, after: Sequence[MetricRow]) -> Grid:
    """Mean rewards of a trajectory by component and in all, over the iterations that `after` has of `before`.

    A component that `before` did not know yet is empty there.
    """
    old, new = _values(before), _values(after)
    iterations = sorted({iteration for iteration, key in new if key == REWARD})
    cells: list[list[Json]] = []
    parts = dict.fromkeys(key.removeprefix("reward/") for _, key in (*new, *old) if key.startswith("reward/"))
    known = [part for part in COMPONENTS if part in parts]
    names = [*known, *(part for part in parts if part not in known)]
    for label, key in [*((part, f"reward/{part}") for part in names), ("all", REWARD)]:
        was, now = (_mean([values.get((at, key)) for at in iterations]) for values in (old, new))
        cells.append([label, was, now, None if was is None or now is None else now - was])
    title = f"{run} -> {name}: mean rewards"
    return Grid(title, ("reward", "before", "after", "change"), cells)


def config_differences(configs: Mapping[str, Config]) -> Grid:
    """The configuration keys in which the runs are not alike."""
    flats = [config.flat() for config in configs.values()]
    keys = [key for key in flats[0] if any(flat.get(key) != flats[0][key] for flat in flats[1:])]
    cells: list[list[Json]] = [[key, *(json.dumps(flat.get(key)) for flat in flats)] for key in keys]
    return Grid("configuration keys that differ", ("key", *configs), cells)


def metric_list(title: str, values: Mapping[str, float]) -> Grid:
    """Names and values."""
    return Grid(title, ("metric", "value"), [[key, value] for key, value in values.items()])


def methods(target: str, scored: Sequence[tuple[str, str, Score]]) -> Grid:
    """What methods (named first) answered of files (named second): a row a data set, number of hops and method.

    Data sets of one name in different files go by the file's name, too.
    """
    files: dict[str, set[str]] = {}
    for _, asked, score in scored:
        files.setdefault(score.dataset, set()).add(asked)
    cells: list[list[Json]] = []
    for (asked, dataset), rows in _grouped(scored, lambda row: (row[1], row[2].dataset)):
        name = f"{dataset} ({Path(asked).name})" if len(files[dataset]) > 1 else dataset
        for hops, alike in _grouped(rows, lambda row: row[2].hops):
            for method, _, score in alike:
                values = [score.metrics.get(key) for key in METHODS.values()]
                cells.append([name, "all" if hops is None else hops, method, score.questions, *values])
    title = f"{target}: greedy answers, and where it says so sampled ones; shares are of questions"
    return Grid(title, ("dataset", "hops", "method", "questions", *METHODS), cells)


def _grouped(rows: Sequence[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    """The rows of each key, keys in the order in which they are met first."""
    found: dict[K, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.items())


def _values(rows: Sequence[MetricRow]) -> Values:
    return {(row.iteration, row.key): row.value for row in rows}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f}"


def _is_number(cell: Json) -> bool:
    try:
        float(str(cell))
    except ValueError:
        return cell is None
    return True


def _text(cell: Json) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) >= 10 else f"{cell:.3f}"
    return str(cell)


def finite(value: Json) -> Json:
    """The same with null for what is not a number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value
