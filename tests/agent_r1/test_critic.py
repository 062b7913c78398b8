"""The critic's own steps, on hand-made states."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from agent_r1.critic import ValueHead, teach

STATES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def taught(returns: Tensor, states: Tensor = STATES, steps: int = 1, seed: int = 0) -> tuple[ValueHead, ValueHead, int]:
    """A critic before and after steps of plain descent at rate 1, and how many were skipped."""
    torch.manual_seed(0)
    before = ValueHead(2)
    head = copy.deepcopy(before)
    optimizer = torch.optim.SGD(head.parameters(), lr=1.0)
    random = np.random.default_rng(seed)
    return before, head, teach(head, optimizer, states, returns, steps=steps, random=random, max_grad_norm=1e30)


def same(one: ValueHead, other: ValueHead) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_new_critic_says_0() -> None:
    assert ValueHead(2)(STATES).tolist() == [0, 0, 0]


def test_a_step_goes_down_half_the_mean_squared_error() -> None:
    """Values are 0 and every return .5, so the bias has the gradient 0 - .5, and one step at rate 1 makes it .5."""
    _, head, skipped = taught(torch.full((3,), 0.5))
    assert head.outer.bias.item() == pytest.approx(0.5)
    assert skipped == 0


def test_tokens_are_drawn_by_seed() -> None:
    returns = torch.tensor([1.0, -1.0, 0.5])
    one, again, other = (taught(returns, steps=2, seed=seed)[1] for seed in (3, 3, 4))
    assert same(one, again)
    assert not same(one, other)


def test_no_gradient_reaches_the_states() -> None:
    states = STATES.clone().requires_grad_()
    taught(torch.ones(3), states)
    assert states.grad is None


def test_without_a_token_nothing_is_learned() -> None:
    before, head, skipped = taught(torch.zeros(0), torch.zeros(0, 2))
    assert same(before, head)
    assert skipped == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_takes_no_step_and_is_counted(bad: float) -> None:
    before, head, skipped = taught(torch.tensor([bad, bad, bad]), steps=4)
    assert skipped == 4
    assert same(before, head)
