"""A policy, segments of different lengths as it would have sampled them, and what a sampler reads off it."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import torch
from scripted import SMALL
from transformers import DynamicCache

from agent_r1 import model
from agent_r1.config import Config, parse
from agent_r1.model import Policy, pad
from agent_r1.trajectory import Annotation

LENGTHS = (9, 3, 14, 5, 5, 20, 2)


@cache
def _made(dtype: str, seed: int) -> Policy:
    return model.create(parse({"model": {**SMALL, "dtype": dtype}, "seed": seed}, "test"))


def create(settings: Config) -> Policy:
    """A fresh small policy of the configuration's seed, copied: making the tokenizer takes a while."""
    made = _made(settings.model.dtype, settings.seed)
    return replace(made, model=copy.deepcopy(made.model), value_head=copy.deepcopy(made.value_head))


def sampled(policy: Policy, off: float = 0.0) -> list[Annotation]:
    """A segment of each of LENGTHS, seeded; log-probabilities are the policy's own, plus or minus `off` in turns."""
    random = torch.Generator().manual_seed(0)
    made = []
    for number, length in enumerate(LENGTHS):
        ids = torch.randint(10, 700, (length,), generator=random)
        mask = torch.rand(length, generator=random) < 0.6
        mask[0], mask[-1] = False, True
        rewards = torch.where(mask, torch.randn(length, generator=random), 0.0)
        with torch.no_grad():
            logprobs = policy.score(ids[None], mask[None], 1.0).logprobs[0]
        shifts = torch.tensor([off, -off]).repeat(length)[:length]
        said = torch.where(mask, logprobs + shifts, 0.0)
        lists = [tuple(each.tolist()) for each in (ids, mask, said, rewards)]
        made.append(Annotation(f"t{number}", 0, lists[0], lists[1], lists[2], lists[3], {}))
    return made


def logits(policy: Policy) -> torch.Tensor:
    """What a sampler reads off the policy: logits [3, V] of next tokens, through its cache of keys and values."""
    ids = pad([[5, 6, 7, 8], [40, 41, 42, 43], [9, 9, 100, 3]], dtype=torch.long)
    mask = torch.ones(4, 4, dtype=torch.bool).tril().expand(3, 1, 4, 4)
    with torch.inference_mode():
        return policy.next_logits(ids, torch.arange(4).expand(3, 4), mask, DynamicCache())
