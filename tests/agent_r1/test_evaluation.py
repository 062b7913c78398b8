"""Metrics of trajectories by hand: scores by hops and kind, endings, behaviour (F4, K3)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest

from agent_r1.evaluation import evaluation_metrics, rollout_metrics, scores
from agent_r1.questions.records import Evidence, Question
from agent_r1.tools.protocol import Source
from agent_r1.trajectory import Annotation, CallRecord, Ending, Trajectory, Turn

QUESTIONS = {
    "a": Question("a", "?", ("Rome",), (Evidence("p", 1), Evidence("q", 1)), hops=2, metadata={"kind": "comparison"}),
    "b": Question("b", "?", ("Oslo",), (Evidence("r", 1),), hops=3, metadata={"kind": "compositional"}),
    "c": Question("c", "?", ("no",)),
}
MALFORMED = CallRecord("", {}, ok=False, text="error", malformed=True)


def look(x: str, text: str = "text", ok: bool = True, *sources: Source) -> CallRecord:
    return CallRecord("look", {"x": x}, ok, text, sources)


def turn(index: int, *calls: CallRecord, tokens: int = 2, given: int = 1) -> Turn:
    seen = "\n".join(call.text for call in calls)
    return Turn(index, 0, (1,) * given, (2,) * tokens, (-1.0,) * tokens, "", calls, seen)


def made(question: str, ending: Ending, match: float, f1: float, *turns: Turn, attempt: int = 0) -> Trajectory:
    answer = "x" if ending == "answered" else None
    return Trajectory("run", 1, "sampled", question, attempt, 0, ending, answer, match, f1, turns)


TRAJECTORIES = [
    made("a", "answered", 1.0, 1.0, turn(0, look("1", "It is Rome.", True, Source("p", 1, 0, 1))), turn(1, tokens=3)),
    made("a", "truncated", 0.0, 0.0, turn(0, look("1"), look("1")), turn(1, MALFORMED), attempt=1),
    made("b", "answered", 0.0, 0.5, turn(0, look("1", ok=False), look("2")), turn(1)),
    made("c", "prompt_too_long", 0.0, 0.0),
]


def test_scores_are_means_over_all_by_hops_and_by_kind() -> None:
    found = evaluation_metrics("sampled", TRAJECTORIES, QUESTIONS)
    assert found["eval/sampled/exact_match"] == 0.25
    assert found["eval/sampled/f1"] == 0.375
    assert found["eval/sampled/exact_match/hops_2"] == 0.5
    assert found["eval/sampled/exact_match/hops_3"] == 0.0
    assert found["eval/sampled/f1/hops_3"] == 0.5
    assert found["eval/sampled/exact_match/kind_comparison"] == 0.5
    assert found["eval/sampled/f1/kind_compositional"] == 0.5
    assert not any("hops_None" in name or name.endswith("kind_") for name in found)


def test_the_test_split_has_the_same_metrics_in_a_group_of_its_own() -> None:
    found = evaluation_metrics("greedy", TRAJECTORIES, QUESTIONS, "test")
    names = [name.removeprefix("eval/") for name in evaluation_metrics("greedy", TRAJECTORIES, QUESTIONS)]
    assert list(found) == [f"test/{name}" for name in names]


def test_endings_add_up() -> None:
    """Rule 7: nothing is dropped."""
    found = evaluation_metrics("greedy", TRAJECTORIES, QUESTIONS)
    endings = {ending: found[f"eval/greedy/ending/{ending}"] for ending in get_args(Ending)}
    assert endings == {
        "answered": 0.5, "no_answer": 0, "truncated": 0.25, "max_turns": 0, "context_full": 0, "prompt_too_long": 0.25,
        "done": 0, "environment_failed": 0,
    }  # fmt: skip


def test_behaviour_is_counted_by_trajectory() -> None:
    """K3: calls per trajectory and the share without any."""
    found = evaluation_metrics("greedy", TRAJECTORIES, QUESTIONS)
    expected = {
        "turns_mean": 1.5, "tool_calls_mean": 1.5, "no_call": 0.25, "answered": 0.5, "truncated": 0.25,
        "malformed": 0.25, "failed": 0.25, "repeated": 0.25, "evidence": 0.125, "gold_in_view": 0.25,
    }  # fmt: skip
    assert {name: found[f"eval/greedy/{name}"] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seen", "share"), [("It is ROME!", 1.0), ("Romeo", 0.0), ("the romes", 0.0), ("", 0.0), ("a Rome b", 1.0)]
)
def test_gold_in_view_is_a_whole_normalised_answer_in_a_tool_s_text(seen: str, share: float) -> None:
    """F4, and F2's kind: not a part of a word."""
    one = made("a", "answered", 0.0, 0.0, turn(0, look("1", seen)))
    assert evaluation_metrics("greedy", [one], QUESTIONS)["eval/greedy/gold_in_view"] == share


def test_no_trajectories_have_no_metrics() -> None:
    assert evaluation_metrics("greedy", [], QUESTIONS) == {}
    assert rollout_metrics([], QUESTIONS, [], 1.0) == {}


ANNOTATIONS = [
    Annotation("1", 0, (), (), (), (), {0: {"evidence": 0.25, "turn": -0.05}, 1: {"outcome": 1.0}}),
    Annotation("2", 0, (), (), (), (), {0: {"turn": -0.05, "repeated": -0.1}}),
    Annotation("2", 1, (), (), (), (), {1: {"malformed": -0.1, "turn": -0.05}}),
]


