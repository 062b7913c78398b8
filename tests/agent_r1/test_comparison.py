"""The statistics of an experiment, on numbers that are worked out by hand."""

from __future__ import annotations

import pytest

from agent_r1.comparison import (
    Estimate,
    Measured,
    estimate,
    ratio,
    reached,
    summarise,
    training_seconds,
)
from agent_r1.config import checked
from agent_r1.curves import area, first_reach, level, levels
from agent_r1.experiment import Experiment

CURVE = {0: 0.1, 2: 0.5, 4: 0.3, 6: 0.9}
SECONDS = {"time/rollout_seconds": {1: 3.0, 2: 3.0}, "time/annotate_seconds": {1: 1.0, 2: 1.0}}
UPDATES = {"time/update_seconds": {1: 6.0, 2: 6.0}, "time/evaluate_seconds": {0: 50.0, 1: 50.0, 2: 50.0}}


def run(variant: str, seed: int, validation: list[float], test: float = 0.0, **more: float) -> Measured:
    """Two iterations of 10 seconds of training and 100 sampled tokens each."""
    series = {
        "eval/sampled/exact_match": dict(enumerate(validation)),
        "rollout/action_tokens": {1: 100.0, 2: 100.0},
        **SECONDS,
        **UPDATES,
    }
    tests = {"test/sampled/exact_match": test, **{key.replace("__", "/"): value for key, value in more.items()}}
    return Measured(variant, seed, 48, series, tests)


def experiment(**changes: object) -> Experiment:
    tree = {"base": "b", "seeds": [0, 1], "variants": {"a": {}, "b": {}}, "last": 2, "comparisons": [["a", "b"]]}
    return checked(Experiment, {**tree, **changes}, "test")  # type: ignore[dict-item]


def test_a_level_is_the_mean_of_the_last_values() -> None:
    assert level(CURVE, 2) == pytest.approx(0.6)
    assert level(CURVE, 1) == 0.9


def test_the_levels_of_a_curve_are_means_of_full_windows_with_iteration_0_in_the_first() -> None:
    assert levels(CURVE, 2) == pytest.approx({2: 0.3, 4: 0.4, 6: 0.6})
    assert levels(CURVE, 3) == pytest.approx({4: 0.3, 6: 1.7 / 3})
    assert levels(CURVE, 1) == CURVE
    assert levels({0: 0.2, 1: 0.4}, 3) == pytest.approx({1: 0.3}), "fewer values than asked for"


def test_the_area_is_the_mean_height_by_trapezoids() -> None:
    assert area(CURVE) == pytest.approx((0.6 + 0.8 + 1.2) / 6)  # each trapezoid two iterations wide
    assert area({0: 0.4}) == 0.4


def test_a_level_is_first_reached_where_the_curve_is_at_least_as_high() -> None:
    assert first_reach(CURVE, 0.5) == 2
    assert first_reach(CURVE, 0.1) == 0
    assert first_reach(CURVE, 0.95) is None


def test_training_is_rollout_annotate_and_update() -> None:
    one = run("a", 0, [0.0, 0.5, 1.0])
    assert training_seconds(one) == 20.0
    assert training_seconds(one, until=1) == 10.0
    assert training_seconds(one, until=0) == 0.0


def test_a_mean_lies_within_its_interval_which_lies_within_the_seeds() -> None:
    found = estimate({0: 0.2, 1: 0.4, 2: 0.9})
    assert found.mean == pytest.approx(0.5)
    assert found.low is not None
    assert found.high is not None
    assert 0.2 <= found.low < 0.5 < found.high <= 0.9
    assert estimate({0: 0.2, 1: 0.4, 2: 0.9}) == found, "the same seeds, the same interval"


def test_with_two_seeds_the_interval_is_the_two() -> None:
    """A quarter of the resamples is the lower seed twice, a quarter the higher twice."""
    found = estimate({0: 0.25, 1: 0.75})
    assert found == Estimate(0.5, 0.25, 0.75, {0: 0.25, 1: 0.75})


def test_one_seed_has_no_interval_and_none_no_mean() -> None:
    assert estimate({3: 0.2}) == Estimate(0.2, None, None, {3: 0.2})
    assert estimate({}) == Estimate(None, None, None, {})


