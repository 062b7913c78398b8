"""What an environment is: it says what the agent is asked, and after each of its turns what the agent sees next.

One instance lives through one attempt at one question. `environments.py` runs the calls for it, `chat.py` makes tokens
of what it says, and `rewards.py` prices the turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_r1.questions.records import Question
from agent_r1.tool_calls import ParsedTurn
from agent_r1.tools.protocol import encodable
from agent_r1.trajectory import CallRecord


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one turn. All defaults: the agent sees what its calls returned, each as a tool's message.

    `observation` is shown instead, as a message of the user. `context` takes the place of everything before: the prompt
    begins anew with it where the question stood, and a new segment with the prompt. `reward` is the turn's own, counted
    `rewards.environment` times. `done` ends the trajectory. `score`, at its last turn, is the trajectory's exact match
    and F1 (from 0 to 1), where the question's gold answers cannot say.
    """

    observation: str | None = None
    context: str | None = None
    reward: float = 0.0
    done: bool = False
    score: float | None = None


class Environment(Protocol):
    """The world of one attempt. What it does at random it draws from `seed`, so that a resumed run sees the same.

    Whatever it raises, be it when it is made, or takes longer for than `rollout.tool_timeout`, ends the trajectory as
    `environment_failed`.
    """

    def reset(self, question: Question, seed: int) -> str:
        """What the agent is asked: the user's message after the system prompt."""
        ...

    def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
        """What comes of a turn that was not cut off, given the results of its calls, malformed ones last.

        A turn with an answer ends the trajectory: its calls are not run, and of the step reward and score count.
        """
        ...


class ToolEnvironment:
    """The question as it is, and what the tools return."""

    def reset(self, question: Question, seed: int) -> str:
        """See Environment."""
        del seed
        return question.text

    def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
        """See Environment."""
        del turn, results
        return Step()


def checked_question(text: object) -> str:
    """What reset returned, encodable. TypeError where it is no text."""
    if not isinstance(text, str):
        raise TypeError(f"reset must return the user's message as a str, got {type(text).__name__}")
    return encodable(text)


def checked_step(step: object) -> Step:
    """What step returned, with plain numbers and encodable texts. TypeError or ValueError where it is no such Step."""
    if not isinstance(step, Step):
        raise TypeError(f"step must return a Step, got {type(step).__name__}")
    if not math.isfinite(step.reward):
        raise ValueError(f"a step's reward must be finite, got {step.reward}")
    if step.score is not None and not 0 <= step.score <= 1:
        raise ValueError(f"a step's score must be from 0 to 1, got {step.score}")
    return Step(
        observation=_checked_text("observation", step.observation),
        context=_checked_text("context", step.context),
        reward=float(step.reward),
        done=bool(step.done),
        score=None if step.score is None else float(step.score),
    )


def _checked_text(name: str, text: object) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"a step's {name} must be a str or None, got {type(text).__name__}")
    return encodable(text)
