"""What `experiment` answers: the summary as tables, and its files beside the results: JSON, Markdown, plots, a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent_r1.comparison import CONFIDENCE
from agent_r1.experiment import Plan
from flows import tables
from flows.experiment_page import page
from flows.experiment_summary import Summed, as_record, grids, sum_up, write
from flows.reports import View
from storage.results import RunResult


def report(plan: Plan, results: Mapping[str, RunResult], folder: Path) -> View:
    """Sum up the results there are, write the files, and show the tables."""
    summed = sum_up(plan, results)
    files = _files(summed) if summed.results else {}
    written = write(summed, folder, files) if files else []

    def draw(console: Console) -> None:
        console.print()
        tables.show(console, *grids(summed))
        for remark in summed.remarks:
            console.print(Text(f"note: {remark}"), soft_wrap=True)
        if written:
            console.print(Text(f"written to {folder}: {', '.join(written)}"), soft_wrap=True)

    return View(as_record(summed), draw)


def _files(summed: Summed) -> dict[str, bytes]:
    from flows import plots  # matplotlib takes a second to import, and other commands need none

    experiment, found = summed.plan.experiment, summed.summary
    by_variant = {
        one.variant: [run.validation for run in summed.runs if run.variant == one.variant] for one in found.variants
    }
    made = {"curves.png": plots.curves(by_variant, experiment.threshold)}
    titles = {"Sampled exact match on validation, by iteration": made["curves.png"]}
    by_hops = {
        one.variant: {"all": one.primary, **{f"{hops} hops": value for hops, value in one.by_hops.items()}}
        for one in found.variants
    }
    if any(one.by_hops for one in found.variants):
        made["hops.png"] = plots.by_hops(by_hops, experiment.primary, CONFIDENCE)
        titles[f"{experiment.primary}, by number of hops"] = made["hops.png"]
    return {**made, "summary.html": page(summed, grids(summed), titles).encode()}
