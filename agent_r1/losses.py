"""PPO's losses on action tokens. Every function is pure; means and gradients never see a masked place.

Shapes: B segments, T tokens. Masks are True where the token counts. Aggregation is the token mean: every action token
of the batch weighs the same, whatever the length of its trajectory.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

KL_ESTIMATORS = ("k1", "k2", "k3")


class PolicyStats(NamedTuple):
    """Sums over action tokens (divide by their number for means): clipped places, and k3 to the sampling policy."""

    clipped: Tensor
    kl: Tensor


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    denominator: float | Tensor | None = None,
) -> tuple[Tensor, PolicyStats]:
    """PPO's clipped loss (arXiv 1707.06347), all inputs [B, T]; clip-higher (arXiv 2503.14476) by two bounds.

    The ratio is clipped to [1 - clip_low, 1 + clip_high]. With `dual_clip` c > 1 (arXiv 1912.09729) the loss of a
    negative advantage A is at most -c A. The mean over action tokens, or their sum / `denominator` where the batch is
    a part of a larger one. Without an action token it is 0. The gradient is finite and 0 at masked places.
    The log-ratio counts as at most 20 either way, so that its exponential stays finite: a token beyond has no gradient.
    """
    _check_mask(action_mask, logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    log_ratio = torch.where(action_mask, logprobs, 0.0) - torch.where(action_mask, old_logprobs, 0.0).detach()
    gain = torch.where(action_mask, advantages, 0.0).detach()
    ratio = log_ratio.clamp(-20.0, 20.0).exp()
    plain = -gain * ratio
    clipped = -gain * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = torch.maximum(plain, clipped)
    if dual_clip is not None:
        if dual_clip <= 1:
            raise ValueError(f"dual_clip must be above 1, got {dual_clip}")
        loss = torch.where(gain < 0, torch.minimum(loss, -gain * dual_clip), loss)
    with torch.no_grad():
        stats = PolicyStats(
            clipped=((clipped > plain) & action_mask).sum().to(loss.dtype),
            kl=torch.where(action_mask, ratio - 1 - log_ratio, 0.0).sum(),
        )
    return masked_mean(loss, action_mask, denominator), stats


def kl(logprobs: Tensor, reference_logprobs: Tensor, action_mask: Tensor, estimator: str) -> Tensor:
    """Estimates of KL(policy, reference) per token (Schulman, joschu.net/blog/kl-approx.html), [B, T], 0 where masked.

    With r = logprobs - reference: "k1" r, "k2" r^2 / 2, "k3" exp(-r) - 1 + r. For the reward use k1 (unbiased) or
    k3; for the loss use k2, whose gradient is that of the KL on the policy's own samples; k1's expected one is 0.
    """
    _check_mask(action_mask, logprobs=logprobs, reference_logprobs=reference_logprobs)
    r = torch.where(action_mask, logprobs, 0.0) - torch.where(action_mask, reference_logprobs, 0.0)
    if estimator == "k1":
        return r
    if estimator == "k2":
        return r.pow(2) / 2
    if estimator == "k3":
        return (-r).clamp(max=20.0).exp() - 1 + r
    raise ValueError(f"estimator must be k1, k2 or k3, not {estimator!r}")


def masked_mean(values: Tensor, mask: Tensor, denominator: float | Tensor | None = None) -> Tensor:
    """The sum of [B, T] where the mask is True, over their number or `denominator`; 0 where there is none.

    ValueError for a denominator that is not above 0 where there is one.
    """
    total = torch.where(mask, values, 0.0).sum()
    count = mask.sum() if denominator is None else denominator
    if float(count) > 0:
        return total / count
    if mask.any():
        raise ValueError(f"denominator: expected a number above 0, got {float(count)}")
    return total


def _check_mask(action_mask: Tensor, **tensors: Tensor) -> None:
    if action_mask.dtype != torch.bool:
        raise ValueError(f"action_mask: expected bool, got {action_mask.dtype}")
    for name, tensor in tensors.items():
        if tensor.shape != action_mask.shape:
            raise ValueError(f"{name}: shape {tuple(tensor.shape)} is not the mask's {tuple(action_mask.shape)}")
