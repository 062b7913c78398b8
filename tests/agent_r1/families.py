"""Small tokenizers of real model families: their chat templates and special tokens, our merges; and random models.

Where the templates come from is told in templates/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agent_r1 import tiny
from agent_r1.chat import give_template

CHATML = files("agent_r1.templates").joinpath("chatml.jinja").read_text(encoding="utf-8")
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2.5 cuts text before its merges; Llama 3 does nearly the same."""
IM = ("<|im_start|>", "<|im_end|>")
HEADERS = ("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>")
QWEN_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def template(name: str) -> str:
    """A family's chat template as it is published."""
    return (Path(__file__).parent / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def _merges() -> str:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    said = [template("qwen2.5-instruct"), template("llama-3.2-instruct"), "Where was Anna born?\n" * 9, "It was.\n" * 9]
    backend.train_from_iterator(said, trainer)
    return backend.to_str()


def byte_level(
    chat_template: str | None, special: Sequence[str] = IM, tags: Sequence[str] = (), bos: str | None = None
) -> PreTrainedTokenizerFast:
    """A byte-level BPE with merges learned from what the tests say; the last special token ends a text."""
    backend = Tokenizer.from_str(_merges())
    every = ["<|endoftext|>", *([bos] if bos else []), *special]
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in every])
    backend.add_tokens([AddedToken(text, normalized=False) for text in tags])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=special[-1], pad_token="<|endoftext|>")
    if bos:  # put before every text, as Llama's tokenizers do, though the template begins with it too
        made.bos_token = bos
        made.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, made.convert_tokens_to_ids(bos))]
        )
    made.chat_template = chat_template
    return made


def _family(
    name: str, special: Sequence[str] = IM, tags: Sequence[str] = (), bos: str | None = None
) -> PreTrainedTokenizerBase:
    made = byte_level(template(name), special, tags, bos)
    give_template(made)
    return made


def _chatml() -> PreTrainedTokenizerBase:
    made = byte_level(None)
    give_template(made)
    return made


_llama = partial(_family, special=(*HEADERS[:3], HEADERS[4], HEADERS[3]), bos="<|begin_of_text|>")
FAMILIES: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "tiny": tiny.tokenizer,
    "chatml": _chatml,
    "qwen2.5": partial(_family, "qwen2.5-instruct", tags=QWEN_TAGS),
    "qwen3": partial(_family, "qwen3", tags=(*QWEN_TAGS, "<think>", "</think>")),
    "llama3.1": partial(_llama, "llama-3.1-instruct"),
    "llama3.2": partial(_llama, "llama-3.2-instruct"),
    "hermes3": partial(_family, "hermes-3", bos="<|begin_of_text|>"),
    "smollm2": partial(_family, "smollm2-instruct"),
    "gemma2": partial(_family, "gemma-2-it", special=("<start_of_turn>", "<end_of_turn>"), bos="<bos>"),
}
"""A family's tokenizer as a policy has it: with a template that knows tools."""
ENDS = dict.fromkeys(FAMILIES, "<|im_end|>") | {
    "llama3.1": "<|eot_id|>",
    "llama3.2": "<|eot_id|>",
    "gemma2": "<end_of_turn>",
}
SHAPE = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8,
    "num_key_value_heads": 1, "max_position_embeddings": 4096, "initializer_range": 0.3,
}  # fmt: skip
MODELS = {
    "qwen3": lambda size: Qwen3ForCausalLM(Qwen3Config(vocab_size=size, tie_word_embeddings=True, **SHAPE)),
    "llama3.2": lambda size: LlamaForCausalLM(LlamaConfig(vocab_size=size, tie_word_embeddings=True, **SHAPE)),
}


def save_model(name: str, folder: Path) -> None:
    """A family's Hugging Face folder as a user has it: a small random model, its tokenizer, its own template."""
    tokenizer = FAMILIES[name]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        MODELS[name](len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
