"""PPO's losses by hand: C2, C7, C8, B19, B20, A9 and A12."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from agent_r1.losses import kl, masked_mean, policy_loss

BAD = (math.nan, math.inf, -math.inf, 1e30)


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def masks(*values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def one(ratio: float, advantage: float, low: float = 0.2, high: float = 0.2, dual: float | None = None) -> float:
    """The policy loss of a single action token."""
    loss, _ = policy_loss(rows([math.log(ratio)]), rows([0.0]), rows([advantage]), masks([1]), low, high, dual)
    return float(loss)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [(1.0, 2.0, -2.0), (1.1, 2.0, -2.2), (1.5, 2.0, -2.4), (0.5, 2.0, -1.0), (0.5, -1.0, 0.8), (1.5, -1.0, 1.5)],
)
def test_the_ratio_is_clipped_where_that_makes_the_loss_larger(ratio: float, advantage: float, loss: float) -> None:
    assert one(ratio, advantage) == pytest.approx(loss, abs=1e-6)


def test_the_two_bounds_are_apart() -> None:
    assert one(1.5, 1.0, low=0.1, high=0.3) == pytest.approx(-1.3)
    assert one(0.5, -1.0, low=0.1, high=0.3) == pytest.approx(0.9)


def test_dual_clip_bounds_a_negative_advantage() -> None:
    """C8: 3 and not 10; a positive one is not touched."""
    assert one(10.0, -1.0) == pytest.approx(10.0)
    assert one(10.0, -1.0, dual=3.0) == pytest.approx(3.0)
    assert one(2.0, -1.0, dual=3.0) == pytest.approx(2.0)
    assert one(0.1, 1.0, dual=3.0) == pytest.approx(-0.1)


@pytest.mark.parametrize("dual", [1.0, 0.5])
def test_dual_clip_of_at_most_one_is_refused(dual: float) -> None:
    with pytest.raises(ValueError, match="dual_clip"):
        one(1.0, -1.0, dual=dual)


def test_every_action_token_weighs_the_same_whatever_the_length_of_its_row() -> None:
    """B20: rows of 1 and 3 action tokens with losses -4 and -1: (-4 - 3) / 4; a mean of row means would be -2.5."""
    mask = masks([1, 0, 0], [1, 1, 1])
    loss, _ = policy_loss(torch.zeros(2, 3), torch.zeros(2, 3), rows([4, 9, 9], [1, 1, 1]), mask, 0.2, 0.2)
    assert float(loss) == pytest.approx(-1.75)


def test_the_denominator_makes_a_part_of_a_larger_batch() -> None:
    loss, _ = policy_loss(torch.zeros(1, 2), torch.zeros(1, 2), rows([4, 9]), masks([1, 0]), 0.2, 0.2, denominator=8)
    assert float(loss) == pytest.approx(-0.5)


def test_the_mean_counts_trained_tokens_only() -> None:
    """A12: 25 trained and 5 masked."""
    mask = masks([1] * 25 + [0] * 5)
    assert float(masked_mean(torch.ones(1, 30), mask)) == 1.0
    assert float(masked_mean(rows([2.0] * 25 + [math.nan] * 5), mask)) == 2.0


def test_no_action_token_gives_exactly_zero_and_a_zero_gradient() -> None:
    """C2."""
    logprobs = torch.full((2, 3), math.nan, requires_grad=True)
    empty = torch.zeros(2, 3, dtype=torch.bool)
    loss, stats = policy_loss(logprobs, torch.ones(2, 3), torch.ones(2, 3), empty, 0.2, 0.2)
    loss = loss + kl(logprobs, torch.ones(2, 3), empty, "k3").sum()
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert float(stats.kl) == float(stats.clipped) == 0.0
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.0] * 3] * 2


Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "policy": lambda a, b, c, m: policy_loss(a, b, c, m, 0.2, 0.2)[0],
    "dual": lambda a, b, c, m: policy_loss(a, b, c, m, 0.2, 0.2, 3.0)[0],
    "k1": lambda a, b, _, m: kl(a, b, m, "k1").sum(),
    "k2": lambda a, b, _, m: kl(a, b, m, "k2").sum(),
    "k3": lambda a, b, _, m: kl(a, b, m, "k3").sum(),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", LOSSES)
def test_nothing_at_a_masked_place_reaches_loss_or_gradient(name: str, bad: float) -> None:
    """C7."""

    def run(masked: float) -> tuple[float, list[float]]:
        first = rows([0.1, masked, -0.4]).requires_grad_()
        loss = LOSSES[name](first, rows([0.3, masked, -0.2]), rows([1.0, masked, -2.0]), masks([1, 0, 1]))
        loss.backward()
        assert first.grad is not None
        return float(loss.detach()), first.grad[0].tolist()

    loss, gradient = run(bad)
    assert (loss, gradient) == run(0.0)
    assert math.isfinite(loss)
    assert gradient[1] == 0.0
    assert all(math.isfinite(part) for part in gradient)


def test_the_gradient_of_a_token_is_its_ratio_times_its_advantage() -> None:
    logprobs = rows([math.log(1.1), math.log(1.5)]).requires_grad_()
    loss, _ = policy_loss(logprobs, rows([0, 0]), rows([2, 2]), masks([1, 1]), 0.2, 0.2)
    loss.backward()
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, rows([-1.1, 0.0]))


def test_policy_stats_count_clipped_tokens_and_sum_k3_to_the_sampling_policy() -> None:
    """Ratio 1.5 with a positive advantage is clipped, with a negative one not. k3 = 1.5 - 1 - ln 1.5, twice."""
    logprobs = rows([math.log(1.5), math.log(1.5), 3.0])
    _, stats = policy_loss(logprobs, rows([0, 0, 0]), rows([1, -1, 1]), masks([1, 1, 0]), 0.2, 0.2)
    assert float(stats.clipped) == 1.0
    assert float(stats.kl) == pytest.approx(2 * (0.5 - math.log(1.5)))


def test_both_bounds_count_as_clipped() -> None:
    """Past 1.2 with a positive advantage, below 0.8 with a negative one; not the other way round, nor in between."""
    logprobs = rows([math.log(1.3), math.log(0.7), math.log(1.3), math.log(0.7), math.log(1.1)])
    _, stats = policy_loss(logprobs, rows([0] * 5), rows([1, -1, -1, 1, 1]), masks([1] * 5), 0.2, 0.2)
    assert float(stats.clipped) == 2.0


def test_a_huge_log_ratio_stays_finite() -> None:
    logprobs = rows([500.0]).requires_grad_()
    loss, stats = policy_loss(logprobs, rows([-500.0]), rows([-1.0]), masks([1]), 0.2, 0.2)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert math.isfinite(float(stats.kl))


@pytest.mark.parametrize(
    ("estimator", "above", "below"), [("k1", 0.5, -0.5), ("k2", 0.125, 0.125), ("k3", 0.10653, 0.14872)]
)
def test_kl_estimators_by_hand(estimator: str, above: float, below: float) -> None:
    """B19: log-probability minus reference is .5 and -.5; a given token has none, whatever its reference (A9)."""
    estimates = kl(rows([-1.0, -2.0, -0.1]), rows([-1.5, -1.5, -90.0]), masks([1, 1, 0]), estimator)
    torch.testing.assert_close(estimates, rows([above, below, 0.0]), atol=1e-5, rtol=0)


def test_an_unknown_kl_estimator_is_refused() -> None:
    with pytest.raises(ValueError, match="k4"):
        kl(rows([0]), rows([0]), masks([1]), "k4")


def test_losses_name_a_wrong_mask_or_shape() -> None:
    with pytest.raises(ValueError, match="action_mask"):
        policy_loss(rows([0]), rows([0]), rows([0]), rows([1]), 0.2, 0.2)
    with pytest.raises(ValueError, match="advantages"):
        policy_loss(rows([0]), rows([0]), rows([0, 0]), masks([1]), 0.2, 0.2)
    with pytest.raises(ValueError, match="reference_logprobs"):
        kl(rows([0]), rows([0, 0]), masks([1]), "k1")


@pytest.mark.parametrize("denominator", [0, -3, math.nan])
def test_a_denominator_is_above_zero_where_there_is_an_action_token(denominator: float) -> None:
    with pytest.raises(ValueError, match="denominator"):
        policy_loss(rows([0]), rows([0]), rows([1]), masks([1]), 0.2, 0.2, denominator=denominator)
    assert float(masked_mean(rows([5]), masks([0]), denominator)) == 0.0
