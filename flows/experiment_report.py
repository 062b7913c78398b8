"""What `experiment` answers: the summary as tables, and its files beside the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent_r1.experiment import Plan
from flows import tables
from flows.experiment_summary import as_record, grids, sum_up, write
from flows.reports import View
from storage.results import RunResult


def report(plan: Plan, results: Mapping[str, RunResult], folder: Path) -> View:
    """Sum up the results there are, write the files, and show the tables."""
    summed = sum_up(plan, results)
    if summed.results:
        write(summed, folder, {})

    def draw(console: Console) -> None:
        console.print()
        tables.show(console, *grids(summed))
        for remark in summed.remarks:
            console.print(Text(f"note: {remark}"), soft_wrap=True)
        if summed.results:
            console.print(Text(f"written: {folder / 'summary.html'}, with summary.json, summary.md"), soft_wrap=True)

    return View(as_record(summed), draw)
