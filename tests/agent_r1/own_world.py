"""What a user may bring, as `own_world:Name`: environments that do what tests need, and reward functions."""

# ruff: noqa: ARG001, ARG002 - they are called so, whatever they need

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal

from agent_r1.environment import Step
from agent_r1.questions.records import Question
from agent_r1.tool_calls import ParsedTurn
from agent_r1.trajectory import CallRecord, Trajectory


class Guess:
    """A number to guess: no tools, no gold answer; the environment speaks, pays, ends and scores."""

    def __init__(self) -> None:
        self.secret = 0

    def reset(self, question: Question, seed: int) -> str:
        self.secret = seed % 3
        return f"{question.text} Guess."

    def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
        if turn.text.strip() == "stop":
            return Step(reward=-1.0, done=True, score=0.25)
        if turn.answer:
            return Step(reward=2.0, score=1.0 if turn.answer == "3" else 0.0)
        return Step(observation=f"not {turn.text}, {len(results)} calls", reward=0.5)


class Summary(Guess):
    """Says anew what it was told so far instead of all before."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
        self.seen += [result.text for result in results]
        return Step() if not results else Step(context=f"So far: {', '.join(self.seen)}")


class Broken(Guess):
    """Fails where its question says so."""

    def reset(self, question: Question, seed: int) -> str:
        if question.text == "reset":
            raise RuntimeError("no reset")
        return question.text

    def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
        if turn.text == "hang":
            time.sleep(1.0)
        if turn.text == "wrong":
            return "no step"  # pyright: ignore[reportReturnType]
        if turn.text == "nan":
            return Step(reward=float("nan"))
        if turn.text == "score":
            return Step(score=2.0)
        raise RuntimeError("no step")


class NotMade(Guess):
    """Cannot even be made."""

    def __init__(self) -> None:
        raise RuntimeError("not made")


class Numbers(Guess):
    """Pays and scores in numbers of other kinds, and says half a surrogate pair."""

    def reset(self, question: Question, seed: int) -> str:
        return "Where\ud800?"

    def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
        if turn.text == "odd":
            return Step(observation=5)  # pyright: ignore[reportArgumentType]
        paid, scored = Decimal("0.5"), Decimal(1)
        return Step("say\ud800", None, paid, turn.text == "stop", scored)  # pyright: ignore[reportArgumentType]


class NoText(Guess):
    """Asks nothing that could be shown."""

    def reset(self, question: Question, seed: int) -> str:
        return 5  # pyright: ignore[reportReturnType]


def brevity(trajectory: Trajectory, question: Question) -> float:
    """More for fewer turns."""
    return 1 / len(trajectory.turns)


def by_turn(trajectory: Trajectory, question: Question) -> list[float]:
    """The index of every turn."""
    return [float(turn.index) for turn in trajectory.turns]


def too_few(trajectory: Trajectory, question: Question) -> list[float]:
    """Not one for each turn."""
    return []


def no_number(trajectory: Trajectory, question: Question) -> float:
    """No finite number."""
    return float("nan")


def failing(trajectory: Trajectory, question: Question) -> float:
    """Raises."""
    raise KeyError(question.id)


NOT_CALLABLE = 3
