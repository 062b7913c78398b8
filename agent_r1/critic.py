"""The critic: a head on the policy's hidden states, and how it learns what was earned from there on.

It learns apart from the policy, in steps of its own: as many as the policy takes are too few to tell states apart, and
then late updates are noise. What states and returns are is left to model.py and credit.py.
Tensor axes: N tokens, D hidden size.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

TOKENS_A_STEP = 1024


class ValueHead(nn.Module):
    """A critic on the policy's last hidden states, through which no gradient reaches the policy."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [...]."""
        return self.outer(torch.tanh(self.inner(hidden.detach().float())))[..., 0]


def teach(
    head: ValueHead,
    optimizer: torch.optim.Optimizer,
    states_N_D: Tensor,
    returns_N: Tensor,
    *,
    steps: int,
    random: np.random.Generator,
    max_grad_norm: float,
) -> int:
    """Steps on half the mean squared error to the returns, each on a seeded draw of tokens; none without a token.

    A step whose gradient is not finite is not taken: how many those were.
    """
    if not len(states_N_D):
        return 0
    skipped = 0
    for _ in range(steps):
        some = torch.from_numpy(random.integers(len(states_N_D), size=TOKENS_A_STEP)).to(states_N_D.device)
        loss = (head(states_N_D[some]) - returns_N[some]).pow(2).mean() / 2
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(head.parameters(), max_grad_norm))
        if math.isfinite(norm):
            optimizer.step()
        else:
            skipped += 1
    return skipped
