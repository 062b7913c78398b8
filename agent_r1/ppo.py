"""One PPO update: give credit, take clipped steps on what the agent chose, then teach the critic what was earned.

Credit is credit.py's. Reading annotations and keeping checkpoints is left to tasks and storage. Axes as in batch.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from agent_r1 import critic, recompute, watching
from agent_r1.batch import Batch, make_batch
from agent_r1.config import Config
from agent_r1.credit import Credited, credit_rows, explained_variance, give_credit, micro_batches
from agent_r1.errors import CheckpointError
from agent_r1.losses import KL_ESTIMATORS, kl, masked_mean, policy_loss
from agent_r1.model import Policy
from agent_r1.seeds import generator
from agent_r1.trajectory import Annotation, Credit


@dataclass(frozen=True, slots=True)
class Learner:
    """A policy and its critic with their optimizers, whose states live on through checkpoints."""

    policy: Policy
    optimizer: torch.optim.AdamW
    critic_optimizer: torch.optim.AdamW


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did: its metrics, and the credit of every stored token."""

    metrics: dict[str, float]
    credits: list[Credit]


@dataclass(slots=True)
class _Tally:
    """Sums over the steps of an update."""

    steps: int = 0
    skipped: int = 0
    stopped: bool = False
    gap: Tensor | None = None
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def mean(self, name: str) -> float:
        return self.sums.get(name, 0.0) / max(self.steps, 1)


def make_learner(policy: Policy, config: Config, state: Mapping[str, object] | None = None) -> Learner:
    """A learner with new optimizers, or with those of a checkpoint's `learner_state`: else a CheckpointError."""
    decay = config.ppo.weight_decay
    learner = Learner(
        policy,
        torch.optim.AdamW(policy.trained, lr=config.ppo.learning_rate, weight_decay=decay),
        torch.optim.AdamW(policy.value_head.parameters(), lr=config.ppo.value_learning_rate, weight_decay=decay),
    )
    if state is not None:
        for name, optimizer in _optimizers(learner).items():
            kept = state.get(name)
            if not isinstance(kept, dict):
                raise CheckpointError(f"the checkpoint has no {name} state, only {', '.join(state) or 'nothing'}")
            try:
                optimizer.load_state_dict(kept)
            except (KeyError, ValueError) as error:
                raise CheckpointError(f"the checkpoint's {name} state does not fit its model: {error}") from error
    return learner


def learner_state(learner: Learner) -> dict[str, object]:
    """What a checkpoint keeps beside the weights. No random state: every seed is derived from what it is for."""
    return {name: optimizer.state_dict() for name, optimizer in _optimizers(learner).items()}


def _optimizers(learner: Learner) -> dict[str, torch.optim.AdamW]:
    return {"optimizer": learner.optimizer, "critic_optimizer": learner.critic_optimizer}


def update(
    learner: Learner, reference: Policy | None, annotations: Sequence[Annotation], config: Config, iteration: int
) -> Update:
    """Improve the learner in place on the annotations of one iteration.

    `reference` is the policy of checkpoint 0, with LoRA the learner's own without adapters; needed where
    `ppo.kl_coefficient` is above 0. A minibatch without an action token takes no step, nor does a gradient that is not
    finite, the critic's included: both are counted in ppo/skipped_updates.
    """
    if reference is None and config.ppo.kl_coefficient > 0:
        raise ValueError(f"reference: needed where ppo.kl_coefficient is {config.ppo.kl_coefficient}, got None")
    batch = make_batch(annotations, config.masks)
    if not batch.annotations:
        return Update({"ppo/skipped_updates": float(config.ppo.epochs * config.ppo.minibatches)}, [])
    credit = give_credit(learner.policy, reference, batch, config)
    _set_learning_rates(learner, config, iteration)
    tally = _Tally()
    watching.expect("steps", config.ppo.epochs * min(config.ppo.minibatches, len(batch.annotations)))
    for rows in _minibatches(len(batch.annotations), config, iteration):
        if tally.stopped:
            break
        _step(learner, batch, credit, rows, config, tally)
        watching.count("steps")
    if config.advantages.critic and config.ppo.value_steps:
        tally.skipped += _teach_critic(learner, batch, credit, config, iteration)
    return Update(_metrics(batch, credit, config, tally), credit_rows(batch, credit))


def _minibatches(segments: int, config: Config, iteration: int) -> Iterator[Tensor]:
    """Rows of each optimizer step: every segment once an epoch, in seeded order, in about equal parts."""
    for epoch in range(config.ppo.epochs):
        order = generator(config.seed, "minibatches", iteration, epoch).permutation(segments)
        parts = min(config.ppo.minibatches, segments)
        yield from torch.from_numpy(order).tensor_split(parts)