def test_a_ratio_is_resampled_in_pairs() -> None:
    """Each seed's variant is twice its baseline: so is every resample, whatever the seeds are."""
    found = ratio({0: 0.2, 1: 0.8, 2: 0.4}, {0: 0.1, 1: 0.4, 2: 0.2})
    assert (found.ratio, found.low, found.high) == (pytest.approx(2.0), pytest.approx(2.0), pytest.approx(2.0))


def test_a_ratio_is_one_of_means_not_a_mean_of_ratios() -> None:
    assert ratio({0: 0.9, 1: 0.1}, {0: 0.3, 1: 0.1}).ratio == pytest.approx(2.5)


def test_a_baseline_of_zero_has_no_ratio_and_a_seed_of_zero_no_end() -> None:
    assert ratio({0: 0.5, 1: 0.5}, {0: 0.0, 1: 0.0}).ratio is None
    found = ratio({0: 0.5, 1: 0.5}, {0: 0.0, 1: 0.5})
    assert (found.ratio, found.low, found.high) == (2.0, 1.0, None)
    with pytest.raises(ValueError, match=r"\[0\] and \[1\]"):
        ratio({0: 0.5}, {1: 0.5})


def test_never_is_later_than_anything_and_counted() -> None:
    found = reached({0: 3, 1: None, 2: 7})
    assert (found.median, found.reached, found.by_seed) == (7, 2, {0: 3, 1: None, 2: 7})
    assert reached({0: 3, 1: None}).median is None
    assert reached({0: 3, 1: 5}).median == 4
    assert reached({0: None}).reached == 0


def test_a_variant_is_summed_up() -> None:
    runs = [
        run("a", 0, [0.0, 0.6, 0.8], 0.7, test__greedy__exact_match=0.9, test__sampled__exact_match__hops_2=1.0),
        run("a", 1, [0.0, 0.2, 0.4], 0.5, test__greedy__exact_match=0.7, test__sampled__exact_match__hops_2=0.8),
    ]
    (found,) = summarise(experiment(threshold=0.5), runs).variants
    assert (found.variant, found.seeds) == ("a", [0, 1])
    assert (found.primary.mean, found.primary.low, found.primary.high) == (pytest.approx(0.6), 0.5, 0.7)
    assert found.other_mode.mean == pytest.approx(0.8)
    assert found.by_hops[2].mean == pytest.approx(0.9)
    assert found.validation.by_seed == {0: pytest.approx(0.7), 1: pytest.approx(0.3)}
    assert found.area.by_seed == {0: pytest.approx(0.5), 1: pytest.approx(0.2)}
    assert found.iterations_to_threshold.by_seed == {0: 1, 1: None}
    assert found.seconds_to_threshold.by_seed == {0: 10.0, 1: None}
    spent = found.budget
    assert (spent.iterations, spent.trajectories, spent.sampled_tokens) == (2, 48, 200.0)
    assert (spent.training_seconds, spent.total_seconds) == (20.0, 170.0)


def test_a_comparison_is_made_on_common_seeds_against_the_baseline_s_own_level() -> None:
    runs = [
        run("a", 0, [0.3, 0.6, 0.8], 0.8),  # levels 0.45, 0.7
        run("a", 1, [0.0, 0.1, 0.4], 0.4),  # levels 0.05, 0.25
        run("b", 0, [0.0, 0.3, 0.5], 0.4),  # levels 0.15, 0.4: a is there after one iteration, b itself after two
        run("b", 1, [0.0, 0.4, 0.6], 0.2),  # levels 0.2, 0.5: a never gets there
        run("b", 2, [0.0, 0.4, 0.6], 9.9),  # no partner
    ]
    (found,) = summarise(experiment(seeds=[0, 1, 2]), runs).comparisons
    assert (found.variant, found.baseline, found.seeds) == ("a", "b", [0, 1])
    assert (found.primary.ratio, found.primary.low, found.primary.high) == (pytest.approx(2.0), 2.0, 2.0)
    assert found.validation.ratio == pytest.approx((0.7 + 0.25) / (0.4 + 0.5))
    assert found.iterations.by_seed == {0: 1, 1: None}
    assert found.baseline_iterations.by_seed == {0: 2, 1: 2}
    assert found.iterations_share.by_seed == {0: 0.5, 1: None}
    assert found.seconds.by_seed == {0: 10.0, 1: None}
    assert found.baseline_seconds.by_seed == {0: 20.0, 1: 20.0}
    assert found.seconds_share.by_seed == {0: 0.5, 1: None}
    assert found.iterations_share_mean == found.seconds_share_mean == Estimate(None, None, None, {})
    assert (found.iterations_share.reached, found.iterations_share.median) == (1, None)


