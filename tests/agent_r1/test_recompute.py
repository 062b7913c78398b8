"""Computing again instead of keeping: the same numbers and gradients, and nothing drawn."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace

import pytest
import torch
from annotated import create, sampled
from scripted import SMALL
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from agent_r1 import model, recompute
from agent_r1.config import Config
from agent_r1.errors import ConfigError
from agent_r1.model import Policy
from agent_r1.ppo import Update, make_learner, update

IDS = torch.tensor([[5, 6, 7, 8, 9], [40, 41, 42, 0, 0]])
MASK = torch.tensor([[0, 1, 0, 1, 1], [0, 0, 1, 0, 0]], dtype=torch.bool)


def config(again: bool, dtype: str = "float32", rank: int = 0) -> Config:
    ppo = {"gradient_checkpointing": again, "kl_coefficient": 0, "entropy_coefficient": 0.01, "value_steps": 1}
    tree = {"model": {**SMALL, "dtype": dtype, "lora": {"rank": rank}}, "ppo": ppo}
    return Config.model_validate(tree)


def improved(policy: Policy, settings: Config) -> tuple[Update, dict[str, Tensor]]:
    if settings.model.lora.rank:
        policy = model.add_adapters(policy, settings)
    done = update(make_learner(policy, settings), None, sampled(policy, 0.1), settings, 1)
    return done, policy.model.state_dict()


@pytest.mark.parametrize(("dtype", "rank"), [("float32", 0), ("float32", 4), ("bfloat16", 4)])
def test_gradient_checkpointing_changes_no_weight_and_no_metric(dtype: str, rank: int) -> None:
    plain, again = (config(each, dtype, rank) for each in (False, True))
    (one, kept), (other, recomputed) = (improved(create(each), each) for each in (plain, again))
    assert one == other
    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)


@pytest.mark.parametrize("again", [False, True])
def test_layers_are_computed_once_more_for_each_backward_pass_and_as_before_afterwards(again: bool) -> None:
    """8 minibatch steps of 1 or 2 segments, and 2 passes without gradients: for credit and for the critic."""
    settings = config(again)
    policy = create(settings)
    rows = sampled(policy)
    passes: Counter[int] = Counter()
    for number in (0, 1):
        inner = policy.model.get_submodule(f"model.layers.{number}.mlp")
        inner.register_forward_pre_hook(lambda *_, number=number: passes.update([number]))
    update(make_learner(policy, settings), None, rows, settings, 1)
    assert passes == ({0: 18, 1: 18} if again else {0: 10, 1: 10})
    passes.clear()
    policy.score(IDS, MASK, 1.0).logprobs.sum().backward()
    assert passes == {0: 1, 1: 1}


def test_gradient_checkpointing_brings_no_dropout() -> None:
    shape = LlamaConfig(
        vocab_size=760, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        attention_dropout=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    network = LlamaForCausalLM(shape).eval()
    made = create(config(True))
    found = []
    for again in (False, True):
        policy = replace(made, model=copy.deepcopy(network), value_head=copy.deepcopy(made.value_head))
        found.append(improved(policy, config(again))[0])
    assert found[0] == found[1]


def test_a_model_without_layers_to_compute_again_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"ppo\.gradient_checkpointing"), recompute.layers(nn.Linear(2, 2)):
        pass


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_logits_in_parts_are_those_of_all_tokens_at_once(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four tokens, in parts of 1, 2 or 3; at the end the gradients of the embeddings too."""
    policy = create(config(False))

    def scored() -> tuple[Tensor, Tensor, Tensor]:
        policy.model.zero_grad()
        scores = policy.score(IDS, MASK, 0.7)
        (scores.logprobs.sum() + scores.entropy.sum()).backward()
        gradients = [one.grad.flatten() for one in policy.model.parameters() if one.grad is not None]
        return scores.logprobs.detach(), scores.entropy.detach(), torch.cat(gradients)

    whole = scored()
    sizes: list[int] = []
    hook = policy.output_layer.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    monkeypatch.setattr(recompute, "LOGITS_AT_ONCE", tokens * 760 + 5)
    parts = scored()
    hook.remove()
    assert max(sizes) == tokens
    for one, other in zip(parts, whole, strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-5
    assert float(whole[2].norm()) > 0.1
