"""The machine's own speed limit: how fast torch multiplies matrices of a model's shapes, and the model's arithmetic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PretrainedConfig

from agent_r1.trajectory import Annotation


@dataclass(frozen=True, slots=True)
class Shape:
    """What matters of a Llama: sizes of its linear layers, and how many there are."""

    layers: int
    width: int
    inner: int
    heads: int
    key_value_heads: int
    head: int
    vocabulary: int

    @property
    def linear(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of a layer's linear maps: queries, keys, values, output, gate, up, down."""
        attention, kept = self.heads * self.head, self.key_value_heads * self.head
        width, inner = self.width, self.inner
        return [(width, attention), *[(width, kept)] * 2, (attention, width), *[(width, inner)] * 2, (inner, width)]


def shape_of(config: PretrainedConfig) -> Shape:
    """The shape of a Llama's configuration."""
    return Shape(
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        inner=config.intermediate_size,
        heads=config.num_attention_heads,
        key_value_heads=config.num_key_value_heads,
        head=config.head_dim,
        vocabulary=config.vocab_size,
    )


def update_flop(shape: Shape, rows: Sequence[Annotation]) -> float:
    """Floating point operations that one optimizer step needs: two a weight forward, four backward.

    All layers on every real token but the last of a row, attention with as many earlier tokens as it has, the output
    layer on the chosen tokens alone. Nothing is counted for padding or for what is computed again.
    """
    weights = shape.layers * sum(inputs * outputs for inputs, outputs in shape.linear)
    lengths = [len(row.token_ids) - 1 for row in rows]
    pairs = sum(length * (length + 1) / 2 for length in lengths)
    attention = 2 * shape.layers * shape.heads * shape.head * pairs  # queries with keys, and weights with values
    output = shape.width * shape.vocabulary * sum(sum(row.action_mask) for row in rows)
    return 6.0 * (weights * sum(lengths) + attention + output)


def rate(shape: Shape, tokens: int, dtype: torch.dtype, seconds: float = 2.0) -> float:
    """Operations a second over a layer's linear maps on so many tokens, forward and backward, each for as long."""
    flop = spent = 0.0
    for inputs, outputs in set(shape.linear):
        x, weight, gradient = (
            torch.randn(size, dtype=torch.float32).to(dtype)
            for size in ((tokens, inputs), (outputs, inputs), (tokens, outputs))
        )
        share = shape.linear.count((inputs, outputs))
        for one, other in ((x, weight.T), (gradient, weight), (gradient.T, x)):
            took = _seconds(one, other, seconds / 3 / len(set(shape.linear)))
            flop += share * 2.0 * tokens * inputs * outputs
            spent += share * took
    return flop / spent


def _seconds(one: torch.Tensor, other: torch.Tensor, budget: float) -> float:
    """The shortest of the products that fit into the budget: what the machine can do."""
    best, until = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < until or best == float("inf"):
        started = time.perf_counter()
        torch.mm(one, other)
        best = min(best, time.perf_counter() - started)
    return best
