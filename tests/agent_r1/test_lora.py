"""LoRA: adapters learn, what they stand on does not, and it is the reference; the sampler samples with them (C12)."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path

import pytest
import torch
from annotated import create, logits, sampled
from peft import PeftModel
from scripted import SMALL
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from agent_r1 import lora
from agent_r1.config import Config, parse
from agent_r1.errors import CheckpointError, ConfigError
from agent_r1.model import Policy, add_adapters, load
from agent_r1.ppo import Learner, learner_state, make_learner, update
from agent_r1.sections import LoraConfig

DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


def config(dtype: str = "float32", rank: int = 4, **settings: object) -> Config:
    """Two epochs of two steps with a large learning rate, against the reference."""
    ppo = {"epochs": 2, "minibatches": 2, "kl_coefficient": 0.1, "learning_rate": 0.01, "value_steps": 2}
    tree = {"model": {**SMALL, "dtype": dtype, "lora": {"rank": rank, **settings}}, "ppo": ppo}
    return Config.model_validate(tree)


def start(tmp_path: Path, settings: Config) -> Path:
    """Checkpoint 0 of a run with adapters."""
    folder = tmp_path / "0"
    folder.mkdir()
    add_adapters(create(settings), settings).save(folder)
    return folder


def improve(policy: Policy, settings: Config, iteration: int = 1, learner: Learner | None = None) -> Learner:
    """The learner after an update on what the policy sampled."""
    learner = learner or make_learner(policy, settings)
    done = update(learner, policy.without_adapters, sampled(policy), settings, iteration)
    assert done.metrics["ppo/steps"] == 4
    return learner


def saved(policy: Policy, folder: Path) -> Path:
    folder.mkdir()
    policy.save(folder)
    return folder


def weights(policy: Policy) -> dict[str, Tensor]:
    return copy.deepcopy(policy.model.state_dict())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def without_gradients(policy: Policy) -> Policy:
    """torch rounds a product of one row otherwise where its weights have gradients: to compare bits, none have them."""
    policy.model.requires_grad_(False)
    return policy


def frozen(policy: Policy) -> dict[str, Tensor]:
    return {name: weight for name, weight in weights(policy).items() if ".lora_" not in name}


@DTYPES
def test_new_adapters_change_nothing(dtype: str) -> None:
    settings = config(dtype)
    plain = without_gradients(create(settings))
    assert torch.equal(logits(add_adapters(create(settings), settings)), logits(plain))


@DTYPES
def test_after_an_update_the_sampler_s_logits_are_others_and_the_base_weights_the_same(
    tmp_path: Path, dtype: str
) -> None:
    """C12: what samples is loaded from the new checkpoint, and it is what was trained."""
    settings = config(dtype)
    base = start(tmp_path, settings)
    policy = load(base, settings, base)
    before, stood_on = logits(policy), frozen(policy)
    improve(policy, settings)
    sampler = load(saved(policy, tmp_path / "1"), settings, base)
    assert float((logits(sampler) - before).abs().max()) > 0.1
    assert torch.equal(logits(sampler), logits(policy))
    assert same(frozen(policy), stood_on)
    assert same(frozen(sampler), stood_on)


@DTYPES
def test_without_adapters_the_policy_is_checkpoint_0_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    settings = config(dtype)
    base = start(tmp_path, settings)
    policy = load(base, settings, base)
    improve(policy, settings)
    for row in sampled(policy):
        ids, mask = torch.tensor([row.token_ids]), torch.tensor([row.action_mask])
        with torch.no_grad():
            one, other = (each.score(ids, mask, 1.0) for each in (policy.without_adapters, load(base, settings)))
        assert torch.equal(one.logprobs, other.logprobs)
    reference = without_gradients(load(base, settings))
    assert torch.equal(logits(policy.without_adapters), logits(reference))
    assert not torch.equal(logits(policy), logits(reference)), "the adapters are back"


def test_adapters_still_learn_after_they_were_switched_off(tmp_path: Path) -> None:
    settings = config()
    base = start(tmp_path, settings)
    policy = load(base, settings, base)
    before = [one.requires_grad for one in policy.model.parameters()]
    logits(policy.without_adapters)
    assert [one.requires_grad for one in policy.model.parameters()] == before
    with pytest.raises(ValueError, match="no adapters"):
        _ = load(base, settings).without_adapters


@DTYPES
def test_an_update_after_saving_and_loading_is_that_of_a_run_without_interruption(tmp_path: Path, dtype: str) -> None:
    """G10: weights and metrics, bit for bit; going on from merged weights would not be."""
    settings = config(dtype)
    base = start(tmp_path, settings)
    straight = improve(load(base, settings, base), settings)
    folder = saved(straight.policy, tmp_path / "1")
    file = io.BytesIO()
    torch.save(learner_state(straight), file)
    file.seek(0)
    policy = load(folder, settings, base)
    resumed = make_learner(policy, settings, torch.load(file, weights_only=True))
    assert same(weights(resumed.policy), weights(straight.policy))
    rows = sampled(straight.policy)
    one = update(straight, straight.policy.without_adapters, rows, settings, 2)
    other = update(resumed, policy.without_adapters, rows, settings, 2)
    assert one == other
    assert same(weights(resumed.policy), weights(straight.policy))
    assert same(resumed.policy.value_head.state_dict(), straight.policy.value_head.state_dict())


def test_the_plain_folder_and_peft_s_files_do_what_was_trained(tmp_path: Path) -> None:
    """Any program can serve either: the merged model, or the adapters on checkpoint 0."""
    settings = config()
    base = start(tmp_path, settings)
    policy = load(base, settings, base)
    improve(policy, settings)
    folder = saved(policy, tmp_path / "1")
    ids = torch.randint(10, 700, (3, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        trained = policy.model(input_ids=ids).logits
        plain = AutoModelForCausalLM.from_pretrained(str(folder / "policy"))
        other = AutoModelForCausalLM.from_pretrained(str(base / "policy"))
        assert float((other(input_ids=ids).logits - trained).abs().max()) > 0.1
        served = PeftModel.from_pretrained(other, str(folder / "adapter"))
        torch.testing.assert_close(plain(input_ids=ids).logits, trained, atol=1e-5, rtol=0)
        torch.testing.assert_close(served(input_ids=ids).logits, trained, atol=1e-5, rtol=0)
    assert {weight.dtype for weight in plain.parameters()} == {torch.float32}
    assert not [name for name in plain.state_dict() if "lora" in name or "base_layer" in name]


def test_merged_weights_are_the_base_s_plus_alpha_over_rank_times_the_adapters_product() -> None:
    """Rank 1, alpha 3: a weight of .5 with A = (1, 2, ...) and B = (10, ...) becomes .5 + 3 * 10 * 1."""
    settings = config(rank=1, alpha=3, targets=["q_proj"])
    policy = add_adapters(create(settings), settings)
    name = "model.layers.0.self_attn.q_proj"
    layer = policy.model.get_submodule(name)
    with torch.no_grad():
        layer.get_parameter("base_layer.weight")[0, :2] = torch.tensor([0.5, 0.25])
        layer.get_parameter("lora_A.adapter.weight")[0, :2] = torch.tensor([1.0, 2.0])
        layer.get_parameter("lora_B.adapter.weight")[0, 0] = 10.0
    assert lora.merged(policy.model)[f"{name}.weight"][0, :2].tolist() == [30.5, 60.25]


def test_a_bfloat16_sampler_sees_an_update_that_merged_weights_would_round_away() -> None:
    """C12: bfloat16 has steps of 1/256 at .5, so .5 + .001 is .5; most pretrained weights are bfloat16's own."""
    settings = config("bfloat16")
    made = create(settings)
    for weight in made.model.parameters():
        weight.data = weight.to(torch.bfloat16).float()
    policy = add_adapters(made, settings)
    before = logits(policy)
    for name, layer in policy.model.named_modules():
        if name.endswith("lora_B.adapter"):
            smallest = float(policy.model.get_parameter(f"{name[:-15]}.base_layer.weight").abs().quantile(0.2))
            assert isinstance(layer, nn.Linear)
            nn.init.constant_(layer.weight, smallest * 2e-4)
    rounded = {name: weight.to(torch.bfloat16) for name, weight in lora.merged(policy.model).items()}
    unchanged = [
        float((rounded[name.replace(".base_layer", "")] == weight.to(torch.bfloat16)).float().mean())
        for name, weight in policy.model.named_parameters()
        if name.endswith("base_layer.weight")
    ]
    assert min(unchanged) > 0.7
    assert not torch.equal(logits(policy), before)


