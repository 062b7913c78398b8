"""The flat form: the mask is True exactly on sampled tokens (A1, A2, A5, A7, A10, A15)."""

from __future__ import annotations

import pytest

from agent_r1.masks import segments
from agent_r1.trajectory import Turn


def turn(index: int, segment: int, given: tuple[int, ...], action: tuple[int, ...]) -> Turn:
    return Turn(index, segment, given, action, tuple(-float(token) for token in action), "")


def test_observation_tokens_and_prompts_are_given_and_sampled_ones_chosen() -> None:
    turns = [turn(0, 0, (1, 2, 3), (4, 5)), turn(1, 0, (6, 7), (8,))]
    (segment,) = segments(turns)
    assert segment.token_ids == (1, 2, 3, 4, 5, 6, 7, 8)
    assert segment.action_mask == (False, False, False, True, True, False, False, True)
    assert segment.logprobs == (0.0, 0.0, 0.0, -4.0, -5.0, 0.0, 0.0, -8.0)
    assert segment.last_action == {0: 4, 1: 7}


def test_chosen_ids_are_the_sampled_ids_pad_ids_and_repeats_among_them() -> None:
    """A1 and A15: ids are stored as sampled, a pad id (0) in the middle too."""
    sampled = ((0, 9, 0), (0,))
    (segment,) = segments([turn(0, 0, (1,), sampled[0]), turn(1, 0, (0, 0), sampled[1])])
    chosen = [token for token, is_chosen in zip(segment.token_ids, segment.action_mask, strict=True) if is_chosen]
    assert chosen == [0, 9, 0, 0]


def test_a_new_segment_starts_a_new_row_with_its_own_context() -> None:
    turns = [turn(0, 0, (1,), (2,)), turn(1, 1, (3, 4), (5,)), turn(2, 1, (6,), (7, 8))]
    first, second = segments(turns)
    assert (first.index, first.token_ids, first.last_action) == (0, (1, 2), {0: 1})
    assert (second.index, second.token_ids, second.last_action) == (1, (3, 4, 5, 6, 7, 8), {1: 2, 2: 5})


def test_all_lists_have_one_length_and_count_action_tokens() -> None:
    """A10: mask [1,0,0,1] has two action tokens on a span of four."""
    (segment,) = segments([turn(0, 0, (), (1,)), turn(1, 0, (2, 3), (4,))])
    assert len(segment.token_ids) == len(segment.action_mask) == len(segment.logprobs) == 4
    assert sum(segment.action_mask) == 2


def test_a_turn_without_a_log_probability_for_each_action_token_is_refused() -> None:
    """A2."""
    with pytest.raises(ValueError, match="turn 3: 2 action tokens, 1 log-probabilities"):
        list(segments([Turn(3, 0, (1,), (2, 3), (-1.0,), "")]))


def test_a_turn_without_action_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="turn 0: 0 action tokens"):
        list(segments([Turn(0, 0, (1,), (), (), "")]))


def test_a_trajectory_without_turns_has_no_segment() -> None:
    assert list(segments([])) == []
