"""What a tool is: a name, a schema that the model sees, and a call that returns text and never raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agent_r1.questions.records import Json

JsonObject = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Source:
    """A passage, or one sentence of it, that stands in `ToolResult.text[start:end]`.

    Rewards are read off the sources in view. One whose end lies beyond where the observation was cut is not in view.
    """

    passage_id: str
    sentence: int | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call returned: the text the agent sees, whether the call worked, and what the text shows."""

    text: str
    ok: bool
    sources: tuple[Source, ...] = ()


def checked_result(result: object) -> ToolResult:
    """What a call returned. TypeError where it is no ToolResult, or holds what its fields do not say."""
    if not isinstance(result, ToolResult):
        raise TypeError(f"a call must return a ToolResult, got {type(result).__name__}")
    if not isinstance(result.text, str):
        raise TypeError(f"a result's text must be a str, got {type(result.text).__name__}")
    if not isinstance(result.ok, bool):
        raise TypeError(f"a result's ok must be a bool, got {type(result.ok).__name__}")
    if not isinstance(result.sources, tuple) or not all(map(_is_source, result.sources)):
        raise TypeError("a result's sources must be a tuple of Source, with a str, an int or None, and two ints")
    return result


def encodable(text: str) -> str:
    """The text, as long as it was, with "?" for half of a surrogate pair, which no tokenizer and no store takes."""
    return text.encode(errors="replace").decode()


def _is_source(source: object) -> bool:
    match source:
        case Source(str(), int() | None, int(), int()):
            return True
    return False


class Described(Protocol):
    """What the model is shown of a tool."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> JsonObject: ...


@runtime_checkable
class Tool(Protocol):
    """A tool. `schema` is in OpenAI form: {"type": "function", "function": {"name", "description", "parameters"}}."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> JsonObject: ...

    def call(self, arguments: JsonObject) -> ToolResult:
        """Run the tool. Never raises: a wrong argument or a failure is a result with ok False and a reason."""
        ...

    def close(self) -> None:
        """Free what the tool holds (worker processes, files)."""
        ...
