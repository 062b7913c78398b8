"""The policy: scored on action tokens only, at the state before them, saved and loaded as it was (A8, A13, C11)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from scripted import SMALL
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from agent_r1 import tiny
from agent_r1.config import Config, parse
from agent_r1.errors import CheckpointError, ConfigError
from agent_r1.model import Policy, create, load, pad, resolve_device
from agent_r1.sections import TinyConfig

CONFIG = parse({"model": SMALL}, "test")
IDS = torch.tensor([[5, 6, 7, 8, 9], [40, 41, 42, 0, 0], [100, 101, 0, 0, 0]])
MASK = torch.tensor([[0, 1, 0, 0, 1], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]], dtype=torch.bool)


def plain(policy: Policy, ids: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [T, V] after each place of one row, by the model's own forward pass."""
    with torch.no_grad():
        return (policy.model(input_ids=ids[None]).logits[0].double() / temperature).log_softmax(-1)


def nudged(policy: Policy) -> Policy:
    """The policy with a critic that says something."""
    torch.nn.init.normal_(policy.value_head.outer.weight, generator=torch.Generator().manual_seed(0))
    return policy


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_action_tokens_are_scored_by_what_stands_before_them(policy: Policy, temperature: float) -> None:
    """A13, and C11: rows are padded right, their scores are those of the row alone."""
    scores = policy.score(IDS, MASK, temperature)
    for row, length in enumerate((5, 3, 2)):
        after = plain(policy, IDS[row, :length], temperature)
        for place in MASK[row].nonzero()[:, 0].tolist():
            before = after[place - 1]
            assert float(scores.logprobs[row, place].detach()) == pytest.approx(
                float(before[IDS[row, place]]), abs=1e-4
            )
            entropy = -float((before.exp() * before).sum())
            assert float(scores.entropy[row, place].detach()) == pytest.approx(entropy, abs=1e-4)


def test_values_are_of_the_hidden_state_before_the_action() -> None:
    policy = nudged(create(CONFIG))
    scores = policy.score(IDS, MASK, 1.0)
    with torch.no_grad():
        hidden = policy.model.base_model(input_ids=IDS[:1]).last_hidden_state
        expected = policy.value_head(hidden[0, [0, 3]])
    assert expected.abs().min() > 1e-3
    torch.testing.assert_close(scores.values[0, [1, 4]].detach(), expected, atol=1e-5, rtol=0)


def test_scores_are_zero_outside_the_mask(policy: Policy) -> None:
    for part in policy.score(IDS, MASK, 1.0):
        assert part.shape == IDS.shape
        assert part[~MASK].abs().max() == 0


def test_given_tokens_are_seen_though_they_are_not_scored(policy: Policy) -> None:
    """A8: the mask is the loss's, not attention's."""
    other = IDS.clone()
    other[0, 2] = 300
    before, after = policy.score(IDS, MASK, 1.0).logprobs, policy.score(other, MASK, 1.0).logprobs
    assert float(before[0, 1].detach()) == pytest.approx(float(after[0, 1].detach()), abs=1e-6)
    assert abs(float(before[0, 4].detach() - after[0, 4].detach())) > 1e-3


def test_what_comes_after_or_pads_a_row_changes_nothing(policy: Policy) -> None:
    other = IDS.clone()
    other[1, 3:] = 77
    torch.testing.assert_close(policy.score(IDS, MASK, 1.0), policy.score(other, MASK, 1.0), atol=1e-6, rtol=0)


def test_a_batch_without_action_tokens_is_scored_with_zeros(policy: Policy) -> None:
    scores = policy.score(IDS, torch.zeros_like(MASK), 1.0)
    assert all(float(part.detach().abs().max()) == 0.0 for part in scores)


def test_the_first_token_of_a_segment_cannot_be_an_action(policy: Policy) -> None:
    with pytest.raises(ValueError, match="first token"):
        policy.score(IDS, torch.ones_like(MASK), 1.0)


def test_the_critic_s_gradient_stops_before_the_policy() -> None:
    policy = nudged(create(CONFIG))
    policy.score(IDS, MASK, 1.0).values.sum().backward()
    assert all(weight.grad is None for weight in policy.model.parameters())
    assert all(weight.grad is not None for weight in policy.value_head.parameters())


def test_a_new_critic_says_zero(policy: Policy) -> None:
    assert float(policy.score(IDS, MASK, 1.0).values.detach().abs().max()) == 0.0


def test_the_same_seed_makes_the_same_policy_whatever_was_drawn_before() -> None:
    torch.rand(7)
    one, two, other = create(CONFIG), create(CONFIG), create(parse({"model": SMALL, "seed": 1}, "test"))
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, two.model.state_dict()[name])
    for name, weight in one.value_head.state_dict().items():
        assert torch.equal(weight, two.value_head.state_dict()[name])
    assert not torch.equal(one.output_layer.state_dict()["weight"], other.output_layer.state_dict()["weight"])


def test_making_a_policy_leaves_torch_s_own_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    create(CONFIG)
    assert torch.equal(torch.rand(1), expected)


