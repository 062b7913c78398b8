"""Hermes' calls, which Qwen2.5 and Qwen3 write too: any number of <tool_call>{"name", "arguments"}</tool_call>."""

from __future__ import annotations

import json
import re

from agent_r1.formats.calls import Read, ToolCall, as_call, decode
from agent_r1.tools.protocol import JsonObject

NAME: str = "hermes"
ENDS: tuple[str, ...] = ()
_TAG = re.compile(r"</?think>|</?tool_call>")


def recognises(template: str) -> bool:
    """Others put no JSON between these tags: Qwen3-Coder and GLM have tags of their own for each argument."""
    return "<tool_call>" in template and '"arguments"' in template.replace('\\"', '"')


def write(name: str, arguments: JsonObject) -> str:
    """See Format."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def read(text: str) -> Read:
    """See Format.

    What stands in <think>, before an orphan </think> or after an unclosed <think> is thinking. A call inside an answer
    is a call.
    """
    found = Read([], [], [], [])
    position = after_thinking = 0
    while tag := _TAG.search(text, position):
        found.spoken.append(text[position : tag.start()])
        position = tag.end()
        if tag[0] == "<think>":
            end = text.find("</think>", position)
            found.thinking.append(text[position : end if end >= 0 else len(text)])
            position = after_thinking = end + len("</think>") if end >= 0 else len(text)
        elif tag[0] == "</think>":
            found = Read([], [], [*found.thinking, text[after_thinking : tag.start()]], [])
            after_thinking = position
        elif tag[0] == "<tool_call>":
            call, position = _call(text, position)
            if isinstance(call, ToolCall):
                found.calls.append(call)
            else:
                found.errors.append(call)
    found.spoken.append(text[position:])
    return found


def _call(text: str, start: int) -> tuple[ToolCall | str, int]:
    """The call whose JSON starts at `start`, or what is wrong with it, and where reading goes on.

    A string inside well-formed JSON may hold any tag; malformed JSON ends at the next one.
    """
    value, end, problem = decode(text, start)
    tag = _TAG.search(text, end)
    if tag is None:
        return "<tool_call> is not closed by </tool_call>", len(text)
    if tag[0] != "</tool_call>":
        return "<tool_call> is not closed by </tool_call>", tag.start()
    if not problem and text[end : tag.start()].strip():
        problem = "more than one JSON object in <tool_call>"
    return problem or as_call(value, "arguments"), tag.end()
