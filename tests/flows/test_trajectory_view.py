"""How a trajectory looks: what was chosen, what was given, what it was worth."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import config
from rich.console import Console

from agent_r1.errors import RunError
from agent_r1.trajectory import Annotation, CallRecord, Credit, Trajectory, Turn
from flows import reports, trajectory_view
from flows.start import begin
from storage import annotations, trajectories

TRAJECTORY = Trajectory(
    run="a",
    iteration=1,
    purpose="train",
    question_id="q7",
    attempt=0,
    checkpoint=0,
    ending="answered",
    answer="Oslo",
    exact_match=1.0,
    f1=1.0,
    turns=(
        Turn(0, 0, (81, 63), (65, 66), (-0.1, -0.2), "AB", (CallRecord("lookup", {}, True, "found\x1b[2J"),), "found"),
        Turn(1, 0, (10, 79), (67,), (-0.3,), "C"),
    ),
)
NAME = TRAJECTORY.trajectory_id
MARKED = Annotation(
    trajectory_id=NAME,
    segment=0,
    token_ids=(81, 63, 65, 66, 10, 79, 67),
    action_mask=(False, False, True, True, False, False, True),
    logprobs=(0.0, 0.0, -0.1, -0.2, 0.0, 0.0, -0.3),
    rewards=(0.0, 0.0, 0.0, 0.25, 0.0, 0.0, 1.0),
    reward_parts={0: {"evidence": 0.3, "turn": -0.05}, 1: {"outcome": 1.0}},
)
CREDIT = Credit(NAME, 0, (0.0,) * 7, (0.0, 0.0, 1.0, 2.0, 0.0, 0.0, -4.0), (0.0,) * 7)


def decode(ids: Sequence[int]) -> str:
    return "".join(chr(token) for token in ids)


def drawn(console: Console, marked: list[Annotation], credited: list[Credit]) -> str:
    assert isinstance(console.file, io.StringIO)
    trajectory_view.render(console, TRAJECTORY, marked, credited, decode)
    return console.file.getvalue()


def test_chosen_tokens_are_in_brackets_where_there_is_no_colour() -> None:
    text = drawn(Console(file=io.StringIO(), width=120), [MARKED], [CREDIT])
    assert "Q?[[AB]]" in text
    assert "\nO[[C]]" in text
    assert "\x1b" not in text


def test_chosen_tokens_are_bold_and_given_ones_dim_in_colour() -> None:
    text = drawn(Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=120), [], [])
    assert "\x1b[2mQ?\x1b[0m\x1b[1;35mAB\x1b[0m" in text
    assert "\x1b[2J" not in text  # what a tool said does not steer the terminal


def test_each_turn_says_what_it_was_worth() -> None:
    text = drawn(Console(file=io.StringIO(), width=200), [MARKED], [CREDIT])
    first = "reward +0.25 (evidence +0.3, turn -0.05); advantage +1.500 on average, +1.000 to +2.000"
    assert first in text
    assert "reward +1 (outcome +1); advantage -4.000 on average, -4.000 to -4.000" in text
    assert "not annotated" in drawn(Console(file=io.StringIO(), width=200), [], [])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    context = begin(tmp_path, "a", config()).context
    with context.store.write() as con:
        trajectories.save(con, "a", 1, "train", 0, [TRAJECTORY])
        annotations.save(con, "a", 1, [MARKED])
        annotations.save_credits(con, "a", 1, [CREDIT])
    return tmp_path


def test_a_trajectory_is_found_by_the_end_of_its_id(home: Path) -> None:
    for wanted in (NAME, "q7/0", "train/q7/0"):
        found = json.loads(reports.trajectory(home, "a", wanted).json_text())
        assert found["trajectory_id"] == "a/1/train/q7/0"
        assert found["annotations"][0]["action_mask"] == [False, False, True, True, False, False, True]
        assert found["credits"][0]["advantages"][-1] == -4.0
    with pytest.raises(RunError, match="no trajectory 'q8/0'"):
        reports.trajectory(home, "a", "q8/0")


def test_an_ambiguous_end_names_two_of_those_meant(home: Path) -> None:
    other = Trajectory("a", 1, "greedy", "q7", 0, 1, "no_answer", None, 0.0, 0.0, ())
    with reports.stored_context(home, "a").store.write() as con:
        trajectories.save(con, "a", 1, "greedy", 0, [other])
    with pytest.raises(RunError, match=r"2 trajectories end in 'q7/0', such as a/1/greedy/q7/0 and a/1/train/q7/0"):
        reports.trajectory(home, "a", "q7/0")


def test_an_iteration_lists_its_trajectories_with_rewards(home: Path) -> None:
    listed = json.loads(reports.iteration(home, "a", 1, every=True).json_text())["trajectories"]
    assert listed == [
        {"trajectory": NAME, "ending": "answered", "turns": 2, "answer": "Oslo", "EM": 1.0, "F1": 1.0, "reward": 1.25}
    ]
    with pytest.raises(RunError, match="nothing of iteration 9"):
        reports.iteration(home, "a", 9, every=False)
