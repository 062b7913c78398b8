"""Which trajectories a report shows."""

from __future__ import annotations

from agent_r1.trajectory import Purpose
from flows.report.sample import choose, cost, spread
from storage.trajectories import Outline


def outline(iteration: int, purpose: Purpose, question: str, right: bool = True, hops: int | None = 2) -> Outline:
    name = f"a/{iteration}/{purpose}/{question}/0"
    return Outline(name, iteration, purpose, question, float(right), "world", hops, 100, 20)


def chosen(rows: list[Outline], count: int, budget: int = 10**9) -> list[str]:
    return [row.trajectory_id.removeprefix("a/").removesuffix("/0") for row in choose(rows, count, budget)]


def test_any_beginning_of_a_spread_is_spread_over_the_whole() -> None:
    assert spread([0, 1, 2, 3, 4, 5, 6, 7, 8]) == [0, 8, 4, 2, 6, 1, 3, 5, 7]
    assert [spread([]), spread([3]), spread([3, 9])] == [[], [3], [3, 9]]


def test_the_same_validation_questions_come_in_every_iteration() -> None:
    rows = [outline(i, "sampled", f"q{q}") for i in range(4) for q in range(9)]
    assert chosen(rows, 8) == [f"{i}/sampled/q{q}" for i in range(4) for q in (0, 1)]


def test_numbers_of_hops_alternate() -> None:
    rows = [outline(0, "greedy", f"q{q}", hops=2 if q < 3 else 3) for q in range(6)]
    assert chosen(rows, 4) == ["0/greedy/q0", "0/greedy/q1", "0/greedy/q3", "0/greedy/q4"]


def test_of_training_wrong_and_right_ones_alternate() -> None:
    rows = [outline(1, "train", f"q{q}", right=q > 0) for q in range(6)]
    assert chosen(rows, 2) == ["1/train/q0", "1/train/q1"]
    assert chosen(rows, 4) == ["1/train/q0", "1/train/q1", "1/train/q2", "1/train/q3"]


def test_purposes_take_turns() -> None:
    purposes: tuple[Purpose, ...] = ("greedy", "sampled", "test_sampled", "train")
    rows = [outline(1, purpose, f"q{q}") for purpose in purposes for q in range(3)]
    assert chosen(rows, 4) == ["1/greedy/q0", "1/sampled/q0", "1/test_sampled/q0", "1/train/q0"]


def test_no_more_than_fit_are_chosen_and_what_is_too_long_is_passed_over() -> None:
    long = Outline("a/0/sampled/q0/0", 0, "sampled", "q0", 1.0, None, None, 10**9, 10**9)
    assert cost(outline(0, "sampled", "q1")) == 400 + 500 + 500
    assert cost(long) == 400 + 30 * 6000
    rows = [long, *(outline(0, "sampled", f"q{q}") for q in (1, 2, 3))]
    assert chosen(rows, 9, budget=3000) == ["0/sampled/q1", "0/sampled/q2"]
    assert chosen(rows, 0) == []
