"""What samples actions: the protocol that every engine keeps. Tokens in, tokens out; text is nobody's business here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """Ask for the next action of one trajectory.

    `row` names the trajectory within its session. `new_ids` are the tokens since its last action; where `restart` is
    True they are the whole context (a first turn, or a new segment). `seed` fixes the action's random numbers.
    """

    row: int
    new_ids: tuple[int, ...]
    seed: int
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """Tokens exactly as sampled, the end-of-turn token included, and their log-probabilities at the temperature.

    `finished` is False where the limit of new tokens cut the action off.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


class Session(Protocol):
    """A batch of trajectories in progress. A row that is left out of a call is over and cannot come back."""

    def act(self, requests: Sequence[ActionRequest]) -> list[Action]:
        """One action for each request, in order."""
        ...


class Sampler(Protocol):
    """An engine with the weights of one checkpoint."""

    def session(self, *, end_ids: tuple[int, ...], temperature: float, greedy: bool, max_new_tokens: int) -> Session:
        """Begin a batch of trajectories, whose actions end with any of `end_ids`.

        Greedy takes the likeliest token; log-probabilities keep the temperature.
        """
        ...
