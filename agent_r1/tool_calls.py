"""What the agent said in one turn, read from its text: tool calls, malformed calls, the answer, the thinking.

Running the calls, and deciding what a turn with calls or an answer means for the trajectory, is left to the
environment. The text must be what the model wrote, never what a tool returned.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from agent_r1.questions.records import Json
from agent_r1.scoring import extract_answer

FORMATS = ("hermes",)
_TAG = re.compile(r"</?think>|</?tool_call>")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A well-formed call. Whether the tool exists and takes these arguments is not known here."""

    name: str
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """One turn's text, read. `errors` has one readable line for each malformed call, in order."""

    calls: list[ToolCall]
    errors: list[str]
    answer: str | None
    thinking: str


def parse(text: str, format: str = "hermes", finished: bool = True) -> ParsedTurn:
    """Read one turn. Never raises on text; ValueError on an unknown format.

    hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, <think>...</think>, <answer>...</answer>.
    What stands in <think>, before an orphan </think> or after an unclosed <think> is thinking: no call or answer of it
    counts, nor does an answer inside a call. A call inside an answer is a call.
    `finished` is False where the turn was cut off: then no call counts, well-formed or not.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown tool call format {format!r}; known: {', '.join(FORMATS)}")
    calls: list[ToolCall] = []
    errors: list[str] = []
    thinking: list[str] = []
    spoken: list[str] = []  # what is neither thinking nor a call
    position = after_thinking = 0
    while tag := _TAG.search(text, position):
        spoken.append(text[position : tag.start()])
        position = tag.end()
        if tag[0] == "<think>":
            end = text.find("</think>", position)
            thinking.append(text[position : end if end >= 0 else len(text)])
            position = after_thinking = end + len("</think>") if end >= 0 else len(text)
        elif tag[0] == "</think>":
            thinking.append(text[after_thinking : tag.start()])
            calls, errors, spoken = [], [], []
            after_thinking = position
        elif tag[0] == "<tool_call>":
            call, position = _read_call(text, position)
            if isinstance(call, ToolCall):
                calls.append(call)
            else:
                errors.append(f"malformed tool call: {call}")
    spoken.append(text[position:])
    return ParsedTurn(
        calls=calls if finished else [],
        errors=errors if finished else [],
        answer=extract_answer(" ".join(spoken)),  # a space, so that the pieces around a call do not make a tag
        thinking="\n".join(stripped for thought in thinking if (stripped := thought.strip())),
    )


def _read_call(text: str, start: int) -> tuple[ToolCall | str, int]:
    """The call whose JSON starts at `start`, or what is wrong with it, and where reading goes on.

    A string inside well-formed JSON may hold any tag; malformed JSON ends at the next one.
    """
    space = _SPACE.match(text, start)
    begin = end = space.end() if space else start
    value, problem = None, ""
    try:
        value, end = _decoder.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at character {error.pos - begin}"
    except (ValueError, RecursionError) as error:
        problem = _reason(error)
    tag = _TAG.search(text, end)
    if tag is None:
        return "<tool_call> is not closed by </tool_call>", len(text)
    if tag[0] != "</tool_call>":
        return "<tool_call> is not closed by </tool_call>", tag.start()
    if not problem and text[end : tag.start()].strip():
        problem = "more than one JSON object in <tool_call>"
    return problem or _as_call(value), tag.end()


def _as_call(value: Json) -> ToolCall | str:
    if not isinstance(value, dict):
        return 'expected one JSON object {"name": ..., "arguments": {...}}'
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or not name.strip():
        return '"name" must be the name of a tool'
    try:
        if isinstance(arguments, str):
            arguments = _decoder.decode(arguments)
        json.dumps([name, arguments], ensure_ascii=False, allow_nan=False).encode()  # lone surrogates, 1e999
    except (ValueError, RecursionError) as error:
        return f'"arguments": {_reason(error)}'
    if not isinstance(arguments, dict):
        return '"arguments" must be a JSON object'
    return ToolCall(name, arguments)


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return "a string holds half of a surrogate pair"
    return str(error)


def _no_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
