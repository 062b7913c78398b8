"""Memory for time: what the backward pass needs is computed again there instead of being kept.

Numbers and gradients stay what they are. Which pass does so is left to ppo.py; axes as in model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from agent_r1.errors import ConfigError

LOGITS_AT_ONCE = 2**26
"""Tokens times vocabulary: 256 MB in float32, of which the softmax and its gradient take several."""

again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # nothing here draws random numbers


@contextmanager
def layers(model: nn.Module) -> Iterator[None]:
    """Passes with gradients keep the inputs of the model's layers only (gradient checkpointing, arXiv 1604.06174).

    transformers' own way needs training mode, which would bring dropout. ConfigError for a model without such layers.
    """
    found = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not found:
        raise ConfigError("ppo.gradient_checkpointing: this architecture has no layers to compute again")
    for layer in found:
        layer.forward = partial(again, layer.forward)
    try:
        yield
    finally:
        for layer in found:
            del layer.forward  # the class's own is found again


def by_token(
    function: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], states_N_D: Tensor, ids_N: Tensor, vocabulary: int
) -> tuple[Tensor, Tensor]:
    """A function of each token's state and id whose logits [N, V] would be large: so many tokens at once as fit."""
    size = max(1, LOGITS_AT_ONCE // vocabulary)
    if len(ids_N) <= size:
        return function(states_N_D, ids_N)
    parts = [again(function, *part) for part in zip(states_N_D.split(size), ids_N.split(size), strict=True)]
    first_N, second_N = (torch.cat(part) for part in zip(*parts, strict=True))
    return first_N, second_N
