"""Credit lives on action tokens: numbers worked out by hand, among them B1, B4, B6, B9 and A13."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from agent_r1.advantages import gae, group_relative, leave_one_out, reinforce_plus_plus, whiten


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def masks(*values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected.to(actual.dtype), atol=1e-6, rtol=0)


def test_gae_skips_tool_tokens() -> None:
    """B1. d = (.2 - .1, .3 - .2, 1 - .3); A3 = .7, A2 = .1 + .95 * .7 = .765, A1 = .1 + .95 * .765 = .82675."""
    advantages, returns = gae(
        rows([0, 0, 0, 0, 1]), rows([0.1, 0.2, 9, 9, 0.3]), masks([1, 1, 0, 0, 1]), gamma=1.0, lam=0.95
    )
    close(advantages, rows([0.82675, 0.765, 0, 0, 0.7]))
    close(returns, rows([0.92675, 0.965, 0, 0, 1.0]))


def test_gae_discounts_by_action_tokens_and_not_by_given_ones() -> None:
    """gamma .9, lam .5: d2 = 1 - .4 = .6; d1 = .9 * .4 - .2 = .16; A1 = .16 + .45 * .6 = .43."""
    advantages, _ = gae(rows([0, 0, 0, 1]), rows([0.2, 5, 5, 0.4]), masks([1, 0, 0, 1]), gamma=0.9, lam=0.5)
    close(advantages, rows([0.43, 0, 0, 0.6]))


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_inserting_given_tokens_anywhere_changes_no_advantage(lam: float) -> None:
    packed, _ = gae(rows([0, -0.1, 1]), rows([0.3, -0.2, 0.6]), masks([1, 1, 1]), 0.97, lam)
    spread, _ = gae(
        rows([0, 0, 0, -0.1, 0, 1, 0]), rows([7, 0.3, 7, -0.2, 7, 0.6, 7]), masks([0, 1, 0, 1, 0, 1, 0]), 0.97, lam
    )
    close(spread[0, [1, 3, 5]], packed[0])
    close(spread[0, [0, 2, 4, 6]], torch.zeros(4))


def test_values_at_given_tokens_are_ignored_even_nan() -> None:
    advantages, returns = gae(rows([0, 0, 1]), rows([0.5, math.nan, 0.25]), masks([1, 0, 1]), 1.0, 1.0)
    close(advantages, rows([0.5, 0, 0.75]))
    close(returns, rows([1, 0, 1]))


def test_a_value_belongs_to_the_state_before_its_action() -> None:
    """A13. mask [0,1,1,0]: the return of action t minus the value at t, no neighbour's."""
    advantages, _ = gae(rows([0, 0, 1, 0]), rows([100, 0.25, 0.5, 100]), masks([0, 1, 1, 0]), 1.0, 1.0)
    close(advantages, rows([0, 0.75, 0.5, 0]))


def test_nothing_follows_a_finished_row_and_bootstrap_follows_a_cut_one() -> None:
    """B4. The same row: with 5 after it, d = 5 - .5."""
    rewards, values, mask = rows([0, 0], [0, 0]), rows([0.5, 9], [0.5, 9]), masks([1, 0], [1, 0])
    advantages, returns = gae(rewards, values, mask, 1.0, 0.95, bootstrap=torch.tensor([0.0, 5.0], dtype=torch.float64))
    close(advantages, rows([-0.5, 0], [4.5, 0]))
    close(returns, rows([0, 0], [5, 0]))
    close(gae(rewards, values, mask, 1.0, 0.95)[0], rows([-0.5, 0], [-0.5, 0]))


def test_rows_do_not_meet() -> None:
    both, _ = gae(rows([0, 1], [0, 0]), rows([0.5, 0.5], [0.25, 0.125]), masks([1, 1], [1, 0]), 1.0, 0.95)
    alone, _ = gae(rows([0, 0]), rows([0.25, 0.125]), masks([1, 0]), 1.0, 0.95)
    close(both[1], alone[0])


@pytest.mark.parametrize("mask", [[0, 0, 0], [0, 0, 1], [1, 0, 0]])
def test_rows_of_no_or_one_action_token_have_credit(mask: list[int]) -> None:
    """C10."""
    advantages, _ = gae(rows([0, 0, 0]), rows([0.5, 0.5, 0.5]), masks(mask), 1.0, 0.95)
    close(advantages, -0.5 * rows([float(one) for one in mask]))


def test_rows_of_no_tokens_have_no_credit() -> None:
    empty = torch.zeros(2, 0)
    advantages, returns = gae(empty, empty, torch.zeros(2, 0, dtype=torch.bool), 1.0, 0.95)
    assert advantages.shape == returns.shape == (2, 0)


def test_a_reward_on_a_given_token_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rewards\[1, 2\] is -1"):
        gae(rows([0, 0, 0], [0, 0, -1]), rows([0, 0, 0], [0, 0, 0]), masks([1, 1, 1], [1, 1, 0]), 1.0, 0.95)


