"""What the runs of an experiment say: means with intervals over seeds, ratios paired by seed, how soon a level is met.

Intervals are bootstrap percentile intervals over seeds (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
chapter 13), always with the same resamples; with a handful of seeds they tend to be too narrow. Pure functions of
numbers; where those lie and how they are shown is left to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import bootstrap

from agent_r1.curves import Curve, area, first_reach, level, levels
from agent_r1.experiment import Experiment

VALIDATION = "eval/sampled/exact_match"
TOKENS = "rollout/action_tokens"
TRAINING = ("time/rollout_seconds", "time/annotate_seconds", "time/update_seconds")
CONFIDENCE = 0.95
RESAMPLES = 9999
LEARNED = 0.05
"""A baseline that rose by less may owe it to a few lucky answers: it sets no goal for how soon."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished run. `series` are metrics by name and iteration, `test` those of the test split; without NaN."""

    variant: str
    seed: int
    trajectories: int
    series: Mapping[str, Curve]
    test: Mapping[str, float]

    @property
    def validation(self) -> Curve:
        """The validation curve, iteration 0 included."""
        return self.series.get(VALIDATION, {})


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds with its interval, None where there is none (one seed)."""

    mean: float | None
    low: float | None
    high: float | None
    by_seed: dict[int, float]


@dataclass(frozen=True, slots=True)
class Reached:
    """When each seed first met a level, None where it never did. Those count as later than all in the median."""

    by_seed: dict[int, float | None]
    reached: int
    median: float | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of means over the seeds that both have; None where the baseline's mean is 0."""

    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run of the variant spent, means over seeds.

    Training is rollout, annotate and update, total all stages of the run; the start that it shares is in neither.
    """

    iterations: int
    trajectories: int
    sampled_tokens: float
    training_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """One variant. `other_mode` is the primary metric greedy instead of sampled, or the other way round."""

    variant: str
    seeds: list[int]
    primary: Estimate
    other_mode: Estimate
    by_hops: dict[int, Estimate]
    validation: Estimate
    area: Estimate
    iterations_to_threshold: Reached
    seconds_to_threshold: Reached
    budget: Budget


@dataclass(frozen=True, slots=True)
class Comparison:
    """A variant against its baseline, on the seeds that both have.

    The goal is the baseline's level at its end, with the same seed. `iterations` and `seconds` of training say when the
    variant's level first was as high, `baseline_iterations` and `baseline_seconds` when the baseline's own was, and the
    shares are the former by the latter: 1 for two runs that are alike. Seeds whose baseline rose by less than LEARNED
    have none: who does not learn is met at once. The means are there where all the others have a share.
    """

    variant: str
    baseline: str
    seeds: list[int]
    primary: Ratio
    validation: Ratio
    iterations: Reached
    baseline_iterations: Reached
    iterations_share: Reached
    iterations_share_mean: Estimate
    seconds: Reached
    baseline_seconds: Reached
    seconds_share: Reached
    seconds_share_mean: Estimate


@dataclass(frozen=True, slots=True)
class Summary:
    """All of it, in the order of the experiment's file. `remarks` are what a reader has to know, in sentences."""

    variants: list[VariantSummary]
    comparisons: list[Comparison]
    remarks: list[str]


def summarise(experiment: Experiment, runs: Sequence[Measured]) -> Summary:
    """Variants without a finished run are left out, as are comparisons with one."""
    found = {name: {run.seed: run for run in runs if run.variant == name} for name in experiment.variants}
    found = {name: by_seed for name, by_seed in found.items() if by_seed}
    variants = [_variant(name, by_seed, experiment) for name, by_seed in found.items()]
    pairs = [pair for pair in experiment.comparisons if {*pair} <= {*found} and found[pair[0]].keys() & found[pair[1]]]
    comparisons = [_comparison(pair, found[pair[0]], found[pair[1]], experiment) for pair in pairs]
    return Summary(variants, comparisons, _remarks(variants, comparisons))


