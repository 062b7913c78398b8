"""Llama 3's calls: the whole message is {"name", "parameters"}, after <|python_tag|> or not; one call a message.

The templates of 3.1, 3.2 and 3.3 refuse a second call in a message, so it is malformed here. <|eom_id|> is the end of a
turn that waits for a tool, <|eot_id|> of any: models were taught both.
"""

from __future__ import annotations

import json
import re

from agent_r1.formats.calls import Read, ToolCall, as_call, decode
from agent_r1.tools.protocol import JsonObject

NAME: str = "llama3"
ENDS: tuple[str, ...] = ("<|eom_id|>",)
_TAG = "<|python_tag|>"
_TAGS = re.compile(r"</?think>|<\|python_tag\|>")


def recognises(template: str) -> bool:
    """See Format."""
    return "<|start_header_id|>" in template and '"parameters"' in template.replace('\\"', '"')


def write(name: str, arguments: JsonObject) -> str:
    """See Format."""
    return json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)


def read(text: str) -> Read:
    """See Format.

    A call begins where the message does, after its thinking if it has any, or after <|python_tag|>; JSON elsewhere is
    text. So is what follows a call, but another object is a malformed call. Malformed JSON goes on to the end.
    """
    thinking, said = _apart(text)
    before, rest = "", said.lstrip()
    if not rest.startswith(("{", _TAG)):
        before, tag, after = said.partition(_TAG)
        rest = tag + after
    found = Read([], [], thinking, [before])
    while rest.startswith(("{", _TAG)):
        body = rest.removeprefix(_TAG)
        value, end, problem = decode(body, 0)
        call = problem or as_call(value, "parameters")
        if found.calls or found.errors:
            found.errors.append("one call a message: only the first is read")
        elif isinstance(call, ToolCall):
            found.calls.append(call)
        else:
            found.errors.append(call)
        rest = "" if problem else body[end:].lstrip(" \n;,")
    found.spoken.append(rest)
    return found


def _apart(text: str) -> tuple[list[str], str]:
    """The thinking and the rest. An orphan </think> closes what stands before it.

    Tags inside the JSON that opens the message, or stands behind <|python_tag|>, are a string's.
    """
    thinking: list[str] = []
    said, position = "", 0
    while True:
        if not said.strip() or said.endswith(_TAG):
            _, end, _ = decode(text, position)
            said, position = said + text[position:end], end
        tag = _TAGS.search(text, position)
        if tag is None:
            return thinking, said + text[position:]
        said, position = said + text[position : tag.start()], tag.end()
        if tag[0] == _TAG:
            said += _TAG
        elif tag[0] == "</think>":
            thinking.append(said)
            said = ""
        else:
            end = text.find("</think>", position)
            thinking.append(text[position : end if end >= 0 else len(text)])
            position = end + len("</think>") if end >= 0 else len(text)
