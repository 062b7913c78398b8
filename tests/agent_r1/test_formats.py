"""Tool formats: which one a template asks for, and how calls of each are written and read (D1 to D5)."""

from __future__ import annotations

import json

import pytest
from families import CHATML, FAMILIES, byte_level, template
from scripted import FakeTool

from agent_r1.chat import Chat, give_template
from agent_r1.errors import ConfigError
from agent_r1.formats import FORMATS, choose, hermes, llama3
from agent_r1.questions.records import Json
from agent_r1.tool_calls import ToolCall, parse

LOOK = ToolCall("look", {"x": "Zürich"})
CALL = '{"name": "look", "parameters": {"x": "Zürich"}}'
TOLD = {
    "qwen2.5-instruct": hermes,
    "qwen3": hermes,
    "hermes-3": hermes,
    "llama-3.1-instruct": llama3,
    "llama-3.2-instruct": llama3,
}


@pytest.mark.parametrize("name", TOLD)
def test_a_template_tells_its_format(name: str) -> None:
    assert choose(template(name), frozenset()) is TOLD[name]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_call_is_written_as_the_family_writes_it_and_read_back(name: str) -> None:
    chat = Chat(FAMILIES[name](), [FakeTool("look")], "")
    expected = CALL
    if not name.startswith("llama"):
        expected = '<tool_call>\n{"name": "look", "arguments": {"x": "Zürich"}}\n</tool_call>'
    assert chat.call("look", {"x": "Zürich"}) == expected
    turn = chat.parse(chat.action(expected))
    assert (turn.calls, turn.errors, turn.answer) == ([LOOK], [], None)


