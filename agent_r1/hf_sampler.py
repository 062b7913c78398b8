"""The embedded sampler: plain torch and transformers, a batch whose key/value cache survives tool turns.

The cache is a block of columns. A row that has nothing to say in a column leaves a hole, which the mask hides; between
turns the holes are squeezed out. Positions are each row's own, so holes change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from agent_r1.model import Policy
from agent_r1.sampler import Action, ActionRequest
from agent_r1.seeds import uniforms

ROOM = 64
"""Columns of cache that are made ahead."""


class RoomyLayer(DynamicLayer):
    """A cache layer with room for columns to come: transformers' own copies all of it for each token.

    A pass may be of the first rows alone; the others are left with a hole. Room is [B, columns, heads, size], and what
    no pass has written holds any finite number: a NaN would shine through the mask.
    """

    _room: tuple[Tensor, Tensor] | None = None
    _width = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append [B, heads, T, size] and return those rows, as views of the room."""
        del args, kwargs
        rows, past = key_states.shape[0], self._width
        self._width += key_states.shape[2]
        self._room = _with_room(self._room, (key_states, value_states), self._width)
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[:rows, past : self._width] = states.transpose(1, 2)
        keys, values = (room[:rows, : self._width].transpose(1, 2) for room in self._room)
        return keys, values

    def select(self, rows_B: Tensor, columns_B_K: Tensor) -> None:
        """Keep these rows, in this order, and of each of them these columns."""
        assert self._room is not None
        places_B_K = rows_B[:, None] * self._room[0].shape[1] + columns_B_K
        places = torch.nn.functional.pad(places_B_K, (0, ROOM))  # any numbers, as room
        keys, values = (room.flatten(0, 1)[places.to(room.device)] for room in self._room)
        self._room, self._width = (keys, values), columns_B_K.shape[1]

    def get_seq_length(self) -> int:
        """How many columns there are."""
        return self._width