def test_frozen_weights_in_bfloat16_change_no_number(tmp_path: Path) -> None:
    """They are what autocast would make of them; what learns, and what autocast leaves alone, stays in float32."""
    settings = config("bfloat16")
    base = start(tmp_path, settings)
    held = load(base, settings, base)
    wide = add_adapters(create(settings), settings)
    found = {name: weight.dtype for name, weight in held.model.named_parameters()}
    layers = {dtype for name, dtype in found.items() if "base_layer" in name or "lm_head" in name}
    others = {dtype for name, dtype in found.items() if not ("base_layer" in name or "lm_head" in name)}
    assert (layers, others) == ({torch.bfloat16}, {torch.float32})
    assert torch.equal(logits(held), logits(wide))
    improve(held, settings)
    improve(wide, settings)
    assert same(
        {name: weight for name, weight in weights(held).items() if ".lora_" in name},
        {name: weight for name, weight in weights(wide).items() if ".lora_" in name},
    )


def test_only_adapters_and_the_critic_have_an_optimizer_s_state() -> None:
    """Rank 4, in two layers, on four matrices of 16 x 16 and three of 16 x 48: 2 * 4 * (4 * 32 + 3 * 64) weights."""
    settings = config()
    policy = add_adapters(create(settings), settings)
    assert sum(one.numel() for one in policy.trained) == 2560
    learner = make_learner(policy, settings)
    assert [one for group in learner.optimizer.param_groups for one in group["params"]] == policy.trained
    plain = create(settings)
    assert len(plain.trained) == len(list(plain.model.parameters()))