@pytest.mark.parametrize(
    ("rewards", "values", "mask", "named"),
    [
        (rows([0, math.nan]), rows([0, 0]), masks([1, 1]), "rewards"),
        (rows([0, 0]), rows([0, math.nan]), masks([1, 1]), "values"),
        (rows([0, 0]), rows([0, 0, 0]), masks([1, 1]), "shape|one"),
        (rows([0, 0]), rows([0, 0]), torch.tensor([[1.0, 1.0]]), "action_mask"),
        (rows([0, 0])[0], rows([0, 0])[0], masks([1, 1])[0], "one"),
    ],
)
def test_gae_names_what_is_wrong(rewards: Tensor, values: Tensor, mask: Tensor, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        gae(rewards, values, mask, 1.0, 0.95)


def test_a_bootstrap_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="bootstrap"):
        gae(rows([0.0]), rows([0.0]), masks([1]), 1.0, 0.95, bootstrap=torch.zeros(2))


def test_the_sum_of_rewards_is_the_return_of_the_first_action() -> None:
    _, returns = gae(rows([0, -0.05, 0, 1.3]), rows([0.0] * 4), masks([1, 1, 0, 1]), 1.0, 1.0)
    close(returns[0, 0], torch.tensor(1.25))


def test_whitening_counts_action_tokens_alone() -> None:
    """Mean 2, deviation 1 (population); the 99 is given."""
    whitened = whiten(rows([1, 99, 3]), masks([1, 0, 1]))
    close(whitened, rows([-1, 0, 1]))


@pytest.mark.parametrize("value", [0.1, 0.7, 1.0, -0.05, 0.0])
@pytest.mark.parametrize("count", [1, 2, 777, 1000])
def test_whitening_equal_advantages_gives_zeros(value: float, count: int) -> None:
    """B6 and B9, in float32, where the mean of equal numbers is not quite the number."""
    equal = torch.full((1, count), value)
    assert whiten(equal, torch.ones(1, count, dtype=torch.bool)).abs().max() == 0


def test_whitening_small_advantages_still_whitens() -> None:
    close(whiten(rows([1e-4, 3e-4]), masks([1, 1])), rows([-0.9999, 0.9999]))


def test_whitening_nothing_gives_zeros() -> None:
    assert whiten(rows([3, 4]), masks([0, 0])).tolist() == [[0, 0]]


def test_group_relative_by_hand() -> None:
    """Group 4: mean 2, deviation (N - 1) sqrt(2); group 9: mean 0, alone."""
    scores, groups = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64), torch.tensor([4, 9, 4])
    expected = 1 / (math.sqrt(2) + 1e-6)
    close(group_relative(scores, groups), torch.tensor([-expected, 0.0, expected]))


def test_equal_scores_and_groups_of_one_give_exactly_zero() -> None:
    """B9, B15."""
    scores = torch.tensor([0.1] * 7 + [5.0])
    groups = torch.tensor([3] * 7 + [1])
    assert group_relative(scores, groups).tolist() == [0.0] * 8
    assert leave_one_out(scores, groups).tolist() == [0.0] * 8


def test_leave_one_out_by_hand() -> None:
    """1 - (2 + 6) / 2 = -3; 2 - 3.5 = -1.5; 6 - 1.5 = 4.5."""
    scores = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    close(leave_one_out(scores, torch.tensor([0, 0, 0])), torch.tensor([-3.0, -1.5, 4.5]))


def test_groups_are_told_apart_by_id_and_not_by_place() -> None:
    """B11."""
    scores = torch.tensor([0.0, 10.0, 2.0, 14.0], dtype=torch.float64)
    close(leave_one_out(scores, torch.tensor([7, -1, 7, -1])), torch.tensor([-2.0, -4.0, 2.0, 4.0]))


@pytest.mark.parametrize("function", [group_relative, leave_one_out])
def test_group_scores_of_nan_and_float_groups_are_refused(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="scores"):
        function(torch.tensor([0.0, math.nan]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="groups"):
        function(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0]))
    with pytest.raises(ValueError, match="groups"):
        function(torch.tensor([0.0, 1.0]), torch.tensor([0]))
    assert function(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_reinforce_plus_plus_is_the_discounted_return_over_action_tokens() -> None:
    close(reinforce_plus_plus(rows([0, 0, 0, 1]), masks([1, 0, 1, 1]), 0.5), rows([0.25, 0, 0.5, 1]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gae_names_what_is_not_finite(bad: float) -> None:
    one, mask = rows([1.0]), masks([1])
    with pytest.raises(ValueError, match=f"gamma: .*{bad}"):
        gae(one, one, mask, bad, 0.9)
    with pytest.raises(ValueError, match=f"lam: .*{bad}"):
        gae(one, one, mask, 0.9, bad)
    with pytest.raises(ValueError, match=f"bootstrap: .*{bad}"):
        gae(one, one, mask, 0.9, 0.9, torch.tensor([bad]))


@pytest.mark.parametrize("function", [group_relative, leave_one_out])
def test_whole_numbers_are_no_scores_or_rewards(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="scores: expected floating point"):
        function(torch.tensor([0, 1]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="rewards: expected floating point"):
        gae(torch.tensor([[1]]), rows([0.5]), masks([1]), 1.0, 1.0)