def test_reward_components_are_means_per_trajectory_and_add_up_to_the_reward() -> None:
    found = rollout_metrics(TRAJECTORIES, QUESTIONS, ANNOTATIONS, seconds=2.0)
    assert found["reward/outcome"] == 0.25
    assert found["reward/turn"] == pytest.approx(-0.0375)
    assert found["reward/unanswered"] == 0.0
    parts = [value for name, value in found.items() if name.startswith("reward/")]
    assert found["rollout/reward_mean"] == pytest.approx(sum(parts)) == pytest.approx(0.225)


def earned(question: str, attempt: int, *rewards: float) -> tuple[Trajectory, Annotation]:
    trajectory = made(question, "answered", 0.0, 0.0, turn(0), attempt=attempt)
    size = len(rewards)
    return trajectory, Annotation(trajectory.trajectory_id, 0, (0,) * size, (True,) * size, (0.0,) * size, rewards, {})


def test_groups_whose_attempts_all_earn_the_same_are_counted() -> None:
    """B9: of two questions one: .1 + .2 is .3 but for rounding, and what earned nothing differs from .5."""
    pairs = [earned("a", 0, 0.1, 0.2), earned("a", 1, 0.3), earned("b", 0, 0.5), earned("b", 1, 0.0)]
    trajectories, annotations = [one for one, _ in pairs], [row for _, row in pairs]
    assert rollout_metrics(trajectories, QUESTIONS, annotations, 1.0)["rollout/group_zero_variance"] == 0.5
    without_turns = rollout_metrics(trajectories, QUESTIONS, annotations[:2], 1.0)
    assert without_turns["rollout/group_zero_variance"] == 1.0, "a trajectory without rows earned nothing"


def test_single_attempts_are_no_groups() -> None:
    pairs = [earned("a", 0, 0.3), earned("b", 0, 0.3)]
    found = rollout_metrics([one for one, _ in pairs], QUESTIONS, [row for _, row in pairs], 1.0)
    assert "rollout/group_zero_variance" not in found


def test_sampled_tokens_are_counted_and_given_ones_are_not() -> None:
    """A10: 5, 4, 4 and 0 action tokens, with one given token between the two turns of the first three."""
    found = rollout_metrics(TRAJECTORIES, QUESTIONS, ANNOTATIONS, seconds=2.0)
    assert found["rollout/action_tokens_mean"] == 13 / 4
    assert found["rollout/action_tokens_max"] == 5
    assert found["rollout/action_span_mean"] == 16 / 4
    assert found["rollout/tokens_per_second"] == 6.5
    assert math.isnan(rollout_metrics(TRAJECTORIES, QUESTIONS, [], seconds=0.0)["rollout/tokens_per_second"])


def test_the_number_of_action_tokens_and_their_span_have_names_of_their_own() -> None:
    """A10: the mask [0, 0, 0, 1, 0, 0, 1], whose prompt does not count, has length 2 and span 4."""
    one = made("c", "answered", 0.0, 0.0, turn(0, tokens=1, given=3), turn(1, tokens=1, given=2))
    found = evaluation_metrics("greedy", [one], QUESTIONS)
    assert found["eval/greedy/action_tokens_mean"] == found["eval/greedy/action_tokens_max"] == 2
    assert found["eval/greedy/action_span_mean"] == 4


def test_rollouts_are_described_as_evaluations_are() -> None:
    rollout = rollout_metrics(TRAJECTORIES, QUESTIONS, [], 1.0)
    evaluation = evaluation_metrics("greedy", TRAJECTORIES, QUESTIONS)
    assert rollout["rollout/exact_match/hops_2"] == 0.5
    assert rollout["rollout/ending/truncated"] == 0.25
    assert {name.removeprefix("eval/greedy/"): value for name, value in evaluation.items()}.items() <= {
        name.removeprefix("rollout/"): value for name, value in rollout.items()
    }.items()


def test_the_promised_metrics_are_there() -> None:
    names = (
        "reward_mean turns_mean tool_calls_mean answered malformed failed repeated evidence truncated tokens_per_second"
    )
    found = rollout_metrics(TRAJECTORIES, QUESTIONS, ANNOTATIONS, 1.0)
    assert {f"rollout/{name}" for name in names.split()} <= set(found)


def test_scores_are_by_data_set_in_their_order_and_by_hops_where_those_differ() -> None:
    asked = {
        "a": replace(QUESTIONS["a"], dataset="musique"),
        "b": replace(QUESTIONS["b"], dataset="musique"),
        "c": replace(QUESTIONS["c"], dataset="hotpotqa"),
    }
    found = scores({"greedy": TRAJECTORIES, "sampled": TRAJECTORIES[2:]}, asked)
    assert [(each.dataset, each.hops, each.questions) for each in found] == [
        ("musique", None, 2),
        ("musique", 2, 1),
        ("musique", 3, 1),
        ("hotpotqa", None, 1),
    ]
    assert [each.metrics["eval/greedy/f1"] for each in found] == pytest.approx([0.5, 0.5, 0.5, 0.0])
    assert [each.metrics["eval/greedy/exact_match"] for each in found] == pytest.approx([1 / 3, 0.5, 0.0, 0.0])
    assert found[1].metrics.get("eval/sampled/f1") is None
    assert found[2].metrics["eval/sampled/f1"] == 0.5


def test_what_was_given_before_the_question_is_in_view() -> None:
    """F4: the answer stood in the prompt of the question that was answered wrong."""
    given = {"b": CallRecord("search", {"query": "?"}, True, "It is Oslo.", (Source("r", 1, 0, 11),))}
    without, found = (evaluation_metrics("greedy", TRAJECTORIES[2:3], QUESTIONS, given=shown) for shown in ({}, given))
    changed = {name for name in found if found[name] != without[name]}
    assert changed == {"eval/greedy/gold_in_view", "eval/greedy/evidence"}
    assert found["eval/greedy/gold_in_view"] == found["eval/greedy/evidence"] == 1.0