def test_a_variant_like_its_baseline_has_a_share_of_1() -> None:
    """However noisy: a single evaluation above the goal, at iteration 1, counts for neither."""
    noisy, rising = [0.1, 0.9, 0.3, 0.7], [0.0, 0.2, 0.3, 0.4]
    runs = [run(variant, seed, curve) for variant in "ab" for seed, curve in enumerate((noisy, rising))]
    (found,) = summarise(experiment(), runs).comparisons
    assert found.iterations.by_seed == found.baseline_iterations.by_seed == {0: 1, 1: 3}  # levels 0.5, 0.6, 0.5
    assert found.iterations_share_mean == Estimate(1.0, 1.0, 1.0, {0: 1.0, 1: 1.0})
    assert found.seconds_share_mean == Estimate(1.0, 1.0, 1.0, {0: 1.0, 1: 1.0})


def test_the_mean_share_has_an_interval_where_every_seed_got_there() -> None:
    runs = [
        run("a", 0, [0.0, 0.6, 0.8, 0.8]),  # levels 0.3, 0.7, 0.8: 0.4 at iteration 2
        run("a", 1, [0.4, 0.6, 0.6, 0.6]),  # levels 0.5, 0.6, 0.6: 0.4 at iteration 1
        *(run("b", seed, [0.0, 0.1, 0.3, 0.5]) for seed in (0, 1)),  # levels 0.05, 0.2, 0.4
    ]
    (found,) = summarise(experiment(), runs).comparisons
    share = found.iterations_share_mean
    assert share.by_seed == {0: 2 / 3, 1: 1 / 3}
    assert (share.mean, share.low, share.high) == pytest.approx((1 / 2, 1 / 3, 2 / 3))


def test_a_baseline_that_hardly_rose_sets_no_time() -> None:
    runs = [run("a", 0, [0.1, 0.2, 0.5]), run("b", 0, [0.4, 0.3, 0.3])]
    found = summarise(experiment(last=1), runs)
    (one,) = found.comparisons
    assert (one.iterations.by_seed, one.baseline_iterations.by_seed) == ({0: 2}, {0: 0})
    assert one.iterations_share.by_seed == one.seconds_share.by_seed == {}
    assert found.remarks[-1] == "a against b: the baseline rose by less than 0.05, so no share (seed 0)"
    flat = [run("a", 0, [0.0, 0.4, 0.8]), run("b", 0, [0.0, 0.0, 0.04])]  # five lucky answers of 120
    learning = [run("a", 1, [0.0, 0.4, 0.8]), run("b", 1, [0.0, 0.2, 0.4])]  # after one iteration of two
    (one,) = summarise(experiment(last=1), [*flat, *learning]).comparisons
    assert one.iterations_share.by_seed == {1: 0.5}
    assert (one.iterations_share.reached, one.iterations_share.median) == (1, 0.5)


def test_what_a_reader_has_to_know_is_said() -> None:
    runs = [run("a", 0, [0.0, 0.0, 0.1], 0.1), run("b", 0, [0.0, 0.0, 0.0], 0.0)]
    assert summarise(experiment(), runs).remarks == [
        "a: one seed, so no interval",
        "b: one seed, so no interval",
        "a against b: one seed, so no interval",
        "a against b: the baseline's mean is 0, so no ratio (primary metric)",
        "a against b: the baseline's mean is 0, so no ratio (validation)",
        "a against b: the baseline rose by less than 0.05, so no share (seed 0)",
    ]


def test_a_variant_without_runs_is_left_out() -> None:
    found = summarise(experiment(), [run("a", 0, [0.0, 0.5, 0.5])])
    assert [one.variant for one in found.variants] == ["a"]
    assert found.comparisons == []


def test_a_primary_metric_on_validation_is_its_level() -> None:
    (found,) = summarise(experiment(primary="eval/sampled/exact_match"), [run("a", 0, [0.0, 0.4, 0.6])]).variants
    assert found.primary.mean == pytest.approx(0.5)
