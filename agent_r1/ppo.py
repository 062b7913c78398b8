"""One PPO update: value the stored tokens, give credit, and take clipped steps on what the agent chose.

Reading annotations and keeping checkpoints is left to tasks and storage. Axes as in batch.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from agent_r1.advantages import gae, group_relative, leave_one_out, reinforce_plus_plus, whiten
from agent_r1.batch import Batch, make_batch
from agent_r1.config import AdvantageConfig, Config
from agent_r1.errors import CheckpointError
from agent_r1.losses import KL_ESTIMATORS, kl, masked_mean, policy_loss, value_loss
from agent_r1.model import Policy, Scores
from agent_r1.seeds import generator
from agent_r1.trajectory import Annotation, Credit


@dataclass(frozen=True, slots=True)
class Learner:
    """A policy with its optimizer, whose state lives on through checkpoints."""

    policy: Policy
    optimizer: torch.optim.AdamW

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Everything that learns, policy and critic."""
        return [*self.policy.model.parameters(), *self.policy.value_head.parameters()]


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did: its metrics, and the credit of every stored token."""

    metrics: dict[str, float]
    credits: list[Credit]


@dataclass(frozen=True, slots=True)
class _Credit:
    """Tensors [S, T] that stay fixed during the update. `value_mask`: the tokens of the loss that have a return.

    `spread` is the standard deviation of the advantages before whitening.
    """

    old_logprobs: Tensor
    reference_logprobs: Tensor | None
    values: Tensor
    advantages: Tensor
    returns: Tensor
    value_mask: Tensor
    spread: float


@dataclass(slots=True)
class _Tally:
    """Sums over the steps of an update."""

    steps: int = 0
    skipped: int = 0
    stopped: bool = False
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def mean(self, name: str) -> float:
        return self.sums.get(name, 0.0) / max(self.steps, 1)


def make_learner(policy: Policy, config: Config, state: Mapping[str, object] | None = None) -> Learner:
    """A learner with a new optimizer, or with that of a checkpoint's `learner_state`: else a CheckpointError."""
    settings = config.ppo
    groups = [
        {"params": list(policy.model.parameters()), "lr": settings.learning_rate},
        {"params": list(policy.value_head.parameters()), "lr": settings.value_learning_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay)
    if state is not None:
        kept = state.get("optimizer")
        if not isinstance(kept, dict):
            raise CheckpointError(f"the checkpoint has no optimizer state, only {', '.join(state) or 'nothing'}")
        try:
            optimizer.load_state_dict(kept)
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's optimizer state does not fit its model: {error}") from error
    return Learner(policy, optimizer)


def learner_state(learner: Learner) -> dict[str, object]:
    """What a checkpoint keeps beside the weights. No random state: every seed is derived from what it is for."""
    return {"optimizer": learner.optimizer.state_dict()}


def update(
    learner: Learner, reference: Policy | None, annotations: Sequence[Annotation], config: Config, iteration: int
) -> Update:
    """Improve the learner in place on the annotations of one iteration.

    `reference` is the policy of checkpoint 0, needed where `ppo.kl_coefficient` is above 0. A minibatch without an
    action token, or whose gradient is not finite, takes no step and is counted in ppo/skipped_updates.
    """
    if reference is None and config.ppo.kl_coefficient > 0:
        raise ValueError(f"reference: needed where ppo.kl_coefficient is {config.ppo.kl_coefficient}, got None")
    batch = make_batch(annotations, config.masks)
    if not batch.annotations:
        return Update({"ppo/skipped_updates": float(config.ppo.epochs * config.ppo.minibatches)}, [])
    credit = _give_credit(learner.policy, reference, batch, config)
    _set_learning_rates(learner, config, iteration)
    tally = _Tally()
    for rows in _minibatches(len(batch.annotations), config, iteration):
        if tally.stopped:
            break
        _step(learner, batch, credit, rows, config, tally)
    return Update(_metrics(batch, credit, config, tally), _credit_rows(batch, credit))


def _give_credit(policy: Policy, reference: Policy | None, batch: Batch, config: Config) -> _Credit:
    """Values (0 without a critic), advantages and returns of the stored tokens under the policy that sampled them."""
    needed = batch.loss_mask_S_T | batch.credit_mask_S_T
    scores = _score_all(policy, batch, needed, config)
    old = torch.where(batch.action_mask_S_T, batch.logprobs_S_T, scores.logprobs)
    reference_logprobs = None if reference is None else _score_all(reference, batch, needed, config).logprobs
    rewards = batch.rewards_S_T
    if reference_logprobs is not None and config.ppo.kl_in == "reward":
        penalty = kl(old, reference_logprobs, batch.action_mask_S_T, config.ppo.kl_estimator)
        rewards = rewards - config.ppo.kl_coefficient * penalty
    values = scores.values if config.advantages.critic else torch.zeros_like(scores.values)
    advantages_B_L, returns_B_L = _estimate(batch, rewards, values, config.advantages)
    mask_B_L = batch.join(batch.credit_mask_S_T)
    spread = _deviation(advantages_B_L[mask_B_L])
    if config.advantages.whiten:
        advantages_B_L = whiten(advantages_B_L, mask_B_L)
    if config.advantages.clip is not None:
        advantages_B_L = advantages_B_L.clamp(-config.advantages.clip, config.advantages.clip)
    return _Credit(
        old_logprobs=old,
        reference_logprobs=reference_logprobs,
        values=values,
        advantages=batch.split(advantages_B_L),
        returns=batch.split(returns_B_L),
        value_mask=batch.loss_mask_S_T & batch.credit_mask_S_T,
        spread=spread,
    )


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
    found = Scores(*(torch.zeros(batch.ids_S_T.shape) for _ in Scores._fields))
    for rows in _micro_batches(batch, torch.arange(len(batch.annotations)), config):
        width = int(batch.lengths_S[rows].max())
        scores = policy.score(batch.ids_S_T[rows, :width], mask_S_T[rows, :width], config.rollout.temperature)
        for whole, part in zip(found, scores, strict=True):
            whole[rows, :width] = part.cpu()
    return found


def _micro_batches(batch: Batch, rows: Tensor, config: Config) -> Sequence[Tensor]:
    """Rows of about one length together, so that little is computed on padding."""
    by_length = rows[batch.lengths_S[rows].argsort(stable=True)]
    return by_length.split(config.ppo.micro_batch)


def _minibatches(segments: int, config: Config, iteration: int) -> Iterator[Tensor]:
    """Rows of each optimizer step: every segment once an epoch, in seeded order, in about equal parts."""
    for epoch in range(config.ppo.epochs):
        order = generator(config.seed, "minibatches", iteration, epoch).permutation(segments)
        parts = min(config.ppo.minibatches, segments)
        yield from torch.from_numpy(order).tensor_split(parts)


def _step(learner: Learner, batch: Batch, credit: _Credit, rows: Tensor, config: Config, tally: _Tally) -> None:
    """One optimizer step on a minibatch, its gradient summed over micro-batches."""
    tokens = int(batch.loss_mask_S_T[rows].sum())
    valued = int(credit.value_mask[rows].sum())
    if tokens == 0:
        tally.skipped += 1
        return
    learner.policy.model.eval()  # no dropout: the ratio compares with the network that sampled
    learner.optimizer.zero_grad(set_to_none=True)
    sums: dict[str, float] = {}
    for micro in _micro_batches(batch, rows, config):
        loss, parts = _loss(learner.policy, batch, credit, micro, config, tokens, valued)
        if loss.requires_grad:
            loss.backward()
        for name, value in parts.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    if config.ppo.target_kl is not None and sums["kl"] > config.ppo.target_kl:
        tally.stopped = True
        return
    norm = float(torch.nn.utils.clip_grad_norm_(learner.parameters, config.ppo.max_grad_norm))
    if norm != norm or norm == float("inf"):
        tally.skipped += 1
        return
    learner.optimizer.step()
    tally.steps += 1
    tally.add(grad_norm=norm, **sums)


def _loss(
    policy: Policy, batch: Batch, credit: _Credit, rows: Tensor, config: Config, tokens: int, valued: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a micro-batch as its part of a minibatch, and what it is made of.

    `tokens` counts the minibatch's tokens of the loss, `valued` those of them that the critic learns: all, but in the
    ablation of the loss mask alone.
    """
    settings = config.ppo
    width = int(batch.lengths_S[rows].max())

    def part(tensor: Tensor) -> Tensor:
        return tensor[rows, :width].to(policy.device)

    mask, ids = part(batch.loss_mask_S_T), part(batch.ids_S_T)
    scores = policy.score(ids, mask, config.rollout.temperature)
    actor, stats = policy_loss(
        scores.logprobs,
        part(credit.old_logprobs),
        part(credit.advantages),
        mask,
        settings.clip_low,
        settings.clip_high,
        settings.dual_clip,
        denominator=tokens,
    )
    entropy = masked_mean(scores.entropy, mask, tokens)
    loss = actor - settings.entropy_coefficient * entropy
    parts = {
        "policy_loss": actor.detach(),
        "entropy": entropy.detach(),
        "clip_fraction": stats.clipped / tokens,
        "kl": stats.kl / tokens,
    }
    if config.advantages.critic:
        critic = value_loss(
            scores.values,
            part(credit.values),
            part(credit.returns),
            part(credit.value_mask),
            settings.clip_value,
            denominator=valued,
        )
        loss = loss + critic
        parts["value_loss"] = critic.detach()
    if credit.reference_logprobs is not None:
        reference = part(credit.reference_logprobs)
        estimates = {
            name: masked_mean(kl(scores.logprobs, reference, mask, name), mask, tokens) for name in KL_ESTIMATORS
        }
        penalty = estimates[settings.kl_estimator]
        if settings.kl_in == "loss":
            loss = loss + settings.kl_coefficient * penalty
        parts["kl_reference"] = penalty.detach()
        parts |= {f"kl_reference_{name}": estimate.detach() for name, estimate in estimates.items()}
    return loss, parts


def _set_learning_rates(learner: Learner, config: Config, iteration: int) -> None:
    scale = min(1.0, iteration / config.ppo.warmup_updates) if config.ppo.warmup_updates else 1.0
    if config.ppo.half_life is not None:
        scale *= 0.5 ** ((iteration - 1) / config.ppo.half_life)
    rates = (config.ppo.learning_rate, config.ppo.value_learning_rate)
    for group, rate in zip(learner.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * scale


def _metrics(batch: Batch, credit: _Credit, config: Config, tally: _Tally) -> dict[str, float]:
    names = ("policy_loss", "kl", "entropy", "clip_fraction", "grad_norm")
    metrics = {f"ppo/{name}": tally.mean(name) for name in names}
    if credit.reference_logprobs is not None:
        for name in ("kl_reference", *(f"kl_reference_{estimator}" for estimator in KL_ESTIMATORS)):
            metrics[f"ppo/{name}"] = tally.mean(name)
    if config.advantages.critic:
        metrics["ppo/value_loss"] = tally.mean("value_loss")
        metrics["ppo/explained_variance"] = _explained_variance(batch, credit)
    advantages = credit.advantages[batch.credit_mask_S_T]
    metrics["ppo/advantage_std"] = credit.spread
    metrics["ppo/advantage_max"] = float(advantages.abs().max()) if advantages.numel() else 0.0
    metrics["ppo/skipped_updates"] = float(tally.skipped)
    metrics["ppo/steps"] = float(tally.steps)
    metrics["ppo/stopped_early"] = float(tally.stopped)
    metrics["ppo/action_tokens"] = float(batch.action_mask_S_T.sum())
    return metrics


def _explained_variance(batch: Batch, credit: _Credit) -> float:
    """How much of the returns' variance the critic foresaw: 1 all, 0 nothing."""
    mask = batch.credit_mask_S_T
    returns, values = credit.returns[mask], credit.values[mask]
    variance = float(returns.var(correction=0)) if returns.numel() else 0.0
    residual = float((returns - values).var(correction=0)) if returns.numel() else 0.0
    return 1 - residual / variance if variance > 0 else 0.0


def _deviation(values: Tensor) -> float:
    return float(values.std(correction=0)) if values.numel() else 0.0


def _credit_rows(batch: Batch, credit: _Credit) -> list[Credit]:
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
