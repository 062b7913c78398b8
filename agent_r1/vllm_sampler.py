"""The sampler that asks a vLLM server. Each turn sends all of its context; the prefix cache has the beginning.

The server is vllm_server.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_r1 import watching
from agent_r1.errors import EngineError, EngineLostError
from agent_r1.questions.records import Json
from agent_r1.sampler import Action, ActionRequest
from agent_r1.vllm_server import Generated, VllmServer


@dataclass(frozen=True, slots=True)
class VllmSampler:
    """Samples from the weights that the server was told to load under the name `version`."""

    server: VllmServer
    version: str

    def session(
        self, *, end_ids: tuple[int, ...], temperature: float, greedy: bool, max_new_tokens: int
    ) -> VllmSession:
        """See Sampler.session. Greedy log-probabilities are vLLM's at temperature 1: ValueError for another one."""
        if greedy and temperature != 1:
            raise ValueError(f"temperature: greedy actions are scored at 1, got {temperature}")
        return VllmSession(self.server, self.version, end_ids, 0.0 if greedy else temperature, max_new_tokens)


@dataclass(slots=True)
class VllmSession:
    """See Session. Same seeds give the same actions only as far as the server's batches are the same."""

    server: VllmServer
    version: str
    end_ids: tuple[int, ...]
    temperature: float
    max_new_tokens: int
    contexts: dict[int, list[int]] = field(default_factory=dict)

    def act(self, requests: Sequence[ActionRequest]) -> list[Action]:
        """See Session.act. EngineError where other weights than those of `version` sampled."""
        for request in requests:
            before = [] if request.restart else self.contexts[request.row]
            self.contexts[request.row] = [*before, *request.new_ids]
        generated = self.server.generate([self._body(request) for request in requests])
        actions = [self._action(each) for each in generated]
        watching.count("tokens", sum(len(action.ids) for action in actions))
        for request, action in zip(requests, actions, strict=True):
            self.contexts[request.row] += action.ids
        return actions

    def _body(self, request: ActionRequest) -> dict[str, Json]:
        """Every sampling parameter that changes probabilities is said: a model's generation_config has no say."""
        return {
            "token_ids": [*self.contexts[request.row]],
            "sampling_params": {
                "temperature": self.temperature,
                "top_p": 1.0,
                "top_k": 0,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "seed": request.seed % 2**63,
                "max_tokens": self.max_new_tokens,
                "stop_token_ids": [*self.end_ids],
                "ignore_eos": True,  # ends are those of the chat template
                "logprobs": 0,
                "detokenize": False,
            },
        }

    def _action(self, generated: Generated) -> Action:
        reason, ids = generated.finish_reason, generated.ids
        if reason not in ("stop", "length") or not ids or len(ids) != len(generated.logprobs):
            raise EngineLostError(f"vLLM ended an action for the reason {reason!r} after {len(ids)} tokens")
        if generated.versions != {self.version}:
            raise EngineError(
                f"vLLM sampled with the weights {', '.join(sorted(generated.versions))}, not with {self.version}: "
                "does another run use this server?"
            )
        finished = reason == "stop"
        if finished != (ids[-1] in self.end_ids):
            raise EngineError(
                f"vLLM ended an action at token {ids[-1]} for the reason {reason!r}, ends are {self.end_ids}"
            )
        return Action(ids, generated.logprobs, finished)
