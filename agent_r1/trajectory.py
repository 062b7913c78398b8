"""The records of a rollout: turns of exactly sampled tokens, and the trajectory they make. Only data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from agent_r1.tools.protocol import JsonObject, Source

Purpose = Literal["train", "greedy", "sampled", "test_greedy", "test_sampled"]
"""train: rollouts. greedy, sampled: validation. test_...: the test split, after the last iteration."""
GREEDY: tuple[Purpose, ...] = ("greedy", "test_greedy")
Ending = Literal[
    "answered", "no_answer", "truncated", "max_turns", "context_full", "prompt_too_long", "done", "environment_failed"
]  # fmt: skip
"""answered: a closed <answer>. no_answer: the turn ended without a call or an answer. truncated: cut off by
max_new_tokens. max_turns: the last allowed turn still called a tool. context_full: no room for another turn.
prompt_too_long: not even the first turn had room, so the trajectory has no turn. done: the environment ended it.
environment_failed: the environment raised or took too long; where that was at the start, there is no turn."""
INTENDED: tuple[Ending, ...] = ("answered", "done")
"""Endings that are neither a failure of the agent's nor of its surroundings."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One tool call of a turn (or one malformed attempt, whose name is "") and what came back."""

    name: str
    arguments: JsonObject
    ok: bool
    text: str
    sources: tuple[Source, ...] = ()
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of the MDP: the given tokens before the action, the action exactly as sampled, the observation after.

    `given_ids` are the tokens that the world put before this action since the last action of the same segment (the
    whole context where a segment starts). `action_logprobs` has one value per action id, at the sampling temperature.
    `observation_text` is "" where the trajectory ended with this turn. `reward` is the environment's own, unpriced.
    """

    index: int
    segment: int
    given_ids: tuple[int, ...]
    action_ids: tuple[int, ...]
    action_logprobs: tuple[float, ...]
    action_text: str
    calls: tuple[CallRecord, ...] = ()
    observation_text: str = ""
    reward: float = 0.0


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt at one question. `answer` is the agent's answer, None where it gave none."""

    run: str
    iteration: int
    purpose: Purpose
    question_id: str
    attempt: int
    checkpoint: int
    ending: Ending
    answer: str | None
    exact_match: float
    f1: float
    turns: tuple[Turn, ...]

    @property
    def trajectory_id(self) -> str:
        """The key of the trajectory in the store, unique across runs."""
        return f"{self.run}/{self.iteration}/{self.purpose}/{self.question_id}/{self.attempt}"

    @property
    def action_tokens(self) -> int:
        """How many tokens the agent chose."""
        return sum(len(turn.action_ids) for turn in self.turns)

    @property
    def action_span(self) -> int:
        """Tokens from the first to the last that the agent chose of each segment, those between them included."""
        return self.action_tokens + sum(
            len(turn.given_ids) for before, turn in pairwise(self.turns) if turn.segment == before.segment
        )


@dataclass(frozen=True, slots=True)
class Annotation:
    """The flat row that training reads: one segment of a trajectory, all lists of one length.

    `logprobs` and `rewards` are 0 where `action_mask` is False. `reward_parts` maps the index of a turn of this segment
    to its price-weighted components, whose sum is that turn's reward.
    """

    trajectory_id: str
    segment: int
    token_ids: tuple[int, ...]
    action_mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    rewards: tuple[float, ...]
    reward_parts: dict[int, dict[str, float]]

    @property
    def group(self) -> str:
        """What all attempts at one question in an iteration share, and no others: the id without the attempt."""
        return self.trajectory_id.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Credit:
    """What PPO made of one annotation: one value per token, 0 where the token was given."""

    trajectory_id: str
    segment: int
    values: tuple[float, ...]
    advantages: tuple[float, ...]
    returns: tuple[float, ...]
