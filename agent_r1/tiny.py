"""A policy from nothing: its tokenizer, made of the world's words, and a small randomly initialised Llama.

Both are ordinary Hugging Face objects: saved, loaded and served like any model. Teaching it is left to warm_start.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agent_r1.sections import TinyConfig
from agent_r1.seeds import derive
from agent_r1.world.names import PREFIXES, SUFFIXES
from agent_r1.world.relations import BRIDGES, EARLIER, TABLES, YEARS

SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<answer>", "</answer>", "<think>", "</think>")
_JSON = ('{"name": "', '", "arguments": {"', '": "', '", "', '"}}', '": ', ', "', "}}")
_WORDS = (
    "system user assistant tool tools: search sql lookup calculator entity relation query expression "
    "What is the of a and have same Do or who was yes no nothing found error: "
    "SELECT FROM WHERE name malformed call unknown"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Its own tokenizer: whole words of the world, name halves, JSON scaffolding, characters, bytes for the rest.

    A text is cut into as few pieces as possible, and any text survives encoding and decoding unchanged.
    """
    pieces = list(dict.fromkeys(_pieces()))
    vocabulary = [("<unk>", -100.0), *((piece, -1.0) for piece in pieces)]
    vocabulary += [(f"<0x{byte:02X}>", -10.0) for byte in range(256)]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in TAGS])
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|pad|>", eos_token="<|im_end|>", clean_up_tokenization_spaces=False
    )
    made.chat_template = files("agent_r1.templates").joinpath("tiny.jinja").read_text(encoding="utf-8")
    return made


def _pieces() -> Iterator[str]:
    yield from PREFIXES
    yield from SUFFIXES
    yield from _JSON
    yield from (chr(code) for code in range(32, 127))
    yield "\n"
    said = [_WORDS, *(beginning for _, beginning in EARLIER.values()), *(beginning for _, _, beginning in BRIDGES)]
    for kind, relations in TABLES.items():
        said.append(kind)
        for relation in relations:
            yield relation.name
            said.extend(relation.phrasings)
    for word in re.findall(r"\S+", " ".join(said)):
        yield word
        yield " " + word
    yield from (str(year) for year in YEARS)  # one token, or a very small model mixes up the digits of two


def model(shape: TinyConfig, tokens: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """A Llama of the given shape with seeded random weights."""
    pad, end = tokens.pad_token_id, tokens.eos_token_id
    assert isinstance(pad, int)
    assert isinstance(end, int)
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=shape.width,
        intermediate_size=shape.width * 3,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        initializer_range=shape.initializer,
        tie_word_embeddings=False,
        pad_token_id=pad,
        bos_token_id=None,
        eos_token_id=end,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "model"))
        return LlamaForCausalLM(config)
