"""Credit: what the stored tokens of an update were worth, under the policy that sampled them.

The formulas are advantages.py's; what is done with credit is left to ppo.py. Axes as in batch.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agent_r1.advantages import gae, group_relative, leave_one_out, reinforce_plus_plus, whiten
from agent_r1.batch import Batch
from agent_r1.config import Config
from agent_r1.losses import kl
from agent_r1.model import Policy, Scores
from agent_r1.sections import AdvantageConfig
from agent_r1.trajectory import Credit

ROUNDING = 1e-5
"""Returns that are equal but for sums of 32-bit numbers are no further apart."""


@dataclass(frozen=True, slots=True)
class Credited:
    """Tensors [S, T] that stay fixed during an update.

    `importance` is what `ppo.importance_cap` makes of the sampler's probabilities, 1 without it. `returns` are
    advantages before whitening plus values; `targets` what the critic learns, on the tokens of `value_mask`: those of
    the loss that have a return. `spread` is the standard deviation of the advantages before whitening.
    """

    old_logprobs: Tensor
    importance: Tensor
    reference_logprobs: Tensor | None
    values: Tensor
    advantages: Tensor
    returns: Tensor
    targets: Tensor
    value_mask: Tensor
    spread: float

    @property
    def value_loss(self) -> float:
        """Half the mean squared error of the values."""
        errors = (self.targets - self.values)[self.value_mask]
        return float(errors.pow(2).mean() / 2) if errors.numel() else 0.0


def give_credit(policy: Policy, reference: Policy | None, batch: Batch, config: Config) -> Credited:
    """Values (0 without a critic), advantages and returns of the stored tokens under the policy that sampled them."""
    needed = batch.loss_mask_S_T | batch.credit_mask_S_T
    settings = config.advantages
    corrected = config.ppo.importance_cap is not None
    given = bool((needed & ~batch.action_mask_S_T).any())
    asked = settings.critic or corrected or given  # else the sampler said all there is
    scores = _score_all(policy, batch, needed, config) if asked else _unscored(batch)
    old = torch.where(batch.action_mask_S_T & (not corrected), batch.logprobs_S_T, scores.logprobs)
    reference_logprobs = None if reference is None else _score_all(reference, batch, needed, config).logprobs
    rewards = batch.rewards_S_T
    if reference_logprobs is not None and config.ppo.kl_in == "reward":
        penalty = kl(old, reference_logprobs, batch.action_mask_S_T, config.ppo.kl_estimator)
        rewards = rewards - config.ppo.kl_coefficient * penalty
    values = scores.values if settings.critic else torch.zeros_like(scores.values)
    advantages_B_L, returns_B_L = _estimate(batch, rewards, values, settings)
    mask_B_L, targets_B_L = batch.join(batch.credit_mask_S_T), returns_B_L
    if settings.critic:
        targets_B_L = gae(batch.join(rewards), batch.join(values), mask_B_L, settings.gamma, settings.value_lam)[1]
    spread = _deviation(advantages_B_L[mask_B_L])
    if settings.whiten:
        advantages_B_L = whiten(advantages_B_L, mask_B_L)
    if settings.clip is not None:
        advantages_B_L = advantages_B_L.clamp(-settings.clip, settings.clip)
    return Credited(
        old_logprobs=old,
        importance=_importance(batch, scores, config.ppo.importance_cap),
        reference_logprobs=reference_logprobs,
        values=values,
        advantages=batch.split(advantages_B_L),
        returns=batch.split(returns_B_L),
        targets=batch.split(targets_B_L),
        value_mask=batch.loss_mask_S_T & batch.credit_mask_S_T,
        spread=spread,
    )


def _importance(batch: Batch, scores: Scores, cap: float | None) -> Tensor:
    """The trainer's probability of each action over the sampler's, at most the cap; 1 where given, or without a cap."""
    if cap is None:
        return torch.ones(batch.ids_S_T.shape)
    difference = torch.where(batch.action_mask_S_T, scores.logprobs - batch.logprobs_S_T, 0.0)
    return difference.clamp(max=20.0).exp().clamp(max=cap)


def _estimate(
    batch: Batch, rewards_S_T: Tensor, values_S_T: Tensor, settings: AdvantageConfig
) -> tuple[Tensor, Tensor]:
    """Advantages and returns [B, L] before whitening. In groups all tokens of a trajectory have those of its score."""
    mask_B_L, rewards_B_L = batch.join(batch.credit_mask_S_T), batch.join(rewards_S_T)
    if settings.estimator == "gae":
        return gae(rewards_B_L, batch.join(values_S_T), mask_B_L, settings.gamma, settings.lam)
    if settings.estimator == "reinforce_plus_plus":
        returns_B_L = reinforce_plus_plus(rewards_B_L, mask_B_L, settings.gamma)
        return returns_B_L, returns_B_L
    compare = group_relative if settings.estimator == "group_relative" else leave_one_out
    penalty_B = batch.join(batch.rewards_S_T - rewards_S_T).sum(dim=1)  # KL in the reward, else exactly 0
    scores_B = batch.scores_B - penalty_B
    both_2_B = torch.stack([compare(scores_B, batch.groups_B), scores_B]).to(rewards_B_L.dtype)
    advantages_B_L, returns_B_L = torch.where(mask_B_L, both_2_B[:, :, None], 0.0)
    return advantages_B_L, returns_B_L


@torch.no_grad()
def _score_all(policy: Policy, batch: Batch, mask_S_T: Tensor, config: Config) -> Scores:
    policy.model.eval()
    found = _unscored(batch)
    for rows in micro_batches(batch, torch.arange(len(batch.annotations)), config):
        width = int(batch.lengths_S[rows].max())
        scores = policy.score(batch.ids_S_T[rows, :width], mask_S_T[rows, :width], config.rollout.temperature)
        for whole, part in zip(found, scores, strict=True):
            whole[rows, :width] = part.cpu()
    return found


def _unscored(batch: Batch) -> Scores:
    return Scores(*(torch.zeros(batch.ids_S_T.shape) for _ in Scores._fields))


def micro_batches(batch: Batch, rows: Tensor, config: Config) -> Sequence[Tensor]:
    """Rows of about one length together, so that little is computed on padding; no more than one pass may hold."""
    lengths = batch.lengths_S[rows]
    order = lengths.argsort(stable=True)
    sizes, rows_most, tokens_most = [0], config.ppo.micro_batch, config.ppo.micro_batch_tokens
    for length in lengths[order].tolist():  # ascending: a pass is as wide as its last row
        larger = sizes[-1] + 1
        if larger > rows_most or (tokens_most is not None and larger > 1 and larger * length > tokens_most):
            sizes.append(1)
        else:
            sizes[-1] = larger
    return rows[order].split(sizes)


def explained_variance(batch: Batch, credit: Credited) -> float:
    """How much of the variance of what the critic learns it foresaw: 1 all, 0 nothing, or nothing there to foresee."""
    mask = batch.credit_mask_S_T
    returns, values = credit.targets[mask], credit.values[mask]
    variance = float(returns.var(correction=0)) if returns.numel() else 0.0
    residual = float((returns - values).var(correction=0)) if returns.numel() else 0.0
    return 1 - residual / variance if variance > ROUNDING**2 else 0.0


def _deviation(values: Tensor) -> float:
    return float(values.std(correction=0)) if values.numel() else 0.0


def credit_rows(batch: Batch, credit: Credited) -> list[Credit]:
    """The credit table's rows; 0 on given tokens (in ablations too, what the masks let through is shown)."""
    shown = batch.credit_mask_S_T | batch.loss_mask_S_T
    rows = []
    for row, annotation in enumerate(batch.annotations):
        length = len(annotation.token_ids)
        values, advantages, returns = (
            tuple(torch.where(shown[row, :length], tensor[row, :length], 0.0).tolist())
            for tensor in (credit.values, credit.advantages, credit.returns)
        )
        rows.append(Credit(annotation.trajectory_id, annotation.segment, values, advantages, returns))
    return rows
