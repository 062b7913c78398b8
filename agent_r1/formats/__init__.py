"""How model families write tool calls: one module a format, told apart by the chat template.

`hermes` and `llama3` read and write calls; `plain` teaches tools to a template that knows none, and calls as Hermes
does. Rendering and tokens are left to chat.py, what a call means to the environment.
"""

from __future__ import annotations

from typing import Protocol

from agent_r1.errors import ConfigError
from agent_r1.formats import hermes, llama3
from agent_r1.formats.calls import Read
from agent_r1.tools.protocol import JsonObject


class Format(Protocol):
    """What a format's module holds. `ENDS` are tokens beside the template's own that end a turn."""

    NAME: str
    ENDS: tuple[str, ...]

    def recognises(self, template: str) -> bool:
        """Whether a chat template asks for calls of this format."""
        ...

    def read(self, text: str) -> Read:
        """What one turn's text says; never raises on text."""
        ...

    def write(self, name: str, arguments: JsonObject) -> str:
        """A call as a model of this format writes it, without the end of its turn."""
        ...


_ALL: tuple[Format, ...] = (hermes, llama3)
FORMATS = {one.NAME: one for one in _ALL}


def choose(template: str, tokens: frozenset[str], wanted: str = "auto") -> Format:
    """The wanted format, or the one that a template which knows tools asks for; ConfigError where that is not told.

    A template that shows no call (one that was never meant to teach the format) is Hermes' where `tokens`, the
    tokenizer's, hold its tag.
    """
    if wanted != "auto":
        return FORMATS["hermes" if wanted == "plain" else wanted]
    for one in _ALL:
        if one.recognises(template):
            return one
    if "<tool_call>" in tokens and "<tool_call>" not in template:
        return hermes
    raise ConfigError(
        f"model.tool_format: the chat template of model.path knows tools but writes calls in none of the formats "
        f"{', '.join(FORMATS)}; name one of them, or plain (tools described in the system message, Hermes calls)"
    )
