"""How one turn's text is read: calls, malformed calls, answers and thinking."""

import json

import pytest

from agent_r1.tool_calls import ToolCall, parse

GOOD = '<tool_call>{"name": "search", "arguments": {"query": "Rome"}}</tool_call>'
SEARCH = ToolCall("search", {"query": "Rome"})


def call(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_call_with_text_around_it_is_read() -> None:
    turn = parse(f"Let me look. {GOOD}\n<|im_end|>")
    assert (turn.calls, turn.errors, turn.answer, turn.thinking) == ([SEARCH], [], None, "")


def test_all_calls_of_a_turn_are_read_in_order() -> None:
    turn = parse(call("a", {"x": 1}) + GOOD + call("b", {}))
    assert turn.calls == [ToolCall("a", {"x": 1}), SEARCH, ToolCall("b", {})]


def test_malformed_call_does_not_hide_the_well_formed_one_after_it() -> None:
    turn = parse(f'<tool_call>{{"name": "q", "arguments": {{"a": 1,}}}}</tool_call>{GOOD}')
    assert turn.calls == [SEARCH]
    assert len(turn.errors) == 1
    assert "not JSON" in turn.errors[0]


def test_missing_arguments_are_no_arguments() -> None:
    assert parse('<tool_call>{"name": "q"}</tool_call>').calls == [ToolCall("q", {})]


def test_arguments_given_as_a_json_string_are_decoded() -> None:
    assert parse(call("q", '{"a": "Zürich"}')).calls == [ToolCall("q", {"a": "Zürich"})]


def test_unknown_tool_name_is_left_to_the_environment() -> None:
    assert parse(call("nope", {})).calls == [ToolCall("nope", {})]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"name": "q", "arguments": {"a": 1,}}', "not JSON"),
        ("{'name': 'q'}", "not JSON"),
        ("", "not JSON"),
        ("q(a=1)", "not JSON"),
        ('{"name": "q", "argum', "not JSON"),
        ('[{"name": "q"}]', "one JSON object"),
        ("null", "one JSON object"),
        ("{}", '"name"'),
        ('{"arguments": {}}', '"name"'),
        ('{"name": 3}', '"name"'),
        ('{"name": " "}', '"name"'),
        ('{"name": "q", "arguments": [1]}', '"arguments"'),
        ('{"name": "q", "arguments": null}', '"arguments"'),
        ('{"name": "q", "arguments": "Rome"}', '"arguments"'),
        ('{"name": "q", "arguments": "[1]"}', '"arguments"'),
        ('{"name": "q", "arguments": {"a": NaN}}', "NaN"),
        ('{"name": "q", "arguments": {"a": -Infinity}}', "-Infinity"),
        ('{"name": "q", "arguments": {"a": 1e999}}', "float"),
        ('{"name": "q", "arguments": {"a": 1, "a": 2}}', "twice"),
        ('{"name": "q", "name": "r"}', "twice"),
        ('{"name": "q", "arguments": {"a": "\\ud800"}}', "surrogate"),
        ('{"name": "q", "arguments": {"a": ' + "9" * 5000 + "}}", "digits"),
        ('{"name": "q", "arguments": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}", "too deeply"),
        (json.dumps({"name": "q", "arguments": "[" * 100_000}), "too deeply"),
        ('{"name": "q", "arguments": {"a": ' + "[" * 99 + "]" * 99 + "}}", "too deeply"),
        (json.dumps({"name": "q", "arguments": '{"a": ' + "[" * 100 + "]" * 100 + "}"}), "too deeply"),
        ('{"name": "q"} {"name": "r"}', "more than one"),
        ('{"name": "q"}}', "more than one"),
    ],
)
def test_malformed_call_is_one_error_that_says_why(body: str, reason: str) -> None:
    turn = parse(f"<tool_call>{body}</tool_call>")
    assert turn.calls == []
    assert len(turn.errors) == 1
    assert turn.errors[0].startswith("malformed tool call: ")
    assert reason in turn.errors[0]
    assert len(turn.errors[0]) < 250