def test_the_same_seed_makes_the_same_adapters_whatever_was_drawn_before() -> None:
    settings = config()
    one = weights(add_adapters(create(settings), settings))
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    two = weights(add_adapters(create(settings), settings))
    assert torch.equal(torch.rand(1), expected)
    assert same(one, two)


def test_adapter_files_are_the_same_bytes_every_time_and_name_no_place(tmp_path: Path) -> None:
    settings = config()
    policy = add_adapters(create(settings), settings)
    folders = [saved(policy, tmp_path / name) / "adapter" for name in ("a", "b")]
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        one, other = ((folder / name).read_bytes() for folder in folders)
        assert one == other
    written = json.loads((folders[0] / "adapter_config.json").read_text())
    assert written["target_modules"] == sorted(written["target_modules"])
    assert (written["r"], written["lora_alpha"], written["lora_dropout"]) == (4, 32, 0)
    assert str(tmp_path) not in json.dumps(written)


@pytest.mark.parametrize("target", ["q_prjo", "embed_tokens", "lm_head", "input_layernorm", "proj"])
def test_a_target_that_cannot_have_an_adapter_is_a_config_error(target: str) -> None:
    settings = config(targets=["v_proj", target])
    with pytest.raises(ConfigError, match=r"model\.lora\.targets") as caught:
        add_adapters(create(settings), settings)
    assert "\n" not in str(caught.value)


def test_targets_are_the_layers_that_learn() -> None:
    settings = config(targets=["v_proj"])
    policy = add_adapters(create(settings), settings)
    names = [name for name, one in policy.model.named_parameters() if one.requires_grad]
    assert len(names) == 4
    assert all(".v_proj.lora_" in name for name in names)


def test_adapters_of_another_rank_or_none_are_a_checkpoint_error(tmp_path: Path) -> None:
    base = start(tmp_path, config())
    with pytest.raises(CheckpointError, match=r"model\.lora"):
        load(base, config(rank=2), base)
    (base / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no adapters"):
        load(base, config(), base)


def test_lora_is_off_where_the_section_is_empty_or_null() -> None:
    for section in ({}, None):
        assert parse({"model": {"lora": section}}, "f").model.lora == LoraConfig()
    assert LoraConfig().rank == 0
