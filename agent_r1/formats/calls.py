"""What every format reads: a call, what is wrong with one, and JSON as strict as it has to be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from agent_r1.questions.records import Json, is_too_deep
from agent_r1.tools.protocol import JsonObject

Write = Callable[[str, JsonObject], str]
"""From the name of a tool and its arguments to the text of a call."""
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A well-formed call. Whether the tool exists and takes these arguments is not known here."""

    name: str
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Read:
    """One turn's text, taken apart. `errors` says what is wrong with each malformed call; `spoken` is the rest."""

    calls: list[ToolCall]
    errors: list[str]
    thinking: list[str]
    spoken: list[str]


def decode(text: str, start: int) -> tuple[Json, int, str]:
    """The JSON value that starts at `start` or after blanks there, where it ends, and what is wrong with it.

    Where something is wrong the value is None and ends where it began; where nothing is, the last is "".
    """
    space = _SPACE.match(text, start)
    begin = space.end() if space else start
    try:
        value, end = _decoder.raw_decode(text, begin)
        _check_depth(value)
    except json.JSONDecodeError as error:
        return None, begin, f"not JSON: {error.msg} at character {error.pos - begin}"
    except (ValueError, RecursionError) as error:
        return None, begin, _reason(error)
    return value, end, ""


def as_call(value: Json, key: str) -> ToolCall | str:
    """The call that a JSON value makes, or what is wrong with it. `key` is the format's own name for the arguments.

    Models mix up "arguments" and "parameters" and write them as a string of JSON: all of that is read.
    """
    if not isinstance(value, dict):
        return f'expected one JSON object {{"name": ..., "{key}": {{...}}}}'
    found = [other for other in ("arguments", "parameters") if other in value]
    if len(found) == 2:
        return 'both "arguments" and "parameters"'
    key = found[0] if found else key
    name, arguments = value.get("name"), value.get(key, {})
    if not isinstance(name, str) or not name.strip():
        return '"name" must be the name of a tool'
    try:
        if isinstance(arguments, str):
            arguments = _decoder.decode(arguments)
            _check_depth(arguments)
        json.dumps([name, arguments], ensure_ascii=False, allow_nan=False).encode()  # lone surrogates, 1e999
    except (ValueError, RecursionError) as error:
        return f'"{key}": {_reason(error)}'
    if not isinstance(arguments, dict):
        return f'"{key}" must be a JSON object'
    return ToolCall(name, arguments)


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return "a string holds half of a surrogate pair"
    return str(error)


def _check_depth(value: Json) -> None:
    if is_too_deep(value):
        raise RecursionError


def _no_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
