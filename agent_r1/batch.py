"""The update's batch: annotations as padded tensors, and trajectories as rows whose segments stand in order.

Axes: S segments, T tokens of the longest segment, B trajectories, L tokens of the longest trajectory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agent_r1.model import pad
from agent_r1.rewards import score_of
from agent_r1.sections import MaskConfig
from agent_r1.trajectory import Annotation


@dataclass(frozen=True, slots=True)
class Batch:
    """All segments of an update, sorted by trajectory and segment.

    `action_mask` is the stored one. `loss_mask` and `credit_mask` are the same, but in ablations: then every real token
    with one before it counts. `real` is False on padding.
    """

    annotations: tuple[Annotation, ...]
    ids_S_T: Tensor
    real_S_T: Tensor
    action_mask_S_T: Tensor
    loss_mask_S_T: Tensor
    credit_mask_S_T: Tensor
    logprobs_S_T: Tensor
    rewards_S_T: Tensor

    @property
    def lengths_S(self) -> Tensor:
        """Real tokens of each segment."""
        return self.real_S_T.sum(dim=1)

    @property
    def spans(self) -> list[list[tuple[int, int]]]:
        """For each trajectory its segments as (row, length), in order."""
        found: dict[str, list[tuple[int, int]]] = {}
        for row, annotation in enumerate(self.annotations):
            found.setdefault(annotation.trajectory_id, []).append((row, len(annotation.token_ids)))
        return list(found.values())

    @property
    def scores_B(self) -> Tensor:
        """The sum of each trajectory's rewards, in float64."""
        rewards = [[reward for row, _ in spans for reward in self.annotations[row].rewards] for spans in self.spans]
        return torch.tensor([score_of(each) for each in rewards], dtype=torch.float64)

    @property
    def groups_B(self) -> Tensor:
        """A number for each trajectory, the same for the attempts at one question."""
        names = [self.annotations[spans[0][0]].group for spans in self.spans]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return torch.tensor([numbers[name] for name in names], dtype=torch.long)

    def join(self, values_S_T: Tensor) -> Tensor:
        """Lay the segments of each trajectory side by side: [S, T] -> [B, L]."""
        rows = [torch.cat([values_S_T[row, :length] for row, length in spans]) for spans in self.spans]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    def split(self, values_B_L: Tensor) -> Tensor:
        """The reverse of `join`, 0 on padding."""
        values_S_T = torch.zeros(self.ids_S_T.shape, dtype=values_B_L.dtype)
        for trajectory, spans in zip(values_B_L, self.spans, strict=True):
            start = 0
            for row, length in spans:
                values_S_T[row, :length] = trajectory[start : start + length]
                start += length
        return values_S_T


def make_batch(annotations: Sequence[Annotation], masks: MaskConfig) -> Batch:
    """Pad the annotations; ValueError where the lists of a row differ in length."""
    rows = sorted(annotations, key=lambda row: (row.trajectory_id, row.segment))
    for row in rows:
        lengths = {len(row.token_ids), len(row.action_mask), len(row.logprobs), len(row.rewards)}
        if len(lengths) > 1:
            raise ValueError(f"{row.trajectory_id} segment {row.segment}: its lists have lengths {sorted(lengths)}")
    real = pad([[True] * len(row.token_ids) for row in rows], dtype=torch.bool)
    action_mask = pad([row.action_mask for row in rows], dtype=torch.bool)
    everything = real.clone()
    everything[:, :1] = False
    return Batch(
        annotations=tuple(rows),
        ids_S_T=pad([row.token_ids for row in rows], dtype=torch.long),
        real_S_T=real,
        action_mask_S_T=action_mask,
        loss_mask_S_T=action_mask if masks.loss else everything,
        credit_mask_S_T=action_mask if masks.advantages else everything,
        logprobs_S_T=pad([row.logprobs for row in rows], dtype=torch.float32),
        rewards_S_T=pad([row.rewards for row in rows], dtype=torch.float32),
    )
