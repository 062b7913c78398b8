"""Fakes: a sampler that says what it is told to, and a tool that does what it is told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_r1.chat import Chat
from agent_r1.questions.records import Json
from agent_r1.sampler import Action, ActionRequest
from agent_r1.tools.protocol import JsonObject, ToolResult

SMALL: dict[str, Json] = {
    "path": "tiny",
    "tiny": {"layers": 2, "width": 16, "heads": 2, "initializer": 0.3, "context": 1024},
}
CUT = "[cut off]"


@dataclass(slots=True)
class ScriptedSampler:
    """Says its scripts, a list of texts for each row. A text that ends with CUT never ends its turn."""

    chat: Chat
    scripts: Sequence[Sequence[str]]
    requests: list[list[ActionRequest]] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)

    def session(
        self, *, end_ids: tuple[int, ...], temperature: float, greedy: bool, max_new_tokens: int
    ) -> ScriptedSampler:
        """See Sampler.session."""
        self.settings = {
            "end_ids": end_ids,
            "temperature": temperature,
            "greedy": greedy,
            "max_new_tokens": max_new_tokens,
        }
        return self

    def act(self, requests: Sequence[ActionRequest]) -> list[Action]:
        """See Session.act."""
        said = [sum(one.row == request.row for wave in self.requests for one in wave) for request in requests]
        self.requests.append(list(requests))
        return [self._action(self.scripts[r.row][turn]) for r, turn in zip(requests, said, strict=True)]

    def _action(self, text: str) -> Action:
        finished = not text.endswith(CUT)
        ids = self.chat.action(text.removesuffix(CUT))
        ids = ids if finished else ids[:-1]
        return Action(tuple(ids), tuple(-0.1 * (place + 1) for place in range(len(ids))), finished)


@dataclass(slots=True)
class FakeTool:
    """A tool of one string argument `x` that answers with `reply`."""

    name: str
    reply: Callable[[JsonObject], ToolResult] = lambda arguments: ToolResult(f"saw {arguments.get('x')}", ok=True)
    seen: list[Mapping[str, Json]] = field(default_factory=list)

    @property
    def schema(self) -> JsonObject:
        """See Tool."""
        parameters: dict[str, Json] = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
        return {
            "type": "function",
            "function": {"name": self.name, "description": "Looks.", "parameters": parameters},
        }

    def call(self, arguments: JsonObject) -> ToolResult:
        """See Tool."""
        self.seen.append(arguments)
        return self.reply(arguments)

    def close(self) -> None:
        """Nothing is held."""


def call(x: str, name: str = "look") -> str:
    """The text of a call of a FakeTool."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"x": "{x}"}}}}\n</tool_call>'
