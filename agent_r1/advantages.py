"""Credit: advantages and returns that live on action tokens alone. Losses are left to losses.py.

Shapes: B trajectories (segments joined in order), T tokens, N scores. Masks are True where the agent chose the token.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gae(
    rewards: Tensor, values: Tensor, action_mask: Tensor, gamma: float, lam: float, bootstrap: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438) along the action tokens of each row.

    All [B, T]; given tokens are skipped, as if the next action followed at once. `bootstrap` [B] is the value after a
    row that was cut off, 0 without it. Returns (advantages, returns), both 0 where the mask is False, whatever `values`
    holds there. ValueError for shapes that differ, a reward that is not 0 on a given token, and whatever is
    not finite but a value on a given token.
    """
    _check(rewards, values, action_mask)
    for name, number in (("gamma", gamma), ("lam", lam)):
        if not math.isfinite(number):
            raise ValueError(f"{name}: expected a finite number, got {number}")
    zero = torch.zeros((), dtype=rewards.dtype, device=rewards.device)
    known_B_T = torch.where(action_mask, values.to(rewards.dtype), zero)
    if not torch.isfinite(known_B_T).all():
        raise ValueError("values: not finite on an action token")
    next_value = zero.expand(len(rewards)) if bootstrap is None else bootstrap.to(rewards.dtype)
    if next_value.shape != rewards.shape[:1]:
        raise ValueError(f"bootstrap: expected shape {tuple(rewards.shape[:1])}, got {tuple(next_value.shape)}")
    if not torch.isfinite(next_value).all():
        raise ValueError(f"bootstrap: expected finite numbers, got {next_value.tolist()}")
    running = torch.zeros_like(next_value)
    columns: list[Tensor] = []
    for step in reversed(range(rewards.shape[1])):
        chosen = action_mask[:, step]
        delta = rewards[:, step] + gamma * next_value - known_B_T[:, step]
        running = torch.where(chosen, delta + gamma * lam * running, running)
        next_value = torch.where(chosen, known_B_T[:, step], next_value)
        columns.append(torch.where(chosen, running, zero))
    advantages = torch.stack(columns[::-1], dim=1) if columns else torch.zeros_like(rewards)
    return advantages, torch.where(action_mask, advantages + known_B_T, zero)


def whiten(advantages: Tensor, action_mask: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Mean 0 and standard deviation 1 over all action tokens of [B, T]; 0 elsewhere.

    One action token, or all alike but for rounding, have no deviation: they become 0.
    """
    chosen = advantages[action_mask]
    if chosen.numel() == 0:
        return torch.zeros_like(advantages)
    centred = chosen - chosen.mean()
    deviation = centred.pow(2).mean().sqrt()
    whitened = torch.zeros_like(advantages)
    if deviation > 1e-6 * chosen.abs().max():
        whitened[action_mask] = centred / (deviation + epsilon)
    return whitened


def group_relative(scores: Tensor, groups: Tensor, epsilon: float = 1e-6) -> Tensor:
    """GRPO's advantage (arXiv 2402.03300): [N] scores and [N] integer group ids -> (score - mean) / (std + epsilon).

    The deviation is the sample's (N - 1). Equal scores and groups of one give exactly 0. NaN is a ValueError.
    """
    mean_N, count_N, inverse = _group_means(scores, groups)
    centred = scores - mean_N
    squares = torch.zeros(int(inverse.max()) + 1 if len(inverse) else 0, dtype=scores.dtype, device=scores.device)
    squares.index_add_(0, inverse, centred.pow(2))
    deviation = (squares[inverse] / (count_N - 1).clamp(min=1)).sqrt()
    return torch.where(_all_equal(scores, inverse), torch.zeros_like(scores), centred / (deviation + epsilon))


def leave_one_out(scores: Tensor, groups: Tensor) -> Tensor:
    """RLOO's advantage (arXiv 2402.14740): [N] score minus the mean of the others of its group; alone, 0."""
    mean_N, count_N, inverse = _group_means(scores, groups)
    left_out = (scores - mean_N) * count_N / (count_N - 1).clamp(min=1)
    return torch.where(_all_equal(scores, inverse), torch.zeros_like(scores), left_out)


def reinforce_plus_plus(rewards: Tensor, action_mask: Tensor, gamma: float) -> Tensor:
    """REINFORCE++ (arXiv 2501.03262) before whitening: the discounted return over action tokens, [B, T]."""
    return gae(rewards, torch.zeros_like(rewards), action_mask, gamma, 1.0)[0]


def _check(rewards: Tensor, values: Tensor, action_mask: Tensor) -> None:
    if rewards.ndim != 2 or rewards.shape != values.shape or rewards.shape != action_mask.shape:
        shapes = f"{tuple(rewards.shape)}, {tuple(values.shape)}, {tuple(action_mask.shape)}"
        raise ValueError(f"rewards, values and action_mask must be one [B, T], got {shapes}")
    if action_mask.dtype != torch.bool:
        raise ValueError(f"action_mask: expected bool, got {action_mask.dtype}")
    if not rewards.is_floating_point():
        raise ValueError(f"rewards: expected floating point, got {rewards.dtype}")
    if not torch.isfinite(rewards).all():
        raise ValueError("rewards: not finite")
    stray = (rewards != 0) & ~action_mask
    if stray.any():
        row, step = (int(index) for index in stray.nonzero()[0])
        raise ValueError(f"rewards[{row}, {step}] is {float(rewards[row, step])} on a given token; it must be 0")


def _group_means(scores: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if scores.ndim != 1 or scores.shape != groups.shape:
        raise ValueError(f"scores and groups must be one [N], got {tuple(scores.shape)} and {tuple(groups.shape)}")
    if groups.is_floating_point() or groups.dtype == torch.bool:
        raise ValueError(f"groups: expected integers, got {groups.dtype}")
    if not scores.is_floating_point():
        raise ValueError(f"scores: expected floating point, got {scores.dtype}")
    if not torch.isfinite(scores).all():
        raise ValueError("scores: not finite")
    unique, inverse = torch.unique(groups, return_inverse=True)
    sums = torch.zeros(len(unique), dtype=scores.dtype, device=scores.device).index_add_(0, inverse, scores)
    counts = torch.bincount(inverse, minlength=len(unique)).to(scores.dtype)
    return (sums / counts)[inverse], counts[inverse], inverse


def _all_equal(scores: Tensor, inverse: Tensor) -> Tensor:
    size = int(inverse.max()) + 1 if len(inverse) else 0
    low = torch.full((size,), torch.inf, dtype=scores.dtype, device=scores.device)
    high = -low
    low = low.scatter_reduce(0, inverse, scores, "amin")
    high = high.scatter_reduce(0, inverse, scores, "amax")
    return (low == high)[inverse]
