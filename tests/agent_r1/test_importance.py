"""The gap between sampler and trainer, and the truncated importance weights against it."""

from __future__ import annotations

import math

import pytest
import torch
from annotated import create, sampled
from scripted import SMALL

from agent_r1.batch import Batch, make_batch
from agent_r1.config import Config, parse
from agent_r1.credit import Credited, give_credit
from agent_r1.ppo import make_learner, update

OFF = math.log(4)
"""The sampler said four times or a quarter of the trainer's probability: weights 1/4, and 4, which is cut to 2."""


def config(cap: float | None) -> Config:
    ppo = {"epochs": 1, "minibatches": 1, "kl_coefficient": 0.0, "value_steps": 0, "importance_cap": cap}
    return parse({"model": SMALL, "ppo": {**ppo}}, "test")


def credited(cap: float | None, off: float) -> tuple[Batch, Credited]:
    settings = config(cap)
    policy = create(settings)
    batch = make_batch(sampled(policy, off), settings.masks)
    return batch, give_credit(policy, None, batch, settings)


@pytest.mark.parametrize("off", [0.0, 0.25])
def test_the_gap_is_measured_on_action_tokens(off: float) -> None:
    settings = config(None)
    policy = create(settings)
    metrics = update(make_learner(policy, settings), None, sampled(policy, off), settings, 1).metrics
    assert metrics["rollout/logprob_gap_mean"] == pytest.approx(off, abs=1e-5)
    assert metrics["rollout/logprob_gap_max"] == pytest.approx(off, abs=1e-5)
    assert "ppo/importance_mean" not in metrics


def test_weights_are_trainer_over_sampler_up_to_the_cap_and_one_where_given() -> None:
    batch, credit = credited(2.0, OFF)
    likelier = batch.logprobs_S_T > credit.old_logprobs
    above, below = (credit.importance[batch.action_mask_S_T & side] for side in (likelier, ~likelier))
    assert above.tolist() == pytest.approx([0.25] * len(above), abs=1e-5)
    assert below.tolist() == pytest.approx([2.0] * len(below), abs=1e-5)
    assert min(len(above), len(below)) > 3
    assert (credit.importance[~batch.action_mask_S_T] == 1).all()


def test_with_a_cap_the_ratio_starts_at_the_trainer_s_probabilities_and_without_at_the_sampler_s() -> None:
    batch, agreed = credited(None, 0.0)
    mask = batch.action_mask_S_T
    assert credited(2.0, OFF)[1].old_logprobs[mask].tolist() == pytest.approx(
        agreed.old_logprobs[mask].tolist(), abs=1e-5
    )
    shifted, without = credited(None, OFF)
    assert without.old_logprobs[mask].equal(shifted.logprobs_S_T[mask])
    assert (without.importance == 1).all()


def test_the_loss_of_a_token_counts_its_weight_times() -> None:
    """The first ratio is 1, so the loss is minus the mean of weights times advantages."""
    settings = config(2.0)
    policy = create(settings)
    batch, credit = credited(2.0, OFF)
    weights = (batch.logprobs_S_T > credit.old_logprobs) * 0.25 + (batch.logprobs_S_T <= credit.old_logprobs) * 2.0
    mask = batch.action_mask_S_T
    expected = -float((weights * credit.advantages)[mask].mean())
    metrics = update(make_learner(policy, settings), None, sampled(policy, OFF), settings, 1).metrics
    assert metrics["ppo/policy_loss"] == pytest.approx(expected, abs=1e-5)
    assert metrics["ppo/policy_loss"] != pytest.approx(-float(credit.advantages[mask].mean()), abs=1e-2)
    assert metrics["ppo/clip_fraction"] == 0
    assert metrics["ppo/importance_min"] == pytest.approx(0.25, abs=1e-5)
    assert metrics["ppo/importance_mean"] == pytest.approx(float(weights[mask].mean()), abs=1e-5)


def test_the_gap_is_that_of_the_first_step_and_to_the_sampler_with_a_cap_too() -> None:
    """Large steps follow it, in passes of two segments; the ablation's given tokens have no sampler to differ from."""
    ppo = {"epochs": 2, "minibatches": 2, "kl_coefficient": 0.0, "value_steps": 0, "learning_rate": 0.1}
    for more in ({}, {"micro_batch": 2}, {"importance_cap": 2.0}):
        for mask in (True, False):
            settings = parse({"model": SMALL, "ppo": {**ppo, **more}, "masks": {"loss": mask}}, "test")
            policy = create(settings)
            metrics = update(make_learner(policy, settings), None, sampled(policy, OFF), settings, 1).metrics
            assert metrics["rollout/logprob_gap_mean"] == pytest.approx(OFF, abs=1e-5)
            assert metrics["rollout/logprob_gap_max"] == pytest.approx(OFF, abs=1e-5)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("estimator", ["gae", "leave_one_out"])
def test_every_estimator_and_mask_has_the_same_weights(estimator: str, mask: bool) -> None:
    settings = parse(
        {
            "model": SMALL,
            "ppo": {"importance_cap": 2.0, "kl_coefficient": 0.0},
            "advantages": {"estimator": estimator},
            "rollout": {"attempts": 2},
            "masks": {"loss": mask},
        },
        "test",
    )
    policy = create(settings)
    batch = make_batch(sampled(policy, OFF), settings.masks)
    expected, credit = credited(2.0, OFF)[1], give_credit(policy, None, batch, settings)
    assert torch.allclose(credit.importance, expected.importance, atol=1e-5)
    action = batch.action_mask_S_T
    assert credit.old_logprobs[action].tolist() == pytest.approx(expected.old_logprobs[action].tolist(), abs=1e-5)
