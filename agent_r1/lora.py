"""LoRA (arXiv 2106.09685): adapters beside frozen linear layers. Made, switched off, merged, saved, loaded.

The model keeps its class and its layers' names, so scoring and sampling (model.py, hf_sampler.py) know nothing of it.
There is no dropout: the ratio compares with the network that sampled.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import peft
import torch
from peft.tuners.lora import Linear
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from agent_r1.errors import CheckpointError, ConfigError
from agent_r1.sections import LoraConfig

warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")  # peft asks transformers for it

NAME = "adapter"
WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."  # what peft's own files put before the names of a model's layers


def add(model: PreTrainedModel, settings: LoraConfig, seed: int) -> None:
    """Freeze the model and put seeded adapters beside its layers, which change nothing yet.

    ConfigError where `settings.targets` names no layer, or one that cannot have an adapter.
    """
    for target in settings.targets:
        if not any(f".{name}".endswith(f".{target}") for name, _ in model.named_modules()):
            raise ConfigError(f"model.lora.targets: the model has no layer named {target!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            peft.inject_adapter_in_model(_peft_config(settings), model, NAME)
        except ValueError as error:
            raise ConfigError(f"model.lora.targets: {str(error).splitlines()[0]}") from error
    others = [name for name, module in _adapted(model) if not isinstance(module, Linear)]
    if others or isinstance(model.get_output_embeddings(), Linear):
        raise ConfigError(f"model.lora.targets: only linear layers before the output layer, got {settings.targets}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(f".{NAME}." in name)


@contextmanager
def switched_off(model: PreTrainedModel) -> Iterator[None]:
    """The model as it was before its adapters."""
    for _, layer in _adapted(model):
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for _, layer in _adapted(model):
            layer.enable_adapters(True)


def hold_frozen(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Keep the frozen weights of linear layers in the dtype that autocast gives them anyway: no number changes.

    Other layers stay as they are, and so does an output layer that is tied to the embeddings.
    """
    tied = model.get_input_embeddings().get_parameter("weight")
    for module in model.modules():
        if type(module) is nn.Linear and module.weight is not tied and not module.weight.requires_grad:
            module.to(dtype)


@torch.no_grad()
def merged(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights of a plain model that does what this one does: float32, on the CPU, named as before the adapters.

    The sums are rounded, which an adapter's training must not go through: that goes on from `save`'s files.
    """
    layers = dict(_adapted(model))
    kept = model.state_dict().keys()
    found = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):  # each once, though names are tied
        if name not in kept or f".{NAME}." in name:
            continue
        plain = name.replace(".base_layer.", ".")
        found[plain] = tensor.detach().cpu().float() if tensor.is_floating_point() else tensor.cpu()
        layer = layers.get(name.removesuffix(".base_layer.weight"))
        if layer is not None and name.endswith(".base_layer.weight"):
            assert isinstance(layer, Linear)
            found[plain] = found[plain] + layer.get_delta_weight(NAME).cpu()
    return found


def save(model: PreTrainedModel, folder: Path, settings: LoraConfig) -> None:
    """Write the adapters as peft does, which vLLM and `peft.PeftModel.from_pretrained` read."""
    folder.mkdir()
    save_file({name: weight.detach().cpu().contiguous() for name, weight in _weights(model).items()}, folder / WEIGHTS)
    written = _peft_config(settings).to_dict()
    targets = {name.rpartition(".")[2] for name, _ in _adapted(model)}
    written |= {"target_modules": sorted(targets), "inference_mode": True}
    (folder / SETTINGS).write_text(json.dumps(written, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@torch.no_grad()
def load(model: PreTrainedModel, folder: Path) -> None:
    """Give the adapters the weights that `save` wrote, bit for bit; CheckpointError where they do not fit."""
    expected = _weights(model)
    try:
        found = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: no adapters could be loaded: {str(error).splitlines()[0]}") from error
    if {name: one.shape for name, one in found.items()} != {name: one.shape for name, one in expected.items()}:
        raise CheckpointError(f"{folder}: its adapters are not those of model.lora, or of another model")
    for name, weight in expected.items():
        weight.copy_(found[name])


def _peft_config(settings: LoraConfig) -> peft.LoraConfig:
    return peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType] - an int for peft, which only divides it
        target_modules=list(settings.targets) or "all-linear",
    )


def _adapted(model: PreTrainedModel) -> Iterator[tuple[str, peft.tuners.lora.LoraLayer]]:
    for name, module in model.named_modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            yield name, module


def _weights(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The adapters' weights by the names that they have in peft's files."""
    return {
        PREFIX + name.replace(f".{NAME}.", "."): parameter
        for name, parameter in model.named_parameters()
        if f".{NAME}." in name
    }
