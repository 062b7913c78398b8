"""A function as a tool: the schema read off it, how arguments are checked, and what the model sees of each outcome."""

from __future__ import annotations

import asyncio
import enum
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import pytest
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from agent_r1.tools import function_tool
from agent_r1.tools.own import check_schema
from agent_r1.tools.protocol import JsonObject, Source, Tool, ToolResult


class Unit(enum.Enum):
    KILOMETRES = "km"
    MILES = "mi"


@dataclass
class Place:
    name: str
    floor: int = 0


class Pair(TypedDict):
    left: int
    right: int


def population(city: str, year: int = 2020) -> int:
    """How many people live in a city.

    Read from a table of censuses.

    Args:
        city: Its name,
            as it is written there.
        year (int): Of the census.

    Returns:
        A number of people.
    """
    return {"Bern": 130_000}[city] + year - 2020


def echo(value: Any) -> object:
    """Give back what was given."""
    return value


def parameters(function: Callable[..., object]) -> dict[str, Any]:
    schema = cast(dict[str, Any], function_tool(function).schema)
    return schema["function"]["parameters"]


def test_schema_is_read_off_hints_defaults_and_docstring() -> None:
    assert function_tool(population).schema == {
        "type": "function",
        "function": {
            "name": "population",
            "description": "How many people live in a city.\n\nRead from a table of censuses.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name, as it is written there."},
                    "year": {"type": "integer", "description": "Of the census.", "default": 2020},
                },
                "required": ["city"],
            },
        },
    }


def test_every_type_with_a_json_form_has_its_schema() -> None:
    def tool(
        a: float,
        b: bool,
        c: Literal["x", "y"],
        d: list[int],
        e: dict[str, float],
        f: int | None,
        g: Annotated[str, "a note"],
        h: Unit = Unit.MILES,
        i: Place | None = None,
    ) -> None:
        """Nothing."""

    schema = parameters(tool)
    assert schema["properties"] == {
        "a": {"type": "number"},
        "b": {"type": "boolean"},
        "c": {"type": "string", "enum": ["x", "y"]},
        "d": {"type": "array", "items": {"type": "integer"}},
        "e": {"type": "object", "additionalProperties": {"type": "number"}},
        "f": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "g": {"type": "string", "description": "a note"},
        "h": {"$ref": "#/$defs/Unit", "default": "mi"},
        "i": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
    }
    assert schema["$defs"]["Unit"] == {"type": "string", "enum": ["km", "mi"]}
    assert schema["$defs"]["Place"]["properties"]["name"] == {"type": "string"}
    assert schema["required"] == ["a", "b", "c", "d", "e", "f", "g"]


def test_function_without_parameters_has_an_empty_object_of_them() -> None:
    def today() -> str:
        """The date."""
        return "1 May"

    assert parameters(today) == {"type": "object", "properties": {}}
    assert function_tool(today).call({}) == ToolResult("1 May", ok=True)
    assert function_tool(today).call({"x": 1}).text == "error: today has no parameter 'x', only none at all"


def test_it_is_a_tool_that_own_py_accepts() -> None:
    tool = function_tool(population)
    assert isinstance(tool, Tool)
    check_schema(tool, "here")
    tool.close()


def no_hint(city) -> str:  # pyright: ignore
    """A."""
    return city


def several(*cities: str) -> str:
    """A."""
    return cities[0]


def named(**cities: str) -> str:
    """A."""
    return cities["a"]


def by_position(city: str, /) -> str:
    """A."""
    return city


def no_json(city: Callable[[], str]) -> str:
    """A."""
    return city()


def no_json_class(city: subprocess.Popen[str]) -> str:
    """A."""
    return str(city)


def no_docstring(city: str) -> str:
    return city


def misspelt(city: str) -> str:
    """A.

    Args:
        ctiy: the city
    """
    return city


