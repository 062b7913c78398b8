"""What models, tools and files may say at their worst, as hypothesis strategies: texts, calls, actions, items."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from agent_r1.chat import Chat
from agent_r1.questions.records import Json
from agent_r1.sampler import Action

TAGS = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<answer>", "</answer>", "<think>",
    "</think>", "<|python_tag|>", "<|eom_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<|pad|>", "<|endoftext|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<start_of_turn>",
)  # fmt: skip
HARD = (
    "", " ", "\n", "\r\n", "\0", "\ud800", "a\udfffb", "\ufeff", "\u202eabc\u202c", "\u2028", "e\u0301\u0301",
    "\U0001f469\u200d\U0001f680", "{", "}", "[", "]", '"', "\\", "\\u", "\\ud800", "null", "NaN", "1e999", "-Infinity",
    "9" * 5000, "<", "<<answer>", "</", "<tool_", "<|im_", "assistant\n", "```", "{'name': 'look'}", "word " * 300,
)  # fmt: skip
DEEP = (
    "[" * 3000,
    '{"a":' * 3000,
    *('{"name": "look", "arguments": {"x": ' + "[" * depth + "]" * depth + "}}" for depth in (90, 98, 99, 930, 960)),
)
NAMES = ("look", "nope", "search", "sql", "schema", "lookup", "calculator")
PARAMETERS = {
    "search": ("query",),
    "sql": ("query",),
    "schema": ("table",),
    "lookup": ("entity", "relation"),
    "calculator": ("expression",),
}
_GONE = "\0gone"
KEYS: tuple[str, ...] = ("x", "query", "expression", "table", "entity", "relation", "name", "arguments", "")

plain_texts: st.SearchStrategy[str] = st.text(st.characters(), max_size=20)
"""Any characters, half surrogate pairs among them."""
texts: st.SearchStrategy[str] = st.lists(
    st.one_of(plain_texts, st.sampled_from(TAGS), st.sampled_from(HARD)), max_size=5
).map("".join)
json_values: st.SearchStrategy[Json] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=6,
)


def _argument_values(values: Sequence[str]) -> st.SearchStrategy[Json]:
    return st.one_of(st.sampled_from(values), json_values) if values else json_values


def calls(values: Sequence[str] = (), names: Sequence[str] = NAMES) -> st.SearchStrategy[str]:
    """Calls in both formats, most of them well-formed; `values` are arguments worth trying."""
    value = _argument_values(values)
    return st.builds(
        _call,
        st.sampled_from(names),
        st.one_of(st.none(), st.dictionaries(st.sampled_from(KEYS), value, max_size=2)),
        st.lists(value, min_size=2, max_size=2),
        st.sampled_from(("arguments", "arguments", "parameters", "args")),
        st.sampled_from(("<tool_call>\n{}\n</tool_call>", "<tool_call>{}</tool_call>", "{}", "<|python_tag|>{}")),
        st.booleans(),
        st.booleans(),
    )


def _call(
    name: str, odd: dict[str, Json] | None, fitting: list[Json], key: str, frame: str, quoted: bool, escaped: bool
) -> str:
    arguments = dict(zip(PARAMETERS.get(name, ("x",)), fitting, strict=False)) if odd is None else odd
    shown: Json = json.dumps(arguments) if quoted else arguments
    return frame.replace("{}", json.dumps({"name": name, key: shown}, ensure_ascii=escaped), 1)


def said(values: Sequence[str] = (), names: Sequence[str] = NAMES) -> st.SearchStrategy[str]:
    """What a model may write: calls, answers and thinking, whole, cut off, nested, doubled and broken."""
    whole = st.one_of(
        calls(values, names),
        texts,
        texts.map(lambda text: f"<answer>{text}</answer>"),
        texts.map(lambda text: f"<think>{text}</think>"),
        st.sampled_from(DEEP),
        st.sampled_from(DEEP).map(lambda text: f"<tool_call>{text}</tool_call>"),
    )
    return st.lists(st.one_of(whole, mutated(whole)), min_size=1, max_size=4).map("".join)


def mutated(whole: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Texts that something was done to, which may be nothing."""
    return st.builds(_mutated, whole, whole, st.integers(0, 2**20), st.integers(0, 5))


def _mutated(text: str, other: str, place: int, how: int) -> str:
    """Cut off, begun late, a character lost, another one put in, spliced with another text, or doubled."""
    at = place % (len(text) + 1)
    match how:
        case 0:
            return text[:at]
        case 1:
            return text[at:]
        case 2:
            return text[:at] + text[at + 1 :]
        case 3:
            return text[:at] + '"{<}\\'[place % 5] + text[at:]
        case 4:
            return text[:at] + other + text[at:]
    return text + text


def actions(chat: Chat, spoken: st.SearchStrategy[str]) -> st.SearchStrategy[Action]:
    """What a sampler may return: a text's tokens, or any tokens at all, control tokens and unknown ones among them."""
    special = sorted({*chat.tokenizer.added_tokens_decoder, *chat.end_ids, 0})
    ids = st.one_of(st.integers(0, len(chat.tokenizer) + 5), st.sampled_from(special))
    encoded = spoken.map(lambda text: tuple(chat.action(text.encode(errors="replace").decode())))
    written = chat.call("look", {"x": "a"})  # in the model's own format, so that most turns go on
    called = st.sampled_from((written, written * 2)).map(lambda text: _action(tuple(chat.action(text)), finished=True))
    return st.one_of(
        called,
        called,
        st.builds(_action, encoded, st.sampled_from((True, True, True, False))),
        st.builds(_action, st.lists(ids, min_size=1, max_size=30).map(tuple), st.booleans()),
    )


def _action(ids: tuple[int, ...], finished: bool) -> Action:
    kept = ids if finished or len(ids) == 1 else ids[:-1]
    return Action(kept, tuple(-0.25 * (place % 7) for place in range(len(kept))), finished)


def changed(items: Sequence[Json]) -> st.SearchStrategy[Json]:
    """Items of a file of which some values, at any depth, became something else or are gone."""
    changes = st.lists(st.tuples(st.integers(0, 2**20), st.one_of(json_values, st.just(_GONE))), max_size=3)
    return st.builds(_changed, st.sampled_from(items), changes)


def _changed(item: Json, changes: Sequence[tuple[int, Json]]) -> Json:
    item = copy.deepcopy(item)
    for number, value in changes:
        places = list(_places(item))
        if not places:
            break
        holder, key = places[number % len(places)]
        if value == _GONE:
            del holder[key]
        else:
            holder[key] = value
    return item


def _places(value: Json) -> Iterator[tuple[Any, Any]]:
    """Every place of a value inside another one: what holds it, and its key or position there."""
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in found:
        yield value, key
        yield from _places(inner)
