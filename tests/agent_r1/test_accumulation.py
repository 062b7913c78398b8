"""However a minibatch is cut into passes, its gradient is that of one big pass (C3)."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from annotated import LENGTHS, create, sampled
from scripted import SMALL
from torch import Tensor

from agent_r1 import model
from agent_r1.batch import make_batch
from agent_r1.config import Config
from agent_r1.credit import micro_batches
from agent_r1.ppo import make_learner, update
from agent_r1.sections import MaskConfig

ALL = 1000


def config(rank: int, rows: int, tokens: int | None, **ppo: object) -> Config:
    """One step of everything: KL and entropy in the loss, both clips, whitening; ratios are 1.3 or 1 / 1.3."""
    settings = {
        "epochs": 1, "minibatches": 1, "max_grad_norm": 1e30, "value_steps": 0, "kl_coefficient": 0.3,
        "entropy_coefficient": 0.05, "dual_clip": 1.2, "micro_batch": rows, "micro_batch_tokens": tokens,
    }  # fmt: skip
    return Config.model_validate({"model": {**SMALL, "lora": {"rank": rank}}, "ppo": {**settings, **ppo}})


def gradient(settings: Config) -> Tensor:
    """Of the step, all that learns in a row; the reference is another policy."""
    policy, reference = (create(settings.model_copy(update={"seed": seed})) for seed in (0, 1))
    if settings.model.lora.rank:
        policy = model.add_adapters(policy, settings)
        random = torch.Generator().manual_seed(0)
        for weight in policy.trained:  # new adapters change nothing, and half of them have no gradient
            torch.nn.init.normal_(weight, std=0.1, generator=random)
    learner = make_learner(policy, settings)
    done = update(learner, reference, sampled(policy, off=0.26), settings, 1)
    assert done.metrics["ppo/clip_fraction"] > 0.1
    assert done.metrics["ppo/kl_reference"] > 0.1
    gradients = [weight.grad.flatten() for weight in policy.trained if weight.grad is not None]
    assert len(gradients) == len(policy.trained)
    return torch.cat(gradients)


@cache
def at_once(rank: int) -> Tensor:
    return gradient(config(rank, ALL, None))


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize(
    ("rows", "tokens"), [(1, None), (2, None), (3, None), (ALL, 1), (ALL, 15), (ALL, 28), (2, 20), (ALL, 10_000)]
)
def test_accumulated_gradients_are_those_of_the_whole_batch(rank: int, rows: int, tokens: int | None) -> None:
    """Segments of 2 to 20 tokens: what a segment weighs is its number of action tokens, in whichever pass it is."""
    whole = at_once(rank)
    parts = gradient(config(rank, rows, tokens))
    assert float(whole.norm()) > 0.1
    assert float((parts - whole).norm() / whole.norm()) < 1e-6


@pytest.mark.parametrize("rank", [0, 4])
def test_so_are_they_with_layers_computed_again(rank: int) -> None:
    whole = at_once(rank)
    parts = gradient(config(rank, ALL, 28, gradient_checkpointing=True))
    assert float((parts - whole).norm() / whole.norm()) < 1e-6


@pytest.mark.parametrize(
    ("rows", "tokens", "expected"),
    [
        (ALL, None, [[2, 3, 5, 5, 9, 14, 20]]),
        (3, None, [[2, 3, 5], [5, 9, 14], [20]]),
        (ALL, 15, [[2, 3, 5], [5], [9], [14], [20]]),
        (ALL, 28, [[2, 3, 5, 5], [9, 14], [20]]),
        (ALL, 40, [[2, 3, 5, 5], [9, 14], [20]]),
        (2, 28, [[2, 3], [5, 5], [9, 14], [20]]),
        (ALL, 1, [[2], [3], [5], [5], [9], [14], [20]]),
    ],
)
def test_a_pass_holds_rows_of_about_one_length_and_no_more_than_it_may(
    rows: int, tokens: int | None, expected: list[list[int]]
) -> None:
    """A pass costs rows times its longest: 2, 3 and 5 cost 15. What is longer than the budget has a pass of its own."""
    settings = config(0, rows, tokens)
    batch = make_batch(sampled(create(settings)), MaskConfig())
    passes = micro_batches(batch, torch.arange(len(LENGTHS)), settings)
    assert [batch.lengths_S[each].tolist() for each in passes] == expected