def _step(learner: Learner, batch: Batch, credit: Credited, rows: Tensor, config: Config, tally: _Tally) -> None:
    """One optimizer step on a minibatch, its gradient summed over micro-batches."""
    tokens = int(batch.loss_mask_S_T[rows].sum())
    if tokens == 0:
        tally.skipped += 1
        return
    learner.policy.model.eval()  # no dropout: the ratio compares with the network that sampled
    learner.optimizer.zero_grad(set_to_none=True)
    sums: dict[str, float] = {}
    gaps: list[Tensor] = []
    with recompute.layers(learner.policy.model) if config.ppo.gradient_checkpointing else nullcontext():
        for micro in micro_batches(batch, rows, config):
            loss, parts, gap = _loss(learner.policy, batch, credit, micro, config, tokens)
            if loss.requires_grad:
                loss.backward()
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + float(value)
            gaps.append(gap)
    if tally.gap is None:  # nothing has moved yet: what differs is the sampler
        tally.gap = torch.cat(gaps)
    if config.ppo.target_kl is not None and sums["kl"] > config.ppo.target_kl:
        tally.stopped = True
        return
    norm = float(torch.nn.utils.clip_grad_norm_(learner.policy.trained, config.ppo.max_grad_norm))
    if norm != norm or norm == float("inf"):
        tally.skipped += 1
        return
    learner.optimizer.step()
    tally.steps += 1
    tally.add(grad_norm=norm, **sums)


def _loss(
    policy: Policy, batch: Batch, credit: Credited, rows: Tensor, config: Config, tokens: int
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """The loss of a micro-batch as its part of a minibatch of `tokens` tokens of the loss, and what it is made of.

    Last, how far the log-probability of each action is from what its sampler said.
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
        part(credit.advantages * credit.importance),
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
    gap = (scores.logprobs.detach() - part(batch.logprobs_S_T))[part(batch.action_mask_S_T)].abs()
    return loss, parts, gap


def _set_learning_rates(learner: Learner, config: Config, iteration: int) -> None:
    scale = min(1.0, iteration / config.ppo.warmup_updates) if config.ppo.warmup_updates else 1.0
    for optimizer, rate in (
        (learner.optimizer, config.ppo.learning_rate),
        (learner.critic_optimizer, config.ppo.value_learning_rate),
    ):
        for group in optimizer.param_groups:
            group["lr"] = rate * scale


def _teach_critic(learner: Learner, batch: Batch, credit: Credited, config: Config, iteration: int) -> int:
    """Steps of the critic on the states that the improved policy sees at the tokens of `value_mask`; the skipped."""
    states, targets = [], []
    for rows in micro_batches(batch, torch.arange(len(batch.annotations)), config):
        width = int(batch.lengths_S[rows].max())
        mask = credit.value_mask[rows, :width]
        states.append(learner.policy.states(batch.ids_S_T[rows, :width], mask))
        targets.append(credit.targets[rows, :width][mask].to(learner.policy.device))
    return critic.teach(
        learner.policy.value_head,
        learner.critic_optimizer,
        torch.cat(states),
        torch.cat(targets),
        steps=config.ppo.value_steps,
        random=generator(config.seed, "critic", iteration),
        max_grad_norm=config.ppo.max_grad_norm,
    )


def _metrics(batch: Batch, credit: Credited, config: Config, tally: _Tally) -> dict[str, float]:
    names = ("policy_loss", "kl", "entropy", "clip_fraction", "grad_norm")
    metrics = {f"ppo/{name}": tally.mean(name) for name in names}
    if credit.reference_logprobs is not None:
        for name in ("kl_reference", *(f"kl_reference_{estimator}" for estimator in KL_ESTIMATORS)):
            metrics[f"ppo/{name}"] = tally.mean(name)
    if config.advantages.critic:
        metrics["ppo/value_loss"] = credit.value_loss
        metrics["ppo/explained_variance"] = explained_variance(batch, credit)
    advantages = credit.advantages[batch.credit_mask_S_T]
    gap = torch.zeros(1) if tally.gap is None or not tally.gap.numel() else tally.gap
    metrics["rollout/logprob_gap_mean"], metrics["rollout/logprob_gap_max"] = float(gap.mean()), float(gap.max())
    if config.ppo.importance_cap is not None:
        importance = credit.importance[batch.action_mask_S_T]
        metrics["ppo/importance_mean"] = float(importance.mean()) if importance.numel() else 1.0
        metrics["ppo/importance_min"] = float(importance.min()) if importance.numel() else 1.0
    metrics["ppo/advantage_std"] = credit.spread
    metrics["ppo/advantage_max"] = float(advantages.abs().max()) if advantages.numel() else 0.0
    metrics["ppo/skipped_updates"] = float(tally.skipped)
    metrics["ppo/steps"] = float(tally.steps)
    metrics["ppo/stopped_early"] = float(tally.stopped)
    metrics["ppo/action_tokens"] = float(batch.action_mask_S_T.sum())
    return metrics
