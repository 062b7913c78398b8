"""What the agent said in one turn, read from its text: tool calls, malformed calls, the answer, the thinking.

How calls are written is a matter of formats/. Running them, and deciding what a turn with calls or an answer means for
the trajectory, is left to the environment. The text must be what the model wrote, never what a tool returned.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_r1.formats import FORMATS
from agent_r1.formats.calls import ToolCall
from agent_r1.scoring import extract_answer

__all__ = ["ParsedTurn", "ToolCall", "parse"]


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """One turn's text, read. `errors` has one readable line for each malformed call, in order. `text` is all of it."""

    calls: list[ToolCall]
    errors: list[str]
    answer: str | None
    thinking: str
    text: str = ""


def parse(text: str, format: str = "hermes", finished: bool = True) -> ParsedTurn:
    """Read one turn. Never raises on text; ValueError on an unknown format.

    No call or answer inside thinking counts, nor does an answer inside a call. `finished` is False where the turn was
    cut off: then no call counts, well-formed or not.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown tool call format {format!r}; known: {', '.join(FORMATS)}")
    found = FORMATS[format].read(text)
    return ParsedTurn(
        calls=found.calls if finished else [],
        errors=[f"malformed tool call: {error}" for error in found.errors] if finished else [],
        answer=extract_answer(" ".join(found.spoken)),  # a space, so that the pieces around a call do not make a tag
        thinking="\n".join(stripped for thought in found.thinking if (stripped := thought.strip())),
        text=text,
    )
