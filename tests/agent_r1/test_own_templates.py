"""Tools of one's own as chat templates show them: nested parameters, odd names, texts that templates stumble over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

import pytest
from families import FAMILIES
from pydantic import Field
from typing_extensions import TypedDict

from agent_r1.chat import Chat
from agent_r1.errors import ConfigError
from agent_r1.questions.records import Json
from agent_r1.tools.function import function_tool
from agent_r1.tools.own import check_schema
from agent_r1.tools.protocol import JsonObject, ToolResult

EVERY = pytest.mark.parametrize("family", FAMILIES)
WHOLE = pytest.mark.parametrize("family", [family for family in FAMILIES if family != "tiny"])
"""The families whose templates show a schema, and not only the names of its parameters."""


class Unit(Enum):
    METRE = "m"
    MILE = "mi"


class Point(TypedDict):
    latitude: float
    longitude: float


@dataclass
class Stop:
    place: Point
    minutes: int = 5


def plan_route(
    stops: list[Stop],
    mode: Literal["walk", "ride"] = "walk",
    unit: Unit | None = None,
    weights: dict[str, list[float]] | None = None,
    at_most: Annotated[int, Field(ge=1, description='Not more than "this" {{ or }} <that>.')] = 3,
) -> str:
    """Plan a route: "quoted", {{ braces }}, {% blocks %}, <tags> & back\\slashes.

    It takes a second paragraph to say what a Straße is.

    Args:
        stops: Where to stop, in order.
        weights: By name.
    """
    return f"{stops} {mode} {unit} {weights} {at_most}"


@dataclass(frozen=True)
class Shown:
    """What the model is shown of a tool that is a class or of an MCP server."""

    name: str
    parameters: JsonObject

    @property
    def schema(self) -> JsonObject:
        """See Tool."""
        about: dict[str, Json] = {"name": self.name, "description": "One.", "parameters": dict(self.parameters)}
        return {"type": "function", "function": about}

    def call(self, arguments: JsonObject) -> ToolResult:
        """See Tool."""
        return ToolResult(str(arguments), ok=True)

    def close(self) -> None: ...


NAMES = ("get.weather-v2", "_", "0", "a" * 64, "None", "tools", "name", "end", "x-1_2.3")
NESTED: JsonObject = {
    "type": "object",
    "properties": {
        "filter": {
            "type": "object",
            "properties": {
                "any": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Deep"}]}}
            },
            "required": ["any"],
        },
        "items": {"type": "array", "items": {"type": "integer"}, "description": "Named as a method of dict."},
        "type": {"type": "string", "enum": ["a", "b"]},
        "untyped": {},
    },
    "required": ["filter"],
    "$defs": {"Deep": {"type": "object", "properties": {"deeper": {"type": "boolean"}}}},
}


def prompt_of(family: str, *tools: Shown) -> str:
    """The decoded prompt of a chat with these tools."""
    chat = Chat(FAMILIES[family](), [function_tool(plan_route), *tools], "Be short.")
    return str(chat.tokenizer.decode(chat.prompt("Where?"), skip_special_tokens=False))


@EVERY
def test_a_function_s_parameters_are_shown(family: str) -> None:
    text = prompt_of(family, Shown("search_all", NESTED))
    for shown in ("plan_route", "stops", "mode", "weights", "at_most", "search_all", "filter", "items", "untyped"):
        assert shown in text


@WHOLE
def test_nested_parameters_of_a_function_are_shown(family: str) -> None:
    text = prompt_of(family)
    for shown in (
        "plan_route",
        "stops",
        "latitude",
        "longitude",
        "minutes",
        "walk",
        "ride",
        "mi",
        "weights",
        "at_most",
    ):
        assert shown in text
    assert "Straße" in text or "Stra\\u00dfe" in text
    assert "{{ braces }}" in text
    assert "{% blocks %}" in text


@WHOLE
def test_a_class_s_own_nested_schema_is_shown(family: str) -> None:
    text = prompt_of(family, Shown("search_all", NESTED))
    for shown in ("search_all", "filter", "anyOf", "deeper", "untyped", "Named as a method of dict."):
        assert shown in text


@EVERY
def test_every_legal_name_is_shown_as_it_is(family: str) -> None:
    tools = [Shown(name, {"type": "object", "properties": {}}) for name in NAMES]
    for tool in tools:
        check_schema(tool, "tools")
    text = prompt_of(family, *tools)
    for name in NAMES:
        assert f" {name}()" in text if family == "tiny" else f'"{name}"' in text


@WHOLE
def test_a_type_that_a_template_cannot_show_is_an_error_in_one_line(family: str) -> None:
    """Hermes 3's names Python types, and looks for the one of "null" without an end."""
    nullable = Shown("look", {"type": "object", "properties": {"x": {"type": ["string", "null"]}}})
    if family == "hermes3":
        with pytest.raises(ConfigError, match=r"^model\.path: its chat template cannot show .* recursion"):
            prompt_of(family, nullable)
    else:
        assert "null" in prompt_of(family, nullable)


@EVERY
@pytest.mark.parametrize("name", NAMES)
def test_a_call_by_an_odd_name_is_read_as_it_is_written(family: str, name: str) -> None:
    arguments: dict[str, Json] = {"filter": {"any": ["a", {"deeper": True}]}, "items": [1, 2], "type": "a"}
    chat = Chat(FAMILIES[family](), [Shown(name, NESTED)], "")
    (call,) = chat.parse(chat.action(chat.call(name, arguments))).calls
    assert (call.name, call.arguments) == (name, arguments)