def training_seconds(run: Measured, until: int | None = None) -> float:
    """Seconds of rollout, annotate and update, up to an iteration or over all."""
    curves = [run.series.get(key, {}) for key in TRAINING]
    return float(sum(value for curve in curves for i, value in curve.items() if until is None or i <= until))


def estimate(by_seed: Mapping[int, float]) -> Estimate:
    """The mean with its interval."""
    values = np.array(list(by_seed.values()))
    if not len(values):
        return Estimate(None, None, None, {})
    low, high = _interval([values], lambda x, axis: np.mean(x, axis=axis))
    return Estimate(float(np.mean(values)), low, high, dict(by_seed))


def ratio(values: Mapping[int, float], baseline: Mapping[int, float]) -> Ratio:
    """The ratio of means, resampled in pairs of one seed. ValueError where the seeds differ."""
    if values.keys() != baseline.keys():
        raise ValueError(f"expected values of the same seeds, got {sorted(values)} and {sorted(baseline)}")
    if not values or not np.mean(list(baseline.values())):
        return Ratio(None, None, None)
    pairs = [np.array([each[seed] for seed in values]) for each in (values, baseline)]

    def of_means(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return np.mean(x, axis=axis) / np.mean(y, axis=axis)

    low, high = _interval(pairs, of_means)
    return Ratio(float(np.mean(pairs[0]) / np.mean(pairs[1])), low, high)


def reached(by_seed: Mapping[int, float | None]) -> Reached:
    """The median, in which never is later than anything; None where that is half of the seeds or more."""
    values = [np.inf if value is None else value for value in by_seed.values()]
    middle = float(np.median(values)) if values else np.inf
    return Reached(dict(by_seed), int(np.isfinite(values).sum()), middle if np.isfinite(middle) else None)


def _interval(samples: Sequence[np.ndarray], statistic: Callable[..., np.ndarray]) -> tuple[float | None, float | None]:
    """None for one seed, and for an end that is not finite (resamples in which a baseline's mean is 0)."""
    if len(samples[0]) < 2:
        return None, None
    with np.errstate(invalid="ignore", divide="ignore"):
        found = bootstrap(
            samples, statistic, paired=True, vectorized=True, n_resamples=RESAMPLES, confidence_level=CONFIDENCE,
            method="percentile", rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
    low, high = (float(end) if np.isfinite(end) else None for end in (found.low, found.high))
    return low, high


def _value(run: Measured, key: str, last: int) -> float | None:
    """A metric of the test split, or the level of one on validation; None where the run has none."""
    if key.startswith("test/"):
        return run.test.get(key)
    return level(run.series[key], last) if run.series.get(key) else None


def _values(runs: Mapping[int, Measured], key: str, last: int) -> dict[int, float]:
    values = {seed: _value(run, key, last) for seed, run in sorted(runs.items())}
    return {seed: value for seed, value in values.items() if value is not None}


def _variant(name: str, runs: Mapping[int, Measured], experiment: Experiment) -> VariantSummary:
    key, last = experiment.primary, experiment.last
    modes = ("/sampled/", "/greedy/") if "/sampled/" in key else ("/greedy/", "/sampled/")
    known = {metric for run in runs.values() for metric in (*run.test, *run.series)}
    hops = sorted(int(metric.removeprefix(f"{key}/hops_")) for metric in known if metric.startswith(f"{key}/hops_"))
    first = {seed: first_reach(run.validation, experiment.threshold) for seed, run in sorted(runs.items())}
    return VariantSummary(
        variant=name,
        seeds=sorted(runs),
        primary=estimate(_values(runs, key, last)),
        other_mode=estimate(_values(runs, key.replace(*modes), last)),
        by_hops={each: estimate(_values(runs, f"{key}/hops_{each}", last)) for each in hops},
        validation=estimate(_values(runs, VALIDATION, last)),
        area=estimate({seed: area(run.validation) for seed, run in sorted(runs.items())}),
        iterations_to_threshold=reached(first),
        seconds_to_threshold=reached(_seconds(runs, first)),
        budget=_budget(list(runs.values())),
    )


def _comparison(
    pair: tuple[str, str], runs: Mapping[int, Measured], baselines: Mapping[int, Measured], experiment: Experiment
) -> Comparison:
    seeds = sorted(runs.keys() & baselines.keys())
    mine, theirs = ({seed: each[seed] for seed in seeds} for each in (runs, baselines))
    last = experiment.last
    goals = {seed: level(run.validation, last) for seed, run in theirs.items()}
    first, own = (
        {seed: first_reach(levels(run.validation, last), goals[seed]) for seed, run in each.items()}
        for each in (mine, theirs)
    )
    seconds, own_seconds = _seconds(mine, first), _seconds(theirs, own)
    learned = [seed for seed, run in theirs.items() if goals[seed] >= run.validation[min(run.validation)] + LEARNED]
    iterations_share = {seed: _share(first[seed], own[seed]) for seed in learned}
    seconds_share = {seed: _share(seconds[seed], own_seconds[seed]) for seed in learned}
    primary = [_values(each, experiment.primary, last) for each in (mine, theirs)]
    return Comparison(
        variant=pair[0],
        baseline=pair[1],
        seeds=seeds,
        primary=ratio(*primary),
        validation=ratio(_values(mine, VALIDATION, last), _values(theirs, VALIDATION, last)),
        iterations=reached(first),
        baseline_iterations=reached(own),
        iterations_share=reached(iterations_share),
        iterations_share_mean=_mean_of_all(iterations_share),
        seconds=reached(seconds),
        baseline_seconds=reached(own_seconds),
        seconds_share=reached(seconds_share),
        seconds_share_mean=_mean_of_all(seconds_share),
    )


def _seconds(runs: Mapping[int, Measured], first: Mapping[int, int | None]) -> dict[int, float | None]:
    return {seed: None if i is None else training_seconds(runs[seed], i) for seed, i in first.items()}


def _share(value: float | None, own: float | None) -> float | None:
    return None if value is None or not own else value / own


def _mean_of_all(values: Mapping[int, float | None]) -> Estimate:
    """Without a mean where a seed has no value: that of the others would flatter."""
    there = {seed: value for seed, value in values.items() if value is not None}
    return estimate(there if len(there) == len(values) else {})


def _budget(runs: Sequence[Measured]) -> Budget:
    def mean(total: Callable[[Measured], float]) -> float:
        return float(np.mean([total(run) for run in runs]))

    return Budget(
        iterations=max(max(run.validation) for run in runs),
        trajectories=runs[0].trajectories,
        sampled_tokens=mean(lambda run: sum(run.series.get(TOKENS, {}).values())),
        training_seconds=mean(training_seconds),
        total_seconds=mean(
            lambda run: sum(sum(curve.values()) for key, curve in run.series.items() if key.startswith("time/"))
        ),
    )


def _remarks(variants: Sequence[VariantSummary], comparisons: Sequence[Comparison]) -> list[str]:
    found = [f"{one.variant}: one seed, so no interval" for one in variants if len(one.seeds) == 1]
    for one in comparisons:
        pair = f"{one.variant} against {one.baseline}"
        if len(one.seeds) == 1:
            found.append(f"{pair}: one seed, so no interval")
        for what, value in (("primary metric", one.primary), ("validation", one.validation)):
            if value.ratio is None:
                found.append(f"{pair}: the baseline's mean is 0, so no ratio ({what})")
            elif len(one.seeds) > 1 and None in (value.low, value.high):
                found.append(f"{pair}: the baseline's mean is 0 in some resamples, so no end of the interval ({what})")
        if idle := [seed for seed in one.seeds if seed not in one.iterations_share.by_seed]:
            seeds = ", ".join(map(str, idle))
            found.append(f"{pair}: the baseline rose by less than {LEARNED}, so no share (seed {seeds})")
    return found
