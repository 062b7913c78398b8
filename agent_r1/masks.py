"""The flat form of a trajectory: which tokens the agent chose, and which the world gave.

A turn knows both apart since it was sampled; here they are only laid side by side, never guessed from text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from agent_r1.trajectory import Turn


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of tokens that the model saw as one context. `last_action` maps a turn to where its last token is."""

    index: int
    token_ids: tuple[int, ...]
    action_mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    last_action: dict[int, int]


def segments(turns: Sequence[Turn]) -> Iterator[Segment]:
    """The segments of a trajectory in order; the mask is True exactly on sampled tokens.

    ValueError where a turn has no action token, or not one log-probability for each.
    """
    for index, members in groupby(turns, key=lambda turn: turn.segment):
        ids: list[int] = []
        mask: list[bool] = []
        logprobs: list[float] = []
        last_action: dict[int, int] = {}
        for turn in members:
            if not turn.action_ids or len(turn.action_ids) != len(turn.action_logprobs):
                raise ValueError(
                    f"turn {turn.index}: {len(turn.action_ids)} action tokens, "
                    f"{len(turn.action_logprobs)} log-probabilities"
                )
            ids += [*turn.given_ids, *turn.action_ids]
            mask += [False] * len(turn.given_ids) + [True] * len(turn.action_ids)
            logprobs += [0.0] * len(turn.given_ids) + list(turn.action_logprobs)
            last_action[turn.index] = len(ids) - 1
        yield Segment(index, tuple(ids), tuple(mask), tuple(logprobs), last_action)