def unknown_hint(city: "Nowhere") -> str:  # noqa: F821, UP037  # pyright: ignore
    """A."""
    return str(city)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_hint, "no_hint: parameter 'city' has no type hint: expected one such as `city: str`"),
        (several, "several: parameter 'cities' is variadic positional: expected parameters that are given by name"),
        (named, "named: parameter 'cities' is variadic keyword"),
        (by_position, "by_position: parameter 'city' is positional-only"),
        (no_json, "no_json: parameter 'city' has the type .*Callable.*, which has no JSON form: expected str, int"),
        (no_json_class, "no_json_class: parameter 'city' has the type .*Popen"),
        (no_docstring, "no_docstring: expected a docstring that says what the tool does"),
        (misspelt, "misspelt: the docstring describes 'ctiy', but there is no such parameter"),
        (unknown_hint, "unknown_hint: a type hint cannot be read: .*Nowhere"),
        (lambda: None, "<lambda>: a tool's name has 1 to 64"),
        (len, "built-in function len.*: expected a function or a bound method"),
    ],
)
def test_function_that_cannot_be_a_tool_is_refused_with_what_was_expected(
    function: Callable[..., object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        function_tool(function)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "error: population needs the parameter 'city'"),
        ({"city": "Bern", "cty": 1}, "error: population has no parameter 'cty', only 'city', 'year'"),
        ({"city": 3}, "error: population: the parameter 'city': Input should be a valid string"),
        ({"city": "Bern", "year": 2.5}, "error: population: the parameter 'year': Input should be a valid integer"),
        ({"city": "Bern", "year": "soon"}, "error: population: the parameter 'year': Input should be a valid integer"),
        ({"city": None}, "error: population: the parameter 'city'"),
        (None, "error: population needs its parameters as a JSON object"),
        ("Bern", "error: population needs its parameters as a JSON object"),
        ({1: 2, "city": "Bern"}, "error: population"),
    ],
)
def test_wrong_arguments_are_failures_that_name_the_parameter(arguments: object, said: str) -> None:
    result = function_tool(population).call(cast(JsonObject, arguments))
    assert not result.ok
    assert result.text.startswith(said)


def test_numbers_that_models_quote_are_numbers() -> None:
    assert function_tool(population).call({"city": "Bern", "year": "2021"}) == ToolResult("130001", ok=True)


def test_function_gets_values_of_its_own_types() -> None:
    def walk(unit: Unit, places: list[Place], pair: Pair) -> str:
        """Walk."""
        return f"{unit.name} {places[0].name} {places[0].floor} {pair['right']}"

    call = function_tool(walk).call
    arguments: JsonObject = {"unit": "mi", "places": [{"name": "hall"}], "pair": {"left": 1, "right": 2}}
    assert call(arguments) == ToolResult("MILES hall 0 2", ok=True)
    wrong = call({**arguments, "places": [{"name": "hall", "floor": "up"}]})
    assert wrong.text.startswith("error: walk: the parameter 'places' at 0.floor: ")
    assert "'unit'" in call({**arguments, "unit": "feet"}).text


def test_parameter_may_be_called_what_pydantic_forbids() -> None:
    def tool(model_config: str, schema: str, _x: int = 1) -> str:
        """Nothing."""
        return f"{model_config} {schema} {_x}"

    assert function_tool(tool).call({"model_config": "a", "schema": "b", "_x": 2}) == ToolResult("a b 2", ok=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it\nis", "as it\nis"),
        ("", ""),
        (None, "done"),
        (3, "3"),
        (3.0, "3.0"),
        (True, "true"),
        (["Zürich", None], '["Zürich", null]'),
        ({"a": (1, 2)}, '{"a": [1, 2]}'),
        (Place("hall", 1), '{"name": "hall", "floor": 1}'),
        (Unit.MILES, "mi"),
        (Source, str(Source)),
        (b"\xff", str(b"\xff")),
    ],
)
def test_result_is_text_as_it_is_and_json_otherwise(value: object, text: str) -> None:
    assert function_tool(echo).call(cast(JsonObject, {"value": value})) == ToolResult(text, ok=True)


def test_tool_result_is_kept_with_its_sources() -> None:
    result = ToolResult("Bern", ok=False, sources=(Source("p", None, 0, 4),))

    def tool() -> ToolResult:
        """Nothing."""
        return result

    assert function_tool(tool).call({}) is result


def test_exception_is_a_short_failure_without_a_traceback() -> None:
    def tool(how: str) -> str:
        """Nothing."""
        if how == "exit":
            sys.exit(3)
        raise ValueError(how)

    call = function_tool(tool).call
    assert call({"how": "no such city"}) == ToolResult("error: ValueError: no such city", ok=False)
    assert len(call({"how": "x" * 1000}).text) == 300
    assert call({"how": "exit"}) == ToolResult("error: SystemExit: 3", ok=False)


def test_async_function_is_run_to_its_end() -> None:
    async def tool(city: str) -> str:
        """Nothing."""
        await asyncio.sleep(0)
        return city

    assert function_tool(tool).call({"city": "Bern"}) == ToolResult("Bern", ok=True)


def test_bound_method_is_a_tool_without_self() -> None:
    class Table:
        rows = 3

        def count(self, more: int) -> int:
            """Count the rows."""
            return self.rows + more

    tool = function_tool(Table().count)
    assert tool.name == "count"
    assert tool.call({"more": 1}) == ToolResult("4", ok=True)


def test_tools_are_imported_without_pydantic() -> None:
    script = "import sys, agent_r1.tools.protocol; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
