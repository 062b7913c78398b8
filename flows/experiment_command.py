"""The command `experiment`: its options, checked before any work, to runs and their summary.

Doing the runs is left to experiment.py, summing them up to experiment_report.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.configs import find_config
from flows.experiment import choose, make_plan, run_pieces, stored_results
from flows.experiment_report import report
from flows.experiment_summary import check_place
from flows.home import check_folder, check_home
from flows.interruption import orderly
from flows.reports import View


@dataclass(frozen=True)
class Options:
    """As they are given; no `name` is that of the file, no `results` the folder in the home."""

    config: str
    name: str | None
    only: Sequence[str]
    seeds: Sequence[int]
    results: Path | None
    summary_only: bool
    home: Path


def experiment(options: Options, say: Callable[[str], None]) -> tuple[View, dict[str, Exception]]:
    """What the results say, those that were made now among them; and what failed, by run."""
    path = find_config(options.config, "experiments")
    plan = make_plan(path, path.stem if options.name is None else options.name, find_config)
    chosen = choose(plan, options.only, options.seeds)
    home = options.home.expanduser().absolute() if options.summary_only else check_home(options.home)
    given = options.results
    folder = home / "experiments" / plan.name / "results" if given is None else given.expanduser().absolute()
    check_place(folder.parent, plan.name)
    failures: dict[str, Exception] = {}
    if not options.summary_only:
        check_folder("results", folder)
        check_folder("summary beside the results", folder.parent)
        with orderly(home, "the same command"):
            failures = run_pieces(home, plan, chosen, folder, say)
    return report(plan, stored_results(plan, folder), folder.parent), failures
