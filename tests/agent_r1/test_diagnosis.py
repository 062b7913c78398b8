"""Each rule on a series by hand that raises its alarm, and on one next to it that does not (K3, B9)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent_r1.alarms import Alarm
from agent_r1.config import Config
from agent_r1.diagnosis import RULES, diagnose
from agent_r1.history import history

SCORE = "eval/sampled/exact_match"
Metrics = Mapping[str, Sequence[float]]


def alarms(metrics: Metrics, evaluated: bool = True, grouped: bool = True) -> dict[str, Alarm]:
    """What is raised by name. Values count up from iteration 1, those of evaluations from 0."""
    rows = [
        (iteration, key, value)
        for key, values in metrics.items()
        for iteration, value in enumerate(values, start=0 if key.startswith("eval/") else 1)
    ]
    return {alarm.name: alarm for alarm in diagnose(history(rows, SCORE, evaluated=evaluated, grouped=grouped))}


LONG = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8]
HEALTHY: Metrics = {
    SCORE: LONG,
    "rollout/exact_match": LONG,
    "rollout/reward_mean": LONG,
    "rollout/answered": [0.9] * 9,
    "rollout/evidence": LONG,
    "rollout/tool_calls_mean": [2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.0, 3.0, 3.0],
    "rollout/no_call": [0.2, 0.1, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.3],
    "rollout/malformed": [0.3, 0.1] + [0.0] * 7,
    "rollout/truncated": [0.05] * 9,
    "rollout/repeated": [0.1] * 9,
    "rollout/tokens_per_second": [math.nan] * 9,
    "rollout/group_zero_variance": [0.3, 0.2, 0.2, 0.3, 0.4, 0.5, 0.5, 0.6, 0.6],
    "rollout/logprob_gap_mean": [0.02] * 9,
    "ppo/kl": [0.01, 0.01, 0.06, 0.01, 0.0, 0.02, 0.01, 0.06, 0.01],
    "ppo/kl_reference": [0.01, 0.02, 0.05, 0.1, 0.2, 0.2, 0.3, 0.3, 0.3],
    "ppo/entropy": [0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.05, 0.02, 0.005],
    "ppo/clip_fraction": [0.1] * 9,
    "ppo/grad_norm": [0.1, 0.2, 0.3, 0.2, 0.3, 0.4, 0.5, 0.4, 0.5],
    "ppo/explained_variance": [0.0, -0.1, -0.1, 0.0, 0.1, 0.3, 0.4, -0.1, 0.5],
    "ppo/skipped_updates": [0.0] * 9,
    "ppo/steps": [8.0] * 9,
}


def test_a_healthy_run_raises_nothing() -> None:
    assert alarms(HEALTHY) == {}


@pytest.mark.parametrize("length", range(3, 10))
def test_nor_did_it_on_the_way(length: int) -> None:
    assert alarms({key: values[:length] for key, values in HEALTHY.items()}) == {}


FALLEN = [0.1, 0.8, 0.8, 0.5]
CASES: Sequence[tuple[str, Metrics, Metrics]] = [
    ("not_finite", {"ppo/policy_loss": [0.1, math.nan]}, {"rollout/tokens_per_second": [math.nan]}),
    ("collapse", {SCORE: [0.1, 0.8, 0.7, 0.39]}, {SCORE: [0.1, 0.8, 0.7, 0.4]}),
    ("collapse", {SCORE: [0.1, 0.0, 0.0]}, {SCORE: [0.09, 0.0, 0.0]}),
    ("no_entropy", {SCORE: FALLEN, "ppo/entropy": [0.2, 0.009]}, {SCORE: FALLEN, "ppo/entropy": [0.2, 0.01]}),
    ("no_entropy", {SCORE: FALLEN, "ppo/entropy": [0.0]}, {SCORE: [*FALLEN, 0.61], "ppo/entropy": [0.0]}),
    (  # reward 0.3 -> 0.4, answers 0.5 -> 0.35
        "reward_farming",
        {"rollout/reward_mean": [0.3, 0.3, 0.4, 0.4], "rollout/exact_match": [0.5, 0.5, 0.4, 0.3]},
        {"rollout/reward_mean": [0.3, 0.3, 0.3, 0.3], "rollout/exact_match": [0.5, 0.5, 0.4, 0.3]},
    ),
    (
        "reward_farming",
        {"rollout/reward_mean": [0.3, 0.3, 0.4, 0.4], "rollout/exact_match": [0.5, 0.5, 0.4, 0.38]},
        {"rollout/reward_mean": [0.3, 0.3, 0.4, 0.4], "rollout/exact_match": [0.5, 0.5, 0.45, 0.45]},
    ),
    (
        "evidence_farming",
        {"rollout/evidence": [0.5, 0.5, 0.6, 0.6], "rollout/answered": [0.9, 0.9, 0.8, 0.7]},
        {"rollout/evidence": [0.5, 0.5, 0.5, 0.5], "rollout/answered": [0.9, 0.9, 0.8, 0.7]},
    ),
    (
        "evidence_farming",
        {"rollout/tool_calls_mean": [2, 2, 3, 4], "rollout/answered": [0.9, 0.9, 0.8, 0.7]},
        {"rollout/tool_calls_mean": [2, 2, 3, 4], "rollout/answered": [0.9, 0.9, 0.9, 0.9]},
    ),
    (
        "evidence_farming",
        {"rollout/tool_calls_mean": [2, 2, 2.2, 2.3], "rollout/answered": [0.9, 0.9, 0.8, 0.7]},
        {"rollout/tool_calls_mean": [2, 2, 2.1, 2.1], "rollout/answered": [0.9, 0.9, 0.8, 0.7]},
    ),
    ("unanswered", {"rollout/answered": [1.0, 0.4, 0.5, 0.6]}, {"rollout/answered": [0.4, 0.5, 0.7]}),
    (
        "unanswered",
        {"rollout/answered": [1.0] * 4 + [0.75] * 4},
        {"rollout/answered": [1.0] * 4 + [0.9] * 3 + [0.7]},
    ),
    ("no_call", {"rollout/no_call": [1.0]}, {"rollout/no_call": [0.4]}),
    ("no_call", {"rollout/no_call": [0.0] * 4 + [0.2] * 4}, {"rollout/no_call": [0.0] * 7 + [0.6]}),
    ("no_call", {"eval/sampled/no_call": [1.0]}, {"eval/sampled/no_call": [1.0], "rollout/no_call": [0.1]}),
    ("malformed", {"rollout/malformed": [0.5, 0.5, 0.5]}, {"rollout/malformed": [1.0, 0.3, 0.1]}),
    ("truncated", {"rollout/truncated": [0.0, 0.2, 0.7, 0.7]}, {"rollout/truncated": [0.0, 0.1, 0.2, 0.2]}),
    ("repeated", {"rollout/repeated": [0.1, 0.1, 0.3, 0.4]}, {"rollout/repeated": [0.1, 0.1, 0.2, 0.3]}),
    ("logprob_gap", {"rollout/logprob_gap_mean": [0.05]}, {"rollout/logprob_gap_mean": [0.2, 0.02, 0.03, 0.04]}),
    ("update_kl", {"ppo/kl": [0.01, 0.1, 0.1, 0.1]}, {"ppo/kl": [0.5, 0.1, 0.1, 0.09]}),
    ("reference_kl", {"ppo/kl_reference": [0.1, 0.5, 1.0, 1.5]}, {"ppo/kl_reference": [0.1, 0.5, 1.0, 1.4]}),
    ("clipping", {"ppo/clip_fraction": [0.3]}, {"ppo/clip_fraction": [0.29]}),
    ("exploding", {"ppo/grad_norm": [0.1, 0.2, 0.3, 0.2, 2.0, 0.2]}, {"ppo/grad_norm": [0.1, 0.2, 0.3, 0.2, 1.9, 0.2]}),
    ("exploding", {"ppo/grad_norm": [0.2] * 5 + [9.0]}, {"ppo/grad_norm": [9.0] * 6}),
    (
        "skipped",
        {"ppo/skipped_updates": [0, 2, 0], "ppo/steps": [50, 50, 50]},
        {"ppo/skipped_updates": [0, 1, 0], "ppo/steps": [50, 50, 50]},
    ),
    ("useless_critic", {"ppo/explained_variance": [0.1] + [0.0] * 5}, {"ppo/explained_variance": [0.0] * 4}),
    ("useless_critic", {"ppo/explained_variance": [-1.0] * 9}, {"ppo/explained_variance": [-1.0] * 8 + [0.01]}),
    ("groups_alike", {"rollout/group_zero_variance": [0.7]}, {"rollout/group_zero_variance": [0.9, 0.5, 0.5]}),
    ("no_learning", {SCORE: [0.2, 0.1, 0.2] * 3}, {SCORE: [0.2, 0.1, 0.2] * 2 + [0.2, 0.2, 0.3]}),
    ("no_learning", {SCORE: [0.0] * 9}, {SCORE: [0.0] * 8}),
    ("no_learning", {SCORE: [0.8] * 9}, {SCORE: [0.9] * 9}),
    ("few_evaluations", {SCORE: [0.1, 0.2]}, {SCORE: [0.1, 0.2, 0.3]}),
    ("few_evaluations", {"rollout/answered": [0.9]}, {SCORE: [0.1]}),
]


@pytest.mark.parametrize(("name", "fires", "silent"), CASES)
def test_a_rule_fires_and_does_not(name: str, fires: Metrics, silent: Metrics) -> None:
    assert name in alarms(fires)
    assert name not in alarms(silent)


def test_a_run_that_is_never_evaluated_is_not_blamed_for_it() -> None:
    assert alarms({"rollout/answered": [0.9]}, evaluated=False) == {}
    assert alarms({SCORE: [0.0] * 9}, evaluated=False) == {}


def test_attempts_of_equal_reward_matter_to_group_estimators_alone() -> None:
    assert alarms({SCORE: LONG, "rollout/group_zero_variance": [0.9]}, grouped=False) == {}


def test_every_rule_is_tried() -> None:
    assert len({name for name, _, _ in CASES}) == len(RULES)


def test_every_alarm_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page.partition("| alarm |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(
        {name for name, _, _ in CASES}
    )


def test_an_alarm_says_numbers_and_iterations() -> None:
    found = alarms({SCORE: [0.1, 0.8, 0.7, 0.39]})["collapse"]
    assert found.seen == f"{SCORE} is 0.39 at iteration 3 and was 0.8 at iteration 1"
    assert "--from RUN@1" in found.advice
    critic = alarms({"ppo/explained_variance": [0.1] + [-0.5] * 5})["useless_critic"]
    assert critic.seen == "ppo/explained_variance is -0.5 at iteration 6, and never above 0 since iteration 2"
    rose = alarms({"rollout/no_call": [0.0] * 4 + [0.2] * 4})["no_call"]
    assert rose.seen == "rollout/no_call rose 0 -> 0.2 between the halves of iterations 1 to 8"
    skipped = alarms({"ppo/skipped_updates": [0, 2, 0], "ppo/steps": [50, 50, 50]})["skipped"]
    assert skipped.seen == "2 of 152 steps were skipped, at iteration 2"
    nothing = alarms({f"ppo/{letter}": [0.0, math.nan] for letter in "abcde"})["not_finite"]
    assert nothing.seen == (
        "not a number: ppo/a at iteration 2; ppo/b at iteration 2; ppo/c at iteration 2 and 2 other metrics"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e300])
def test_no_value_makes_a_rule_fail(value: float) -> None:
    for length in (1, 2, 3, 8, 9):
        alarms({key: [value] * length for key in HEALTHY})
        for key in HEALTHY:
            alarms({**HEALTHY, key: [value] * length})


def test_a_run_without_metrics_and_one_without_some_raise_nothing_of_them() -> None:
    assert alarms({}) == {}
    for key in HEALTHY:
        assert set(alarms({other: values for other, values in HEALTHY.items() if other != key})) <= {"few_evaluations"}


def test_what_to_try_names_keys_that_are_there() -> None:
    keys = set(Config().flat())
    said = [alarm.advice for _, fires, _ in CASES for alarm in alarms(fires).values()]
    named = {name for advice in said for name in re.findall(r"\b[a-z_]+\.[a-z_]+\b", advice)}
    assert named
    assert named <= keys
