"""What is named as module:name is found beside the configuration, and a wrong name is a readable error."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from agent_r1.errors import ConfigError
from agent_r1.objects import load_object, source_digest
from agent_r1.tools.own import check_schema, open_own
from agent_r1.tools.protocol import Tool, ToolResult

TOOLS = '''
import json

def population(city: str) -> int:
    """People in a city."""
    return 130

def bad(city):
    """People in a city."""

class Tables:
    first = "one"

class Clock:
    name = "clock"
    schema = {"type": "function", "function": {"name": "clock", "description": "The time.",
              "parameters": {"type": "object", "properties": {}}}}
    def call(self, arguments): ...
    def close(self): ...

class NeedsMore(Clock):
    def __init__(self, more): ...

clock = Clock()
misnamed = Clock()
misnamed.name = "two words"
'''


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes modules into the working directory; they are forgotten at the end."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def write(text: str = TOOLS, name: str = "some_tools") -> None:
        Path(f"{name}.py").write_text(text, encoding="utf-8")

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_object_of_the_working_directory_is_found_and_the_search_path_left_as_it_was(
    written: Callable[..., None],
) -> None:
    written()
    path = list(sys.path)
    assert callable(load_object("some_tools:population", "tools"))
    assert load_object("some_tools:Tables.first", "tools") == "one"
    assert sys.path == path


def test_what_is_installed_is_not_shadowed(written: Callable[..., None]) -> None:
    written("MINE = True\n", "this")  # a module of the standard library that nothing imports
    with pytest.raises(ConfigError, match="has no 'MINE'"):
        load_object("this:MINE", "tools")


@pytest.mark.parametrize("path", ["", "population", "some_tools:", ":population", "a b:c", "a:b:c", "a:b-c", "a..b:c"])
def test_wrong_form_is_an_error_with_the_key_and_an_example(path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_object(path, "reward.function")
    assert str(raised.value) == f"reward.function: {path!r}: expected module:name, such as my_tools:population"


def test_missing_module_says_where_it_was_looked_for(written: Callable[..., None], tmp_path: Path) -> None:
    written()
    with pytest.raises(ConfigError, match=f"no module 'nowhere'.* working directory {tmp_path}"):
        load_object("nowhere:x", "tools")
    with pytest.raises(ConfigError, match=r"no module 'some_tools\.sub'"):
        load_object("some_tools.sub:x", "tools")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nimport not_there\n", r"ModuleNotFoundError: No module named 'not_there' \(.*some_tools.py, line 2\)"),
        ("from json import nothing\n", r"ImportError: cannot import name 'nothing'.* \(.*some_tools.py, line 1\)"),
        ("def f():\n    return 1 / 0\nf()\n", r"ZeroDivisionError: division by zero \(.*some_tools.py, line 2\)"),
        ("x = (\n", r"is not Python: .*some_tools.py, line 1\)"),
        ("raise SystemExit(2)\n", r"SystemExit: 2 \(.*some_tools.py, line 1\)"),
    ],
)
def test_error_inside_the_module_is_told_with_its_line(written: Callable[..., None], text: str, said: str) -> None:
    written(text)
    with pytest.raises(ConfigError, match=said):
        load_object("some_tools:x", "tools")


def test_missing_name_lists_what_there_is_the_module_s_own_first(written: Callable[..., None]) -> None:
    written()
    with pytest.raises(ConfigError) as raised:
        load_object("some_tools:populaton", "tools")
    assert str(raised.value).endswith(
        "some_tools has no 'populaton'; it has Clock, NeedsMore, Tables, bad, clock, misnamed, population, json"
    )
    with pytest.raises(ConfigError, match=r"some_tools.Tables has no 'second'; it has first$"):
        load_object("some_tools:Tables.second", "tools")


def test_long_list_of_names_is_shortened(written: Callable[..., None]) -> None:
    written("".join(f"name_{number:03} = 1\n" for number in range(100)))
    with pytest.raises(ConfigError) as raised:
        load_object("some_tools:x", "tools")
    assert str(raised.value).endswith("name_029, ...")  # 300 characters hold 30 names of 8 and their commas


def test_digest_is_that_of_the_file_for_functions_classes_and_instances(written: Callable[..., None]) -> None:
    written()
    digest = hashlib.sha256(TOOLS.encode()).hexdigest()
    for name in ("population", "Clock", "clock"):
        assert source_digest(load_object(f"some_tools:{name}", "tools")) == digest
    assert source_digest(sys.modules["some_tools"]) == digest
    assert source_digest(len) == ""


def test_function_class_and_instance_are_opened_as_tools(written: Callable[..., None]) -> None:
    written()
    assert open_own("some_tools:population").call({"city": "Bern"}) == ToolResult("130", ok=True)
    assert open_own("some_tools:Clock").name == "clock"
    assert open_own("some_tools:clock") is load_object("some_tools:clock", "tools")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bad", "bad: parameter 'city' has no type hint"),
        ("Tables", "expected a function, or a tool with name, schema, call and close, found Tables"),
        ("json", "expected a function, .* found module"),
        ("NeedsMore", "the class cannot be made: TypeError: .*'more'"),
        ("misnamed", "name: expected 1 to 64 of the characters .*, got 'two words'"),
    ],
)
def test_what_is_no_tool_is_an_error_that_says_what_was_expected(
    written: Callable[..., None], name: str, said: str
) -> None:
    written()
    with pytest.raises(ConfigError, match=f"^tools: 'some_tools:{name}': .*{said}"):
        open_own(f"some_tools:{name}")


GOOD = {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {"a": {}}}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "function"}, "schema: expected"),
        (GOOD, "schema: expected"),
        ({"type": "function", "function": {**GOOD, "name": "other"}}, r"function\.name: expected the tool's name"),
        ({"type": "function", "function": {**GOOD, "description": " "}}, r"function\.description: expected"),
        ({"type": "function", "function": {**GOOD, "parameters": {}}}, r"function\.parameters: expected"),
        (
            {"type": "function", "function": {**GOOD, "parameters": {**GOOD["parameters"], "required": ["b"]}}},
            "required: expected names out of properties",
        ),
        ({"type": "function", "function": GOOD, "x": {1, 2}}, "cannot be had as JSON: TypeError"),
        ({"type": "function", "function": GOOD, "x": float("nan")}, "cannot be had as JSON: ValueError"),
    ],
)
def test_schema_of_another_shape_is_refused(schema: object, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^here: .*{said}"):
        check_schema(cast(Tool, SimpleNamespace(name="clock", schema=schema)), "here")