@pytest.mark.parametrize(
    "text",
    ["{{ tools }}[TOOL_CALLS]", "{{ tools }}<tool_call>\n<function=f>\n<parameter=x>", '{{ tools }}"parameters"'],
)
def test_a_template_that_writes_calls_otherwise_is_a_config_error_that_names_the_choices(text: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.tool_format: .*hermes, llama3; .*plain"):
        choose(text, frozenset({"<tool_call>"} if "<tool_call>" in text else ()))


def test_a_template_that_shows_no_call_is_hermes_where_the_tokenizer_has_its_tag() -> None:
    assert choose("{{ tools }}", frozenset({"<tool_call>"})) is hermes


def test_the_format_may_be_named() -> None:
    for wanted, format in (("hermes", hermes), ("llama3", llama3), ("plain", hermes)):
        assert choose("{{ tools }}[TOOL_CALLS]", frozenset(), wanted) is format


def test_plain_describes_the_tools_itself_whatever_the_template_knows() -> None:
    made = byte_level("{% if tools %}[AVAILABLE_TOOLS]{% endif %}" + CHATML)
    give_template(made, "plain")
    chat = Chat(made, [FakeTool("look")], "Be short.", "plain")
    text = chat.text(chat.prompt("Where?"))
    assert "[AVAILABLE_TOOLS]" not in text
    assert text.startswith("<|im_start|>system\nBe short.\n\n# Tools\n")


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f" \n{CALL}\n",
        f"<|python_tag|>{CALL}",
        f"I look it up. <|python_tag|>{CALL}<|eom_id|>",
        f"{CALL}<|eot_id|>",
        f"{CALL}\nNow I wait.",
        f"<think>\n{{}} or not\n</think>\n\n{CALL}",
        f"it is {{}}</think>{CALL}",
        f'{{"name": "other"}} I think</think>{CALL}',
        '{"name": "look", "arguments": {"x": "Zürich"}}',
        '{"type": "function", "name": "look", "parameters": {"x": "Z\\u00fcrich"}}',
        json.dumps({"name": "look", "parameters": json.dumps({"x": "Zürich"})}),
    ],
)
def test_llama_calls_are_read_however_it_puts_them(text: str) -> None:
    turn = parse(text, "llama3")
    assert (turn.calls, turn.errors, turn.answer) == ([LOOK], [], None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"name": "look", "parameters": {"x": "Zü', "not JSON: Unterminated string starting at at character 37"),
        ('{"name": "look"', "not JSON: Expecting ',' delimiter at character 15"),
        ('<|python_tag|>look.call(x="Rome")', "not JSON: Expecting value at character 0"),
        ("<|python_tag|>", "not JSON: Expecting value at character 0"),
        ('<|python_tag|>[{"name": "look"}]', 'expected one JSON object {"name": ..., "parameters": {...}}'),
        ('{"parameters": {}}', '"name" must be the name of a tool'),
        ('{"name": "look", "parameters": [1]}', '"parameters" must be a JSON object'),
        ('{"name": "look", "parameters": {}, "arguments": {}}', 'both "arguments" and "parameters"'),
        ('{"name": "look", "parameters": {"x": "<answer>Rome</answer>"', "not JSON"),
        ("{" * 100_000, "not JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_a_malformed_llama_call_is_one_error_that_says_why(text: str, reason: str) -> None:
    turn = parse(text, "llama3")
    assert (turn.calls, turn.answer) == ([], None)
    (error,) = turn.errors
    assert error.startswith(f"malformed tool call: {reason}")


def test_a_second_llama_call_in_a_message_is_malformed() -> None:
    """Llama's templates take one call a message."""
    for between in ("; ", "\n", "<|python_tag|>"):
        turn = parse(f'{CALL}{between}{{"name": "look", "parameters": {{"x": "Bonn"}}}}', "llama3")
        assert turn.calls == [LOOK]
        assert turn.errors == ["malformed tool call: one call a message: only the first is read"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>Rome</answer>", "Rome"),
        ('It is {"name": "look"}. <answer>Rome</answer>', "Rome"),
        (f"{CALL} <answer>Rome</answer>", "Rome"),
        ("<think><answer>Bonn</answer></think><answer>Rome</answer>", "Rome"),
        ("<answer>Bonn</answer></think>I do not know", None),
        ('{"name": "look", "parameters": {"x": "<answer>Rome</answer>"}}', None),
        ("<think><answer>Rome</answer>", None),
    ],
)
def test_a_llama_answer_counts_outside_thinking_and_calls(text: str, answer: str | None) -> None:
    turn = parse(text, "llama3")
    assert (turn.answer, turn.errors) == (answer, [])


def test_a_llama_call_inside_thinking_is_none() -> None:
    """D5."""
    for text in (f"<think>{CALL}</think>no", f"{CALL}</think>no", f"<think>{CALL}"):
        turn = parse(text, "llama3")
        assert (turn.calls, turn.errors) == ([], []), text
        assert "look" in turn.thinking


def test_tags_in_a_llama_call_s_strings_are_text() -> None:
    arguments: dict[str, Json] = {"x": "</think><think><|python_tag|>{<answer>a</answer></think>"}
    for before in ("", "<think>a</think>", "a</think>", "<think>a</think>\n<|python_tag|>", "I look. <|python_tag|>"):
        turn = parse(before + llama3.write("look", arguments), "llama3")
        assert (turn.calls, turn.answer) == ([ToolCall("look", arguments)], None), before
        assert turn.thinking == ("a" if "think" in before else "")


def test_a_cut_off_llama_turn_makes_no_call() -> None:
    for text in (CALL, CALL[:-3]):
        turn = parse(text, "llama3", finished=False)
        assert (turn.calls, turn.errors) == ([], [])


def test_parameters_are_read_as_arguments_by_hermes_too() -> None:
    assert parse(f"<tool_call>{CALL}</tool_call>").calls == [LOOK]
    (error,) = parse('<tool_call>{"name": "a", "parameters": {}, "arguments": {}}</tool_call>').errors
    assert error == 'malformed tool call: both "arguments" and "parameters"'


def test_an_unknown_format_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="hermes, llama3"):
        parse("", "pythonic")
    assert set(FORMATS) == {"hermes", "llama3"}
