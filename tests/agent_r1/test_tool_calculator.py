"""The calculator: what it computes, and what it refuses quickly."""

from typing import cast

import pytest

from agent_r1.tools.calculator import Calculator
from agent_r1.tools.protocol import JsonObject, Tool


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("6 / 2", "3"),
        ("7 / 2", "3.5"),
        ("7 // 2", "3"),
        ("-7 % 3", "2"),
        ("2 ** 10", "1024"),
        ("2 ** -3", "0.125"),
        ("--3", "3"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "0.333333333333333"),
        ("123456789012.75 * 1", "123456789012.75"),
        ("10 ** 20 + 1", "100000000000000000001"),
        ("-0.0", "0"),
        ("abs(-3.50)", "3.5"),
        ("round(2.567, 1)", "2.6"),
        ("round(1234, -2)", "1200"),
        ("min(3, 1, 2)", "1"),
        ("max(3)", "3"),
        ("sqrt(16)", "4"),
        ("1,234 + 1", "1235"),
        ("(1,234,567.5 - 0.5) * 2", "2469134"),
        ("max(1,200)", "200"),
        ("max((1,200), 300)", "1200"),
        (" 1 ", "1"),
    ],
)
def test_arithmetic_is_computed_and_shown_short(expression: str, expected: str) -> None:
    result = Calculator().call({"expression": expression})
    assert (result.text, result.ok) == (expected, True)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 / 0", "zero"),
        ("5 % 0", "zero"),
        ("0 ** -1", "zero"),
        ("9**9**9**9", "too large"),
        ("10**99 * 10**99", "too large"),
        ("9" * 450, "too large"),
        ("1e400", "too large"),
        ("2.0 ** 10000", "too large"),
        ("1" + "+1" * 300, "500 characters"),
        ("round(1, 10**9)", "digits"),
        ("round(1.5, -10**9)", "digits"),
        ("sqrt(-1)", "negative"),
        ("(-8) ** (1/3)", "negative"),
        ("1,23", "comma"),
        ("1 +", "not arithmetic"),
        ("3 4", "not arithmetic"),
        ("\x00", "not arithmetic"),
        ("\ud800", "not arithmetic"),
        ("(" * 240 + "1" + ")" * 240, "not arithmetic"),
        ("2 ^ 3", "**"),
        ("x + 1", "'x'"),
        ("__import__(os).system(true)", "Call"),
        ("__import__(os)", "'__import__'"),
        ("eval(1)", "'eval'"),
        ("(1).__class__", "Attribute"),
        ("'a' * 9", 'holds "\'"'),
        ("True + 1", "Constant"),
        ("1j", "Constant"),
        ("[1] * 9", "List"),
        ("lambda: 1", "Lambda"),
        ("1 < 2", "Compare"),
        ("max()", "0 arguments"),
        ("abs(1, 2)", "2 arguments"),
        ("max(*[1])", "Starred"),
        ("1 + 1 # is 3", "'#'"),
        ("(1 # one\n+ 2)", "'#'"),
        ("max(1, key=2)", "'max'"),
    ],
)
def test_what_cannot_be_computed_is_a_failure_that_says_why(expression: str, reason: str) -> None:
    result = Calculator().call({"expression": expression})
    assert not result.ok
    assert reason in result.text
    assert len(result.text) < 200


@pytest.mark.parametrize(
    "arguments", [{}, None, 3, {"expression": None}, {"expression": 3}, {"expression": ""}, {"query": "1"}]
)
def test_wrong_arguments_are_failures_that_name_the_parameter(arguments: object) -> None:
    result = Calculator().call(cast(JsonObject, arguments))
    assert not result.ok
    assert "'expression'" in result.text


def test_extra_parameter_is_named() -> None:
    result = Calculator().call({"expression": "1", "precision": 3})
    assert not result.ok
    assert "'precision'" in result.text


def test_calculator_is_a_tool_with_an_openai_schema() -> None:
    tool: Tool = Calculator()
    assert tool.name == "calculator"
    assert tool.schema["type"] == "function"
    tool.close()