def _with_room(room: tuple[Tensor, Tensor] | None, coming: tuple[Tensor, Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Room for `width` columns and more, beginning with what is there."""
    if room is not None and room[0].shape[1] >= width:
        return room
    rows = coming[0].shape[0] if room is None else room[0].shape[0]
    keys, values = (each.new_zeros(rows, width + ROOM, each.shape[1], each.shape[3]) for each in coming)
    if room is not None:
        keys[:, : room[0].shape[1]], values[:, : room[0].shape[1]] = room
    return keys, values


def _empty_cache() -> Cache:
    return Cache(layer_class_to_replicate=RoomyLayer)


@dataclass(frozen=True, slots=True)
class EmbeddedSampler:
    """Samples from a policy in this process. `heard` is told each row's place and token as soon as it is sampled."""

    policy: Policy
    heard: Callable[[int, int], None] | None = None

    def session(
        self, *, end_ids: tuple[int, ...], temperature: float, greedy: bool, max_new_tokens: int
    ) -> EmbeddedSession:
        """See Sampler.session."""
        return EmbeddedSession(self.policy, end_ids, temperature, greedy, max_new_tokens, self.heard)


@dataclass(slots=True)
class EmbeddedSession:
    """See Session. Rows are `rows`, in the order of the cache's batch axis."""

    policy: Policy
    end_ids: tuple[int, ...]
    temperature: float
    greedy: bool
    max_new_tokens: int
    heard: Callable[[int, int], None] | None = None
    rows: list[int] = field(default_factory=list)
    pending: dict[int, int] = field(default_factory=dict)  # last sampled token of a row, not yet in the cache
    cache: Cache = field(default_factory=_empty_cache)
    held_B_K: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.bool))
    position_B: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @torch.no_grad()  # in inference mode autocast would keep no weights that it has cast
    def act(self, requests: Sequence[ActionRequest]) -> list[Action]:
        """See Session.act."""
        if not requests:
            return []
        self._select(requests)
        new = [list(r.new_ids) if r.restart else [self.pending[r.row], *r.new_ids] for r in requests]
        noise_B_N = (
            torch.from_numpy(np.stack([uniforms(r.seed, self.max_new_tokens) for r in requests]))
            if not self.greedy
            else None
        )
        with self.policy.autocast():  # around all steps: weights are then cast once, not for each token
            return self._actions(requests, *self._decode(new, noise_B_N))

    def _decode(self, new: Sequence[Sequence[int]], noise_B_N: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [B, N], their log-probabilities, and how many of each row count.

        Rows whose action has ended go behind the others, and no pass computes them any more.
        """
        token_B_N = torch.zeros(len(new), self.max_new_tokens, dtype=torch.long)
        logprob_B_N = torch.zeros(len(new), self.max_new_tokens)
        length_B = torch.zeros(len(new), dtype=torch.long)
        ends = torch.tensor(self.end_ids)
        row_A, alive_A = torch.arange(len(new)), torch.ones(len(new), dtype=torch.bool)  # the rows that are computed
        logits_A_V = self._prefill(new)
        for step in range(self.max_new_tokens):
            token_A, logprob_A = self._choose(logits_A_V, None if noise_B_N is None else noise_B_N[row_A, step])
            token_B_N[row_A, step], logprob_B_N[row_A, step] = token_A, logprob_A
            length_B[row_A] += alive_A
            if self.heard is not None:
                for place, token in zip(row_A[alive_A].tolist(), token_A[alive_A].tolist(), strict=True):
                    self.heard(place, token)
            alive_A = alive_A & ~torch.isin(token_A, ends)
            alive = int(alive_A.sum())
            if alive == 0 or step + 1 == self.max_new_tokens:
                break
            if 2 * alive <= len(row_A):
                first_A = alive_A.nonzero()[:, 0]
                self._reorder(torch.cat([first_A, (~alive_A).nonzero()[:, 0]]))
                row_A, token_A, alive_A = row_A[first_A], token_A[first_A], alive_A[first_A]
            logits_A_V = self._forward(token_A[:, None], alive_A[:, None])
        return token_B_N, logprob_B_N, length_B

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
        """Feed each row's new tokens and return the logits after the last. Rows that begin alike are computed once."""
        distinct = list(dict.fromkeys(map(tuple, new)))
        if self.held_B_K.shape[1] or len(distinct) == len(new):
            return self._feed(new)
        self.held_B_K, self.position_B = self.held_B_K[: len(distinct)], self.position_B[: len(distinct)]
        logits_U_V = self._feed(distinct)
        places = {ids: place for place, ids in enumerate(distinct)}
        order = torch.tensor([places[tuple(ids)] for ids in new])
        self.held_B_K, self.position_B = self.held_B_K[order], self.position_B[order]
        self._gather(order, torch.arange(self.held_B_K.shape[1]).expand(len(new), -1))
        return logits_U_V[order.to(logits_U_V.device)]

    def _feed(self, new: Sequence[Sequence[int]]) -> Tensor:
        """The same for rows as they are, padded on the left."""
        width = max(len(ids) for ids in new)
        ids_B_T = torch.zeros(len(new), width, dtype=torch.long)
        real_B_T = torch.zeros(len(new), width, dtype=torch.bool)
        for index, ids in enumerate(new):
            ids_B_T[index, width - len(ids) :] = torch.tensor(ids)
            real_B_T[index, width - len(ids) :] = True
        return self._forward(ids_B_T, real_B_T)

    def _forward(self, ids_A_T: Tensor, real_A_T: Tensor) -> Tensor:
        """Append columns to the cache, of its first rows, and return their logits [A, V] after the last one."""
        (rows, width), past = ids_A_T.shape, self.held_B_K.shape[1]
        steps = real_A_T.long().cumsum(dim=1)
        positions_A_T = (self.position_B[:rows, None] + steps - 1).clamp(min=0)
        self.position_B[:rows] += steps[:, -1]
        self.held_B_K = torch.nn.functional.pad(self.held_B_K, (0, width))
        self.held_B_K[:rows, past:] = real_A_T
        causal_T_K = torch.ones(width, past + width, dtype=torch.bool).tril(past)
        itself_T_K = torch.zeros(width, past + width, dtype=torch.bool)
        itself_T_K[range(width), range(past, past + width)] = True  # a hole sees itself, so that no softmax is empty
        mask_A_1_T_K = ((self.held_B_K[:rows, None, :] & causal_T_K) | itself_T_K)[:, None]
        return self.policy.next_logits(ids_A_T, positions_A_T, mask_A_1_T_K, self.cache)

    def _select(self, requests: Sequence[ActionRequest]) -> None:
        """Keep the requested rows in their order, forget restarted ones' past, and squeeze holes out of the cache."""
        if all(request.restart for request in requests):
            self.cache = _empty_cache()
            self.held_B_K = torch.zeros(len(requests), 0, dtype=torch.bool)
            self.position_B = torch.zeros(len(requests), dtype=torch.long)
        else:
            places = {row: index for index, row in enumerate(self.rows)}
            order = torch.tensor([0 if request.restart else places[request.row] for request in requests])
            kept = torch.tensor([not request.restart for request in requests])
            self.held_B_K = self.held_B_K[order] & kept[:, None]
            self.position_B = torch.where(kept, self.position_B[order], 0)
            past, width = self.held_B_K.shape[1], int(self.held_B_K.sum(dim=1).max())
            if width < past or self.rows != [request.row for request in requests]:
                columns_B_K = self.held_B_K.to(torch.int8).argsort(dim=1, stable=True)[:, past - width :]
                self.held_B_K = self.held_B_K.gather(1, columns_B_K)
                self._gather(order, columns_B_K)
        self.rows = [request.row for request in requests]

    def _reorder(self, order: Tensor) -> None:
        """Put the first rows in this order; those behind them stay."""
        order = torch.cat([order, torch.arange(len(order), len(self.rows))])
        self.rows = [self.rows[index] for index in order.tolist()]
        self.held_B_K, self.position_B = self.held_B_K[order], self.position_B[order]
        self._gather(order, torch.arange(self.held_B_K.shape[1]).expand(len(order), -1))

    def _gather(self, order: Tensor, columns_B_K: Tensor) -> None:
        """Make the cache of these of its rows, of each of them these columns."""
        for layer in self.cache.layers:
            assert isinstance(layer, RoomyLayer)
            layer.select(order, columns_B_K)
