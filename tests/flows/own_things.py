"""What a user brings, to be copied into the working directory: tools, environments, rewards, good ones and bad ones."""

# ruff: noqa: ARG001, ARG002 - they are called so, whatever they need

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from agent_r1.environment import Step
from agent_r1.questions.records import Question
from agent_r1.tool_calls import ParsedTurn
from agent_r1.tools.protocol import JsonObject, ToolResult
from agent_r1.trajectory import CallRecord, Trajectory


def town(name: str, more: bool = False) -> str:
    """What is known of a town.

    Args:
        name: Its name.
        more: All of it.
    """
    return f"{name} is a town"


class Clock:
    name = "clock"
    schema: ClassVar[JsonObject] = {
        "type": "function",
        "function": {
            "name": "clock",
            "description": "The time of day.",
            "parameters": {"type": "object", "properties": {}},
        },
    }

    def call(self, arguments: JsonObject) -> ToolResult:
        return ToolResult("12:00", ok=True)

    def close(self) -> None: ...


class Shop:
    """Says in its own words what the calls returned, and is paid for it; scores the answer."""

    def reset(self, question: Question, seed: int) -> str:
        return f"{question.text} Ask."

    def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
        if turn.answer:
            return Step(score=0.5, reward=2.0)
        return Step(observation=" and ".join(result.text for result in results), reward=-0.25)


class Closed(Shop):
    def reset(self, question: Question, seed: int) -> str:
        raise RuntimeError("the shop is closed")


def brevity(trajectory: Trajectory, question: Question) -> float:
    """More for fewer turns; broken in iteration 2 for as long as there is a file named spoilt."""
    if trajectory.iteration == 2 and Path("spoilt").exists():
        return float("nan")
    return 1 / len(trajectory.turns)


def no_number(trajectory: Trajectory, question: Question) -> float:
    return float("nan")


NOTHING = 3