def test_a_saved_policy_loads_as_it_was(tmp_path: Path) -> None:
    made = nudged(create(CONFIG))
    made.save(tmp_path)
    again = load(tmp_path, CONFIG)
    torch.testing.assert_close(again.score(IDS, MASK, 1.0), made.score(IDS, MASK, 1.0), atol=0, rtol=0)
    assert again.tokenizer.get_vocab() == made.tokenizer.get_vocab()
    assert again.tokenizer.chat_template == made.tokenizer.chat_template


def test_a_saved_policy_is_a_plain_hugging_face_folder(tmp_path: Path) -> None:
    made = create(CONFIG)
    made.save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(str(tmp_path / "policy"))
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "policy"))
    with torch.no_grad():
        assert torch.equal(model(input_ids=IDS[:1]).logits, made.model(input_ids=IDS[:1]).logits)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert text == "<|im_start|>user\nhi<|im_end|>\n"
    assert not list(tmp_path.rglob("*.bin"))


def test_a_checkpoint_s_bytes_do_not_say_whether_the_hub_could_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def saved(name: str, offline: bool) -> str:
        monkeypatch.setattr("transformers.tokenization_utils_base.is_offline_mode", lambda: offline)
        policy = load(tmp_path / "first", CONFIG)
        (tmp_path / name).mkdir()
        policy.save(tmp_path / name)
        return (tmp_path / name / "policy" / "tokenizer_config.json").read_text()

    (tmp_path / "first").mkdir()
    create(CONFIG).save(tmp_path / "first")
    assert saved("offline", True) == saved("online", False)


def test_a_folder_without_a_model_is_a_checkpoint_error(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        load(tmp_path, CONFIG)


def test_a_critic_of_another_width_is_a_checkpoint_error(tmp_path: Path) -> None:
    create(CONFIG).save(tmp_path)
    other = create(parse({"model": {"path": "tiny", "tiny": {"layers": 1, "width": 32, "heads": 2}}}, "test"))
    (tmp_path / "other").mkdir()
    other.save(tmp_path / "other")
    (tmp_path / "other" / "value_head.safetensors").rename(tmp_path / "value_head.safetensors")
    with pytest.raises(CheckpointError, match="value head"):
        load(tmp_path, CONFIG)


@pytest.mark.parametrize("name", ["policy/model.safetensors", "value_head.safetensors"])
def test_truncated_weights_are_a_checkpoint_error(tmp_path: Path, name: str) -> None:
    create(CONFIG).save(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=str(tmp_path)) as caught:
        load(tmp_path, CONFIG)
    assert "\n" not in str(caught.value)


def test_the_hub_s_retries_are_no_warnings() -> None:
    assert logging.getLogger("huggingface_hub.utils._http").getEffectiveLevel() == logging.ERROR


def test_a_tokenizer_with_more_tokens_than_the_model_is_a_checkpoint_error(tmp_path: Path) -> None:
    small = LlamaForCausalLM(
        LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    )
    small.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="760"):
        create(parse({"model": {"path": str(tmp_path)}}, "test"))


def test_a_model_from_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    made = tiny.model(TinyConfig(layers=1, width=16, heads=2), tiny.tokenizer(), seed=5)
    made.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    policy = create(parse({"model": {"path": str(tmp_path)}}, "test"))
    with torch.no_grad():
        assert torch.equal(policy.model(input_ids=IDS[:1]).logits, made(input_ids=IDS[:1]).logits)


def test_an_absent_device_is_a_config_error() -> None:
    if not torch.cuda.is_available():
        assert resolve_device("auto").type == "cpu"
        with pytest.raises(ConfigError, match="cuda:1"):
            resolve_device("cuda:1")
    assert resolve_device("cpu").type == "cpu"


def test_a_bfloat16_forward_pass_keeps_float32_weights_and_scores() -> None:
    config = Config.model_validate({"model": {**SMALL, "dtype": "bfloat16"}})
    policy = create(config)
    assert all(weight.dtype == torch.float32 for weight in policy.model.parameters())
    scores, exact = policy.score(IDS, MASK, 1.0), create(CONFIG).score(IDS, MASK, 1.0)
    assert {part.dtype for part in scores} == {torch.float32}
    assert not torch.equal(scores.logprobs, exact.logprobs)
    torch.testing.assert_close(scores.logprobs, exact.logprobs, atol=0.2, rtol=0)


def test_rows_are_padded_on_the_right() -> None:
    assert pad([[1, 2], [], [3]], fill=9, dtype=torch.long).tolist() == [[1, 2], [9, 9], [3, 9]]
    assert pad([]).shape == (0, 0)


def test_the_tiny_tokenizer_gives_every_text_back() -> None:
    tokenizer = tiny.tokenizer()
    for text in ("Zürich", "日本 \t\n  x", '{"a": "<0x41> <unk>"}', "<tool_call>\n{}\n</tool_call>", " leading", ""):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text


def test_a_tiny_name_is_its_two_halves_wherever_it_stands() -> None:
    tokenizer = tiny.tokenizer()
    halves = [tokenizer.convert_tokens_to_ids(half) for half in ("Bel", "dan")]
    for text in ("Beldan", "\nBeldan<|im_end|>", '"entity": "Beldan"}', "of Beldan?"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert any(ids[place : place + 2] == halves for place in range(len(ids)))
