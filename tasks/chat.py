"""A policy that answers one question at a time, heard while it does: the rollout of training, its tools, one attempt.

What is heard is shown by the caller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from agent_r1.config import Config
from agent_r1.dataset import Split
from agent_r1.environments import Environments
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.questions.records import Question
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.sampler import Sampler
from agent_r1.tool_calls import ParsedTurn
from agent_r1.trajectory import CallRecord, Purpose, Trajectory
from tasks.answer import Opened, open_policy, open_tools

METHOD = "policy"


class Listener(Protocol):
    """Who is told what happens."""

    def said(self, text: str) -> None:
        """A piece of the model's text, as it is sampled; whole characters only."""
        ...

    def acted(self, turn: ParsedTurn) -> None:
        """A turn is over, and its calls are about to run."""
        ...

    def told(self, calls: Sequence[CallRecord], seconds: float) -> None:
        """What the calls brought."""
        ...


@dataclass(frozen=True, slots=True)
class Heard(Environments):
    """Environments that say what they run."""

    listener: Listener | None = None

    def run_calls(self, turns: Sequence[tuple[Question, ParsedTurn]]) -> list[tuple[CallRecord, ...]]:
        """See Environments.run_calls."""
        assert self.listener is not None
        for _, turn in turns:
            self.listener.acted(turn)
        started = time.monotonic()
        made = Environments.run_calls(self, turns)
        for calls in made:
            self.listener.told(calls, time.monotonic() - started)
        return made


@dataclass
class Talk:
    """A policy, the tools of a split, and how it samples: greedy at temperature 0."""

    opened: Opened
    environments: Environments
    config: Config
    temperature: float

    def ask(self, question: Question, attempt: int, listener: Listener) -> Trajectory:
        """One trajectory, from the start: no question knows of the one before."""
        chat = self.environments.chat
        pieces: list[int] = []
        shown = ""

        def heard(_place: int, token: int) -> None:
            nonlocal shown
            if token in chat.end_ids:
                pieces.clear()
                shown = ""
                return
            pieces.append(token)
            text = chat.text(pieces)
            if not text.endswith("\ufffd"):  # half a character: the rest of it comes
                listener.said(text[len(shown) :])
                shown = text

        fields = {name: getattr(self.environments, name) for name in Environments.__dataclass_fields__}
        environments = Heard(**fields, listener=listener)
        purpose: Purpose = "train" if self.temperature > 0 else "greedy"
        limits = self.config.rollout.model_copy(update={"temperature": self.temperature or 1.0})
        config = self.config.model_copy(update={"rollout": limits})
        attempts = [Attempt(question, attempt)]

        def make(sampler: Sampler) -> dict[Purpose, list[Trajectory]]:
            if isinstance(sampler, EmbeddedSampler):
                sampler = replace(sampler, heard=heard)
            return {purpose: rollout(attempts, sampler, environments, config, Origin("chat", 0, purpose, 0))}

        return self.opened.sample(make)[purpose][0]


@contextmanager
def open_talk(home: Path, policy: str, config: Config, split: Split, temperature: float) -> Iterator[Talk]:
    """The policy loaded, and the tools of the split opened."""
    with open_policy(policy, config, [METHOD]) as opened:
        method = opened.configs[METHOD]
        with open_tools(home, opened, config, split, [METHOD]) as environments:
            yield Talk(opened, environments, method, temperature)