def test_json_of_a_hundred_levels_is_read() -> None:
    """Deeper JSON is malformed: see the cases above. Both numbers count the objects around the list."""
    for deep in (GOOD.replace('"Rome"', "[" * 98 + "]" * 98), call("q", '{"a": ' + "[" * 99 + "]" * 99 + "}")):
        turn = parse(deep)
        assert (len(turn.calls), turn.errors) == (1, [])


@pytest.mark.parametrize("text", ["<tool_call>", GOOD.removesuffix("</tool_call>"), '<tool_call>{"name": "q", "argum'])
def test_unclosed_call_of_a_finished_turn_is_an_error(text: str) -> None:
    turn = parse(text)
    assert turn.calls == []
    assert len(turn.errors) == 1
    assert "not closed" in turn.errors[0]


def test_unclosed_call_does_not_swallow_the_call_after_it() -> None:
    turn = parse(f"I will use <tool_call> now: {GOOD}")
    assert turn.calls == [SEARCH]
    assert len(turn.errors) == 1


def test_stray_closing_tag_closes_nothing() -> None:
    assert parse(f"</tool_call>{GOOD}</tool_call>").calls == [SEARCH]


@pytest.mark.parametrize(
    "text", ['<tool_call>{"name":"q","argum', GOOD, GOOD + '<tool_call>{"na', "<tool_call>x</tool_call>"]
)
def test_turn_that_was_cut_off_makes_no_call(text: str) -> None:
    turn = parse(text, finished=False)
    assert turn.calls == []
    assert turn.errors == []


def test_call_inside_thinking_is_ignored() -> None:
    turn = parse(f"<think>maybe {GOOD} <answer>a</answer></think>")
    assert (turn.calls, turn.errors, turn.answer) == ([], [], None)
    assert turn.thinking == f"maybe {GOOD} <answer>a</answer>"


def test_all_before_an_orphan_end_of_thinking_is_thinking() -> None:
    turn = parse(f"so <tool_call> bad {GOOD} <answer>a</answer></think>{call('b', {})}<answer>c</answer>")
    assert (turn.calls, turn.errors, turn.answer) == ([ToolCall("b", {})], [], "c")
    assert turn.thinking == f"so <tool_call> bad {GOOD} <answer>a</answer>"


def test_all_after_an_unclosed_thinking_is_thinking() -> None:
    turn = parse(f"<answer>a</answer><think>hm {GOOD} <answer>b</answer>")
    assert (turn.calls, turn.answer, turn.thinking) == ([], "a", f"hm {GOOD} <answer>b</answer>")


def test_thoughts_of_a_turn_are_kept_in_order() -> None:
    turn = parse(f"<think> a </think>{GOOD}<think>b</think><think></think>")
    assert (turn.calls, turn.thinking) == ([SEARCH], "a\nb")


@pytest.mark.parametrize(
    "tag", ["<answer>x</answer>", "</tool_call>", "<tool_call>", "<think>", "</think>", "</answer>"]
)
def test_tag_inside_the_json_of_a_call_is_only_text(tag: str) -> None:
    turn = parse(call("q", {"a": tag}))
    assert turn.calls == [ToolCall("q", {"a": tag})]
    assert (turn.errors, turn.answer, turn.thinking) == ([], None, "")


def test_answer_is_read_beside_calls() -> None:
    turn = parse(f"<answer>a</answer>{GOOD}<answer>b</answer>")
    assert (turn.calls, turn.answer) == ([SEARCH], "b")
    assert parse("<answer><think>hm</think>Paris</answer>").answer == "Paris"


def test_pieces_around_a_call_do_not_make_a_tag() -> None:
    assert parse(f"<ans{GOOD}wer>a</answer>").answer is None


def test_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'xml'"):
        parse("", format="xml")


@pytest.mark.parametrize(
    "text",
    ["", "\x00", "\ud800", "<tool_call>" * 5_000, "<think>" * 20_000, "</think>" * 20_000, '<tool_call>{"' * 9_999],
)
def test_no_text_makes_the_parser_raise(text: str) -> None:
    assert parse(text).calls == []
