"""The summary of an experiment, from the results there are: tables, JSON and Markdown, written beside the results.

The statistics are comparison.py's; plots and the page are left to plots.py and experiment_page.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agent_r1.comparison import (
    CONFIDENCE,
    RESAMPLES,
    Comparison,
    Estimate,
    Measured,
    Ratio,
    Reached,
    Summary,
    VariantSummary,
    summarise,
)
from agent_r1.errors import RunError
from agent_r1.experiment import Plan
from agent_r1.questions.records import Json
from flows.tables import Grid, as_json
from storage.files import folder_lock, replace_file
from storage.results import RunResult

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Summed:
    """An experiment with what its results say; `missing` are runs without a result, `remarks` for the reader."""

    plan: Plan
    results: dict[str, RunResult]
    runs: list[Measured]
    summary: Summary
    missing: list[str]
    remarks: list[str]


def sum_up(plan: Plan, results: Mapping[str, RunResult]) -> Summed:
    """The summary of what is there; `results` by run."""
    trajectories = {
        piece.run: piece.config.iterations * piece.config.rollout.questions * piece.config.rollout.attempts
        for piece in plan.pieces
    }
    ordered = {piece.run: results[piece.run] for piece in plan.pieces if piece.run in results}
    runs = [
        Measured(
            variant=result.variant,
            seed=result.seed,
            trajectories=trajectories[run],
            series={key: _without_nan(curve) for key, curve in result.series.items()},
            test=_without_nan(result.test),
        )
        for run, result in ordered.items()
    ]
    summary = summarise(plan.experiment, runs)
    missing = [piece.run for piece in plan.pieces if piece.run not in results]
    remarks = [*(f"no result of {run} yet" for run in missing), *summary.remarks, *_provenance(list(ordered.values()))]
    return Summed(plan, ordered, runs, summary, missing, remarks)


def _without_nan(values: Mapping) -> dict:
    return {key: value for key, value in values.items() if value is not None}


def _provenance(results: Sequence[RunResult]) -> list[str]:
    """Where the results were not made alike."""
    found = []
    codes = sorted({result.code_version for result in results})
    if len(codes) > 1:
        found.append(f"made by several versions of the code: {', '.join(codes)}")
    libraries = {tuple(sorted(result.library_versions.items())) for result in results}
    names = sorted({name for one in libraries for other in libraries for name, _ in {*one} ^ {*other}})
    if names:
        found.append(f"made with several versions of {', '.join(names)}")
    for key in ("device", "threads"):
        values = sorted({str(result.config.get(key) or "torch's choice") for result in results})
        if len(values) > 1:
            found.append(f"made with several settings of {key}: {', '.join(values)}")
    if len({as_json(result.machine) for result in results}) > 1:
        found.append("made on several kinds of machine: seconds are not comparable")
    for seed in sorted({result.seed for result in results}):
        if len({result.start_weights for result in results if result.seed == seed}) > 1:
            found.append(f"seed {seed}: its runs start from different weights, though from one configuration")
    found += [f"{result.run} changed on resume: {change}" for result in results for change in result.changes]
    return found


def as_record(summed: Summed) -> dict[str, Json]:
    """All of it for programs. Deterministic but for seconds."""
    experiment, reference = summed.plan.experiment, summed.plan.pieces[0].config
    results = list(summed.results.values())
    codes: list[Json] = [*sorted({result.code_version for result in results})]
    machines: list[Json] = [*{as_json(result.machine): result.machine for result in results}.values()]
    return {
        "experiment": summed.plan.name,
        "definition": experiment.model_dump(mode="json"),
        "iterations": reference.iterations,
        "trajectories_an_iteration": reference.rollout.questions * reference.rollout.attempts,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "code_versions": codes,
        "machines": machines,
        "variants": [asdict(one) for one in summed.summary.variants],
        "comparisons": [asdict(one) for one in summed.summary.comparisons],
        "missing": list(summed.missing),
        "remarks": list(summed.remarks),
    }


def grids(summed: Summed) -> list[Grid]:
    """Tables for people: what decides, how it was learned, against baselines, what it cost; none that is empty."""
    experiment, found = summed.plan.experiment, summed.summary
    made = (
        _deciding(found.variants, experiment.primary),
        _learning(found.variants, experiment.last, experiment.threshold),
        _against(found.comparisons),
        _budgets(found.variants),
    )
    return [grid for grid in made if grid.rows]


def _deciding(variants: Sequence[VariantSummary], primary: str) -> Grid:
    hops = sorted({each for one in variants for each in one.by_hops})
    other = "greedy" if "/sampled/" in primary else "sampled"
    rows: list[list[Json]] = [
        [one.variant, len(one.seeds), interval(one.primary), interval(one.other_mode)]
        + [interval(one.by_hops[each]) if each in one.by_hops else None for each in hops]
        for one in variants
    ]
    columns = ("variant", "seeds", "all", other, *(f"{each} hops" for each in hops))
    return Grid(f"{primary}: mean over seeds [{CONFIDENCE:.0%} interval]", columns, rows)


def _learning(variants: Sequence[VariantSummary], last: int, threshold: float) -> Grid:
    rows: list[list[Json]] = []
    for one in variants:
        times = when(one.iterations_to_threshold), when(one.seconds_to_threshold, seconds=True)
        rows.append([one.variant, interval(one.validation), interval(one.area), *times])
    title = (
        f"sampled exact match on validation: level (mean of the last {last} evaluations), area under the curve, and "
        f"when it first was {threshold:g} (median over seeds, seeds that got there)"
    )
    return Grid(title, ("variant", "level", "area", f"iterations to {threshold:g}", f"training to {threshold:g}"), rows)


def _against(comparisons: Sequence[Comparison]) -> Grid:
    rows: list[list[Json]] = []
    for one in comparisons:
        ratios = interval(one.primary), interval(one.validation)
        iterations = when(one.iterations), when(one.baseline_iterations), when(one.iterations_share, share=True)
        means = interval(one.iterations_share_mean), interval(one.seconds_share_mean)
        times = means[0], when(one.seconds_share, share=True), means[1]
        rows.append([f"{one.variant} / {one.baseline}", len(one.seeds), *ratios, *iterations, *times])
    title = (
        "against a baseline: ratios of means [interval], and when the level on validation was the baseline's last one: "
        "iterations of both, their share and that of training time (medians over seeds, and means [interval] where all "
        "seeds got there; shares without the seeds whose baseline learned nothing)"
    )
    columns = ("variant / baseline", "seeds", "ratio", "on validation", "iterations", "baseline's")
    return Grid(title, (*columns, "of iterations", "mean", "of time", "mean of time"), rows)


def _budgets(variants: Sequence[VariantSummary]) -> Grid:
    rows: list[list[Json]] = []
    for one in variants:
        spent = one.budget
        measured = (f"{spent.sampled_tokens:.0f}", f"{spent.training_seconds:.0f}", f"{spent.total_seconds:.0f}")
        rows.append([one.variant, spent.iterations, spent.trajectories, *measured])
    columns = ("variant", "iterations", "trajectories", "sampled tokens", "training s", "total s")
    return Grid("spent by a run: means over seeds; training is rollout, annotate and update", columns, rows)


def interval(value: Estimate | Ratio) -> str | None:
    """ "0.712 [0.650, 0.760]", without brackets where there is no interval, "-" for no value."""
    mean = value.mean if isinstance(value, Estimate) else value.ratio
    if mean is None:
        return "-"
    if value.low is None and value.high is None:
        return f"{mean:.3f}"
    low, high = ("?" if end is None else f"{end:.3f}" for end in (value.low, value.high))
    return f"{mean:.3f} [{low}, {high}]"


def when(value: Reached, seconds: bool = False, share: bool = False) -> str:
    """ "7 (5/5)": the median, and how many of the seeds got there."""
    count = f"({value.reached}/{len(value.by_seed)})"
    if value.median is None:
        return f"{'not by most' if value.reached else 'never'} {count}"
    if share:
        return f"{value.median:.0%} {count}"
    return f"{value.median:.0f} s {count}" if seconds else f"{value.median:g} {count}"


def check_place(folder: Path, experiment: str) -> None:
    """RunError where the folder holds the summary of another experiment."""
    path = folder / SUMMARY
    if not path.exists():
        return
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: not the summary of an experiment, so it is not replaced: {error}") from error
    other = tree.get("experiment") if isinstance(tree, dict) else None
    if other != experiment:
        raise RunError(
            f"{path}: of experiment {other!r}, not {experiment!r}, so it is not replaced: use other --results"
        )


def write(summed: Summed, folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """summary.json and summary.md, and the files given, into the folder; each appears complete or not at all.

    The names of all of them. RunError where the folder holds the summary of another experiment.
    """
    markdown = [f"# {summed.plan.name}\n", *(grid.markdown() for grid in grids(summed))]
    if summed.remarks:
        markdown.append("".join(f"- {remark}\n" for remark in summed.remarks))
    texts = {SUMMARY: as_json(as_record(summed)) + "\n", "summary.md": "\n".join(markdown)}
    whole = {**{name: text.encode() for name, text in texts.items()}, **files}
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):  # two processes of one experiment end at the same time
        check_place(folder, summed.plan.name)
        for name, content in whole.items():
            replace_file(folder / name, lambda path, content=content: _write(path, content))
    return sorted(whole)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
