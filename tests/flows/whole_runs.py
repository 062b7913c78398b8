"""Whole runs in a second: real stages, a real store, a policy that says scripted turns, neither Prefect nor MLflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from agent_r1.chat import Chat
from agent_r1.model import Policy
from agent_r1.questions.records import Json
from agent_r1.sampler import Action, ActionRequest

SMALL: dict[str, Json] = {
    "iterations": 1,
    "threads": 1,
    "model": {"path": "tiny", "tiny": {"layers": 1, "width": 16, "heads": 1}},
    "world": {
        "people": 8, "cities": 4, "countries": 3, "companies": 4, "films": 4, "warm_start_scale": 1,
        "warm_start": 6, "train": 6, "validation": 4, "test": 4,
    },
    "rollout": {
        "questions": 3, "attempts": 2, "shard_size": 4, "max_turns": 4, "max_context": 900, "max_new_tokens": 60,
        "system_prompt": "",
    },
    "ppo": {"epochs": 1, "minibatches": 2, "value_steps": 2},
    "evaluation": {"questions": 2},
    "store": {"lock_wait": 5.0},
}  # fmt: skip


class Scripted:
    """A sampler that says `script`, turn by turn, from a policy too random to finish a turn; the last text for ever."""

    script: Sequence[str] = ()

    def __init__(self, policy: Policy) -> None:
        self._chat = Chat(policy.tokenizer, [], "")
        self._logprob = -math.log(len(policy.tokenizer))  # what random weights give to about every token
        self._said: dict[int, int] = {}

    def session(self, **_: object) -> Scripted:
        self._said.clear()
        return self

    def act(self, requests: Sequence[ActionRequest]) -> list[Action]:
        return [self._action(request.row) for request in requests]

    def _action(self, row: int) -> Action:
        turn = self._said[row] = self._said.get(row, -1) + 1
        ids = tuple(self._chat.action(self.script[min(turn, len(self.script) - 1)]))
        return Action(ids, (self._logprob,) * len(ids), finished=True)


class Unseen:
    """A tracker that shows nothing."""

    def ensure_run(self, run: str, *_: object) -> str:
        return f"mlflow-{run}"

    def __getattr__(self, _name: str) -> Callable[..., int]:
        return lambda *_: 0


def install(put: Callable[[ModuleType, str, Any], None]) -> None:
    """Put these in the places of the sampler, the tracker, and the tasks that Prefect would run."""
    from tasks import annotate, engine, evaluate, prepare, publish, rollout, test, update, warm_start

    for module in (prepare, warm_start, rollout, annotate, update, evaluate, test, publish):
        name = module.__name__.rpartition(".")[2]
        put(module, name, getattr(module, name).fn)
    put(engine, "EmbeddedSampler", Scripted)
    put(publish, "_tracker", lambda _context: Unseen())


def merged(*trees: Mapping[str, Json]) -> dict[str, Json]:
    """Configurations laid over each other, section by section."""
    made: dict[str, Json] = {}
    for tree in trees:
        for key, value in tree.items():
            before = made.get(key)
            made[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return made
