"""bfloat16 from sampling to the step: the forward passes only, and the trainer's ratios to the sampler begin at 1."""

from __future__ import annotations

import pytest
import torch
from annotated import create
from scripted import SMALL

from agent_r1.config import Config
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.model import Policy, add_adapters
from agent_r1.ppo import make_learner, update
from agent_r1.sampler import ActionRequest
from agent_r1.trajectory import Annotation


def config(dtype: str, rank: int, **ppo: object) -> Config:
    settings = {"epochs": 1, "minibatches": 1, "kl_coefficient": 0, **ppo}
    return Config.model_validate({"model": {**SMALL, "dtype": dtype, "lora": {"rank": rank}}, "ppo": settings})


def rollouts(policy: Policy) -> list[Annotation]:
    """Sixteen actions of twenty tokens after prompts of different lengths, by the embedded sampler."""
    session = EmbeddedSampler(policy).session(end_ids=(-1,), temperature=1.0, greedy=False, max_new_tokens=20)
    requests = [ActionRequest(row, tuple(range(10, 14 + 3 * row)), seed=row, restart=True) for row in range(16)]
    rows = []
    for request, action in zip(requests, session.act(requests), strict=True):
        given, chosen = len(request.new_ids), len(action.ids)
        ids, mask = request.new_ids + action.ids, (False,) * given + (True,) * chosen
        rewards = (0.0,) * (given + chosen - 1) + (float(request.row % 2),)
        rows.append(Annotation(f"t{request.row}", 0, ids, mask, (0.0,) * given + action.logprobs, rewards, {}))
    return rows


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("bfloat16", 0.05)])
@pytest.mark.parametrize("rank", [0, 4])
def test_the_first_ratio_to_what_the_sampler_said_is_one_but_for_rounding(dtype: str, bound: float, rank: int) -> None:
    """bfloat16 keeps 8 bits: a log-probability of -7 is known to about .03; no ratio comes near the clip of .2."""
    settings = config(dtype, rank)
    policy = create(settings)
    if rank:
        policy = add_adapters(policy, settings)
        for weight in policy.trained:
            torch.nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(0))
    rows = rollouts(policy)
    for row in rows:
        with torch.no_grad():
            scores = policy.score(torch.tensor([row.token_ids]), torch.tensor([row.action_mask]), 1.0)
        assert scores.logprobs[0].tolist() == pytest.approx(row.logprobs, abs=bound)
    done = update(make_learner(policy, settings), None, rows, settings, 1)
    assert done.metrics["ppo/kl"] < bound**2
    assert done.metrics["ppo/clip_fraction"] == 0


@pytest.mark.parametrize("rank", [0, 4])
def test_what_learns_its_gradient_and_its_optimizer_s_state_are_float32(rank: int) -> None:
    settings = config("bfloat16", rank)
    policy = add_adapters(create(settings), settings) if rank else create(settings)
    learner = make_learner(policy, settings)
    update(learner, None, rollouts(policy), settings, 1)
    seen = {weight.dtype for weight in policy.trained}
    seen |= {weight.grad.dtype for weight in policy.trained if weight.grad is not None}
    for optimizer in (learner.optimizer, learner.critic_optimizer):
        assert optimizer.state
        seen |= {tensor.dtype for state in optimizer.state.values() for tensor in state.values()}
    assert seen == {torch.float32}
