"""The embedded sampler: plain torch and transformers, a batch whose key/value cache survives tool turns.

The cache is a block of columns. A row that has nothing to say in a column leaves a hole, which the mask hides; between
turns the holes are squeezed out. Positions are each row's own, so holes change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from agent_r1.model import Policy
from agent_r1.sampler import Action, ActionRequest
from agent_r1.seeds import uniforms


@dataclass(frozen=True, slots=True)
class EmbeddedSampler:
    """Samples from a policy in this process."""

    policy: Policy

    def session(
        self, *, end_ids: tuple[int, ...], temperature: float, greedy: bool, max_new_tokens: int
    ) -> EmbeddedSession:
        """See Sampler.session."""
        return EmbeddedSession(self.policy, end_ids, temperature, greedy, max_new_tokens)


@dataclass(slots=True)
class EmbeddedSession:
    """See Session. Rows are `rows`, in the order of the cache's batch axis."""

    policy: Policy
    end_ids: tuple[int, ...]
    temperature: float
    greedy: bool
    max_new_tokens: int
    rows: list[int] = field(default_factory=list)
    pending: dict[int, int] = field(default_factory=dict)  # last sampled token of a row, not yet in the cache
    cache: DynamicCache = field(default_factory=DynamicCache)
    held_B_K: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.bool))
    position_B: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @torch.inference_mode()
    def act(self, requests: Sequence[ActionRequest]) -> list[Action]:
        """See Session.act."""
        if not requests:
            return []
        self._select(requests)
        new = [list(r.new_ids) if r.restart else [self.pending[r.row], *r.new_ids] for r in requests]
        logits_B_V = self._prefill(new)
        noise_B_N = (
            torch.from_numpy(np.stack([uniforms(r.seed, self.max_new_tokens) for r in requests]))
            if not self.greedy
            else None
        )
        sampled: list[Tensor] = []
        logprobs: list[Tensor] = []
        ends = torch.tensor(self.end_ids)
        alive_B = torch.ones(len(requests), dtype=torch.bool)
        lengths_B = torch.zeros(len(requests), dtype=torch.long)
        for step in range(self.max_new_tokens):
            token_B, logprob_B = self._choose(logits_B_V, None if noise_B_N is None else noise_B_N[:, step])
            sampled.append(token_B)
            logprobs.append(logprob_B)
            lengths_B += alive_B
            alive_B = alive_B & ~torch.isin(token_B, ends)
            if not alive_B.any() or step + 1 == self.max_new_tokens:
                break
            logits_B_V = self._forward(token_B[:, None], alive_B[:, None])
        return self._actions(requests, torch.stack(sampled, 1), torch.stack(logprobs, 1), lengths_B)

    def _actions(
        self, requests: Sequence[ActionRequest], token_B_N: Tensor, logprob_B_N: Tensor, lengths_B: Tensor
    ) -> list[Action]:
        actions = []
        for request, ids, values, length in zip(
            requests, token_B_N.tolist(), logprob_B_N.tolist(), lengths_B.tolist(), strict=True
        ):
            self.pending[request.row] = ids[length - 1]
            actions.append(Action(tuple(ids[:length]), tuple(values[:length]), ids[length - 1] in self.end_ids))
        return actions

    def _choose(self, logits_B_V: Tensor, noise_B: Tensor | None) -> tuple[Tensor, Tensor]:
        """A token for each row, by inverse transform of its own random number, and its log-probability."""
        logprobs_B_V = torch.log_softmax(logits_B_V.float() / self.temperature, dim=-1)
        if noise_B is None:
            token_B = logprobs_B_V.argmax(dim=-1)
        else:
            cumulative_B_V = logprobs_B_V.double().exp().cumsum(dim=-1)
            target_B = noise_B.to(cumulative_B_V.device) * cumulative_B_V[:, -1]
            token_B = torch.searchsorted(cumulative_B_V, target_B[:, None], right=True)[:, 0]
            token_B = token_B.clamp(max=logprobs_B_V.shape[1] - 1)
        return token_B.cpu(), logprobs_B_V.gather(1, token_B[:, None])[:, 0].cpu()

    def _prefill(self, new: Sequence[Sequence[int]]) -> Tensor:
        """Feed each row's new tokens, padded on the left, and return the logits after the last."""
        width = max(len(ids) for ids in new)
        ids_B_T = torch.zeros(len(new), width, dtype=torch.long)
        real_B_T = torch.zeros(len(new), width, dtype=torch.bool)
        for index, ids in enumerate(new):
            ids_B_T[index, width - len(ids) :] = torch.tensor(ids)
            real_B_T[index, width - len(ids) :] = True
        return self._forward(ids_B_T, real_B_T)

    def _forward(self, ids_B_T: Tensor, real_B_T: Tensor) -> Tensor:
        """Append columns to the cache and return the logits [B, V] after the last one."""
        steps = real_B_T.long().cumsum(dim=1)
        positions_B_T = (self.position_B[:, None] + steps - 1).clamp(min=0)
        self.position_B = self.position_B + steps[:, -1]
        past, width = self.held_B_K.shape[1], ids_B_T.shape[1]
        self.held_B_K = torch.cat([self.held_B_K, real_B_T], dim=1)
        causal_T_K = torch.ones(width, past + width, dtype=torch.bool).tril(past)
        itself_T_K = torch.zeros(width, past + width, dtype=torch.bool)
        itself_T_K[range(width), range(past, past + width)] = True  # a hole sees itself, so that no softmax is empty
        mask_B_1_T_K = ((self.held_B_K[:, None, :] & causal_T_K) | itself_T_K)[:, None]
        return self.policy.next_logits(ids_B_T, positions_B_T, mask_B_1_T_K, self.cache)

    def _select(self, requests: Sequence[ActionRequest]) -> None:
        """Keep the requested rows in their order, forget restarted ones' past, and squeeze holes out of the cache."""
        if all(request.restart for request in requests):
            self.cache = DynamicCache()
            self.held_B_K = torch.zeros(len(requests), 0, dtype=torch.bool)
            self.position_B = torch.zeros(len(requests), dtype=torch.long)
        else:
            places = {row: index for index, row in enumerate(self.rows)}
            order = torch.tensor([0 if request.restart else places[request.row] for request in requests])
            kept = torch.tensor([not request.restart for request in requests])
            held = self.held_B_K[order] & kept[:, None]
            self.position_B = torch.where(kept, self.position_B[order], 0)
            width = int(held.sum(dim=1).max())
            columns_B_K = held.to(torch.int8).argsort(dim=1, stable=True)[:, held.shape[1] - width :]
            self.held_B_K = held.gather(1, columns_B_K)
            self._squeeze(order, columns_B_K)
        self.rows = [request.row for request in requests]

    def _squeeze(self, order: Tensor, columns_B_K: Tensor) -> None:
        squeezed = DynamicCache()
        device = self.policy.device
        rows_B_1, columns = order.to(device)[:, None], columns_B_K.to(device)
        for index, layer in enumerate(self.cache.layers):
            assert isinstance(layer, DynamicLayer)
            assert layer.keys is not None
            assert layer.values is not None
            keys = layer.keys.transpose(1, 2)[rows_B_1, columns].transpose(1, 2)
            values = layer.values.transpose(1, 2)[rows_B_1, columns].transpose(1, 2)
            squeezed.update(keys, values, index)
        self.cache = squeezed
