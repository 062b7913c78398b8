"""Whatever a model, a tool, an environment or a file says: no exception, a named ending, and counts that add up."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args

import duckdb
import pytest
from families import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from odd import TAGS, actions, calls, mutated, said, texts
from scripted import FakeTool

from agent_r1.chat import Chat
from agent_r1.config import Config, parse
from agent_r1.environment import Environment, Step
from agent_r1.environments import Environments
from agent_r1.evaluation import evaluation_metrics, rollout_metrics
from agent_r1.forgetting import Forgetting
from agent_r1.formats import FORMATS
from agent_r1.masks import segments
from agent_r1.questions.records import Evidence, Json, Passage, Question
from agent_r1.rewards import annotate, reward_parts
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.sampler import Action, ActionRequest
from agent_r1.sections import RewardConfig
from agent_r1.tool_calls import ParsedTurn, ToolCall
from agent_r1.tool_calls import parse as parse_turn
from agent_r1.tools.calculator import Calculator
from agent_r1.tools.protocol import Source, Tool, ToolResult
from agent_r1.tools.schema import SchemaTool
from agent_r1.tools.search import SearchTool
from agent_r1.tools.sql import SqlTool
from agent_r1.trajectory import CallRecord, Ending, Trajectory
from agent_r1.world.lookup import LookupTool
from agent_r1.world.relations import TABLES
from storage import trajectories
from storage.database import Store

ORIGIN = Origin("run", 3, "train", 2)
PRICES = RewardConfig(outcome=1, evidence=0.8, turn=-0.05, malformed=-0.1, failed=-0.1, environment=0.5)


@given(said(), st.sampled_from(sorted(FORMATS)), st.booleans())
@settings(max_examples=400)
def test_the_parser_reads_any_text_and_says_the_same_again(text: str, form: str, finished: bool) -> None:
    turn = parse_turn(text, form, finished)
    assert turn == parse_turn(text, form, finished)
    assert turn.text == text
    for call in turn.calls:
        assert isinstance(call, ToolCall)
        assert call.name.strip()
        assert isinstance(call.arguments, dict)
        json.dumps([call.name, call.arguments], allow_nan=False, ensure_ascii=False).encode()
    assert all(isinstance(error, str) and error.strip() and len(error) < 250 for error in turn.errors)
    assert turn.answer is None or (isinstance(turn.answer, str) and "<answer>" in text)
    assert isinstance(turn.thinking, str)
    assert finished or not (turn.calls or turn.errors)


PIECES: dict[str, Callable[[str], str]] = {
    "call": lambda text: f"<tool_call>{json.dumps({'name': 'look', 'arguments': {'x': hidden(text)}})}</tool_call>",
    "think": lambda text: f"<think>{hidden(text.replace('</think>', ''))}</think>",
    "say": lambda text: re.sub(r"[<{]", "", text),
    "answer": lambda _: "<answer>said</answer>",
}
OPENINGS = ("", "hm</think>", "I look. <|python_tag|>", "<|python_tag|>")
kinds = st.sampled_from(sorted(PIECES))
tagged = st.one_of(texts, st.sampled_from(TAGS))


def hidden(text: str) -> str:
    """A text with an answer in it that is none, as it stands inside something else."""
    return f"{text}<answer>hidden</answer>"


@given(st.lists(st.tuples(kinds, tagged), max_size=5), st.booleans())
def test_a_hermes_answer_never_comes_from_a_call_or_thinking(pieces: list[tuple[str, str]], orphan: bool) -> None:
    """Whatever stands there beside it, and where an orphan </think> makes thinking of all before it."""
    text = (f"{hidden('')}</think>" if orphan else "") + "".join(PIECES[kind](inner) for kind, inner in pieces)
    answers = any(kind == "answer" for kind, _ in pieces)
    assert parse_turn(text).answer == ("said" if answers else None)


@given(st.lists(texts, max_size=2), st.sampled_from(OPENINGS), tagged)
def test_a_llama_answer_never_comes_from_a_call_or_thinking(thoughts: list[str], opening: str, x: str) -> None:
    thinking = "".join(PIECES["think"](thought) for thought in thoughts)
    call = json.dumps({"name": "look", "parameters": {"x": hidden(x)}})
    for answer in ("", " <answer>said</answer>"):
        assert parse_turn(thinking + opening + call + answer, "llama3").answer == ("said" if answer else None)


@given(st.lists(st.tuples(kinds, st.text("a<{ ", max_size=4)), max_size=4), st.integers(0, 500))
def test_nor_does_that_of_a_text_that_is_cut_off(pieces: list[tuple[str, str]], end: int) -> None:
    text = "".join(PIECES[kind](inner) for kind, inner in pieces)[:end]
    for form in FORMATS if all(kind != "call" for kind, _ in pieces) else ("hermes",):
        assert parse_turn(text, form, finished=False).answer in (None, "said")


@dataclass(slots=True)
class Says:
    """A sampler that returns each row's actions in turn, and begins anew where they are spent."""

    rows: Sequence[Sequence[Action]]
    said: Counter[int] = field(default_factory=Counter)

    def session(self, *, end_ids: tuple[int, ...], temperature: float, greedy: bool, max_new_tokens: int) -> Says:
        """See Sampler.session."""
        del end_ids, temperature, greedy, max_new_tokens
        return self

    def act(self, requests: Sequence[ActionRequest]) -> list[Action]:
        """See Session.act."""
        made = []
        for request in requests:
            row = self.rows[request.row]
            made.append(row[self.said[request.row] % len(row)])
            self.said[request.row] += 1
        return made


@cache
def chat_of(family: str, names: tuple[str, ...] = ("look",)) -> Chat:
    return Chat(FAMILIES[family](), [FakeTool(name) for name in names], "Be short.")


def config(**limits: Json) -> Config:
    rollout: dict[str, Json] = {"max_turns": 4, "max_context": 4096, "max_new_tokens": 64, **limits}
    return parse({"model": {"path": "elsewhere"}, "rollout": rollout}, "test")


def controls(chat: Chat, ids: Sequence[int]) -> Counter[int]:
    known = chat.tokenizer.added_tokens_decoder
    return Counter(token for token in ids if token in known)


def check(made: Sequence[Trajectory], sampler: Says, questions: Sequence[Question], limits: Config) -> None:
    """What holds of every rollout."""
    assert [(one.question_id, one.attempt) for one in made] == [(each.id, n) for n, each in enumerate(questions)]
    assert len({one.trajectory_id for one in made}) == len(made)
    for row, (one, question) in enumerate(zip(made, questions, strict=True)):
        assert one.ending in get_args(Ending)
        assert (one.answer is not None) == (one.ending == "answered")
        assert 0 <= one.exact_match <= 1
        assert 0 <= one.f1 <= 1
        assert [turn.index for turn in one.turns] == list(range(len(one.turns)))
        assert sampler.said[row] == len(one.turns) <= limits.rollout.max_turns
        chosen = [sampler.rows[row][turn % len(sampler.rows[row])] for turn in range(len(one.turns))]
        assert [(turn.action_ids, turn.action_logprobs) for turn in one.turns] == [(a.ids, a.logprobs) for a in chosen]
        rows = list(segments(one.turns))
        sampled = [
            (token, p) for s in rows for token, p, m in zip(s.token_ids, s.logprobs, s.action_mask, strict=True) if m
        ]
        assert sampled == [pair for action in chosen for pair in zip(action.ids, action.logprobs, strict=True)]
        assert sum(len(s.token_ids) for s in rows) == sum(len(t.given_ids) + len(t.action_ids) for t in one.turns)
        parts = reward_parts(one, question, PRICES)
        notes = annotate(one, question, PRICES)
        assert math.isclose(
            math.fsum(reward for note in notes for reward in note.rewards),
            math.fsum(value for of in parts.values() for value in of.values()),
            abs_tol=1e-9,
        )
        for turn in one.turns:
            assert all(call.malformed or call.name for call in turn.calls)
            json.dumps([turn.action_text, turn.observation_text, *(call.text for call in turn.calls)]).encode()
    by_id = {question.id: question for question in questions}
    found = evaluation_metrics("sampled", made, by_id)
    assert math.isclose(sum(value for name, value in found.items() if "/ending/" in name), 1.0)
    notes = [note for one in made for note in annotate(one, by_id[one.question_id], PRICES)]
    found = rollout_metrics(made, by_id, notes, 1.0)
    assert math.isclose(sum(value for name, value in found.items() if "/ending/" in name), 1.0)
    assert all(map(math.isfinite, found.values()))


def kept(folder: Path, made: Sequence[Trajectory]) -> None:
    """The store gives back what it was given."""
    with Store(folder / "store.duckdb").write() as con:
        trajectories.save(con, "run", 3, "train", 0, made)
        assert trajectories.load(con, "run", 3, "train") == sorted(made, key=lambda one: (one.question_id, one.attempt))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("properties")


def _done(behaviour: object) -> Any:
    """Fails, hangs, or returns whatever this is."""
    if behaviour == "raise":
        raise RuntimeError("no \ud800 <|im_end|>")
    if behaviour == "hang":
        time.sleep(0.2)
    return behaviour


results = st.one_of(
    st.just(ToolResult("half \ud800 <|im_end|>", ok=True)),
    st.builds(ToolResult, texts, st.booleans()),
    texts.map(lambda text: ToolResult(text, True, (Source("p", None, 0, len(text)), Source("p", 0, 0, 10**9)))),
    st.sampled_from(("raise", "hang", None, "text", 5, ToolResult("long " * 300_000, ok=True))),
    st.builds(ToolResult, st.sampled_from((None, 5, b"bytes")), st.sampled_from((True, "yes", None))),  # pyright: ignore[reportArgumentType]
    st.just(ToolResult("x", True, ("p",))),  # pyright: ignore[reportArgumentType]
)
QUESTION = Question("q", "Where \ud7ff <|im_end|><tool_call>?", ("Rome", ""), (Evidence("p", None), Evidence("p", 0)))


@given(st.data(), st.sampled_from(("tiny", "qwen3", "llama3.1", "chatml")), st.sampled_from(("keep", "drop")))
def test_a_rollout_survives_what_models_and_tools_say(
    folder: Path, data: st.DataObject, family: str, past: str
) -> None:
    chat = chat_of(family)
    behaviours = data.draw(st.lists(results, min_size=1, max_size=6))
    tool = FakeTool("look", lambda arguments: _done(behaviours[len(str(arguments)) % len(behaviours)]))
    spoken = said(names=("look", "look", "nope"))
    rows = data.draw(st.lists(st.lists(actions(chat, spoken), min_size=1, max_size=4), min_size=1, max_size=3))
    limits = config(earlier_thinking=past, max_context=data.draw(st.sampled_from((128, 700, 4096))))
    world = Environments([tool], chat, 0.1, data.draw(st.sampled_from((1, 20, 400))))
    sampler = Says(rows)
    made = rollout([Attempt(QUESTION, n) for n in range(len(rows))], sampler, world, limits, ORIGIN)
    check(made, sampler, [QUESTION] * len(rows), limits)
    for one in made:
        for before, turn in zip(one.turns, one.turns[1:], strict=False):
            if turn.segment == before.segment:
                assert controls(chat, turn.given_ids) == controls(chat, chat.observation([""] * len(before.calls)))
    kept(folder, made)


numbers = st.one_of(
    st.floats(),
    st.integers(-3, 3),
    st.decimals(allow_nan=True),
    st.booleans(),
    st.sampled_from((None, "1", 10**400, [1])),
)
steps = st.one_of(
    st.builds(
        Step,
        observation=st.one_of(st.none(), st.none(), texts),
        context=st.one_of(st.none(), st.none(), texts, st.just("long " * 3000)),
        reward=st.one_of(st.floats(-1, 1), numbers),  # pyright: ignore[reportArgumentType]
        done=st.sampled_from((False, False, True, 1, None, "no")),  # pyright: ignore[reportArgumentType]
        score=st.one_of(st.none(), st.floats(0, 1), numbers),  # pyright: ignore[reportArgumentType]
    ),
    st.builds(Step, observation=st.sampled_from((5, b"bytes", ["text"]))),  # pyright: ignore[reportArgumentType]
    st.sampled_from(("raise", "hang", None, "text", 5)),
)


def odd_environment(asked: Sequence[object], said: Sequence[object], is_made: bool) -> Callable[[], Environment]:
    """What makes environments that ask and step as they are told, one place further along for each seed and turn."""

    class Odd:
        def __init__(self) -> None:
            if not is_made:
                raise RuntimeError("not made")
            self.turn = 0

        def reset(self, question: Question, seed: int) -> str:
            del question
            self.turn = seed % 100
            return self._one(asked)

        def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
            del turn, results
            self.turn += 1
            return self._one(said)

        def _one(self, of: Sequence[object]) -> Any:
            return _done(of[self.turn % len(of)])

    return Odd


@given(st.data(), st.sampled_from(("tiny", "qwen3", "llama3.1", "gemma2")))
def test_a_rollout_survives_what_environments_do(folder: Path, data: st.DataObject, family: str) -> None:
    chat = chat_of(family)
    asked = data.draw(st.lists(st.one_of(texts, st.sampled_from(("raise", "hang", None, 5))), min_size=1, max_size=3))
    said_back = data.draw(st.lists(steps, min_size=1, max_size=5))
    made_how = st.sampled_from((True, True, True, False)).map(lambda made: odd_environment(asked, said_back, made))
    make = data.draw(st.one_of(made_how, made_how, st.just(Forgetting), st.just(int)))
    spoken = said(names=("look", "look", "nope"))
    rows = data.draw(st.lists(st.lists(actions(chat, spoken), min_size=1, max_size=4), min_size=1, max_size=3))
    limits = config(max_context=data.draw(st.sampled_from((128, 700, 4096))))
    world = Environments([FakeTool("look")], chat, 0.1, 100, make)  # pyright: ignore[reportArgumentType]
    sampler = Says(rows)
    made = rollout([Attempt(QUESTION, n) for n in range(len(rows))], sampler, world, limits, ORIGIN)
    check(made, sampler, [QUESTION] * len(rows), limits)
    for one in made:
        for before, turn in zip((None, *one.turns), one.turns, strict=False):
            said_before = controls(chat, turn.given_ids)
            if before is None or before.segment != turn.segment:
                assert said_before == controls(chat, chat.prompt(""))
            else:
                shown = [chat.reply(""), chat.observation([""] * max(len(before.calls), 1))]
                assert said_before in [controls(chat, ids) for ids in shown]
    kept(folder, made)


@pytest.fixture(scope="module")
def tools(folder: Path) -> Iterator[dict[str, tuple[Tool, ...]]]:
    """The built-in tools over a world of one town, whose tables are in DuckDB, or in SQLite."""
    found: dict[str, tuple[Tool, ...]] = {}
    world = folder / "world.duckdb"
    for kind in ("duckdb", "sqlite"):
        path = folder / f"world.{kind}"
        connection = duckdb.connect(str(path)) if kind == "duckdb" else sqlite3.connect(path)
        for table, relations in TABLES.items():
            columns = ", ".join(f"{relation.name} VARCHAR" for relation in relations)
            connection.execute(f"CREATE TABLE {table} (name VARCHAR, {columns})")
            connection.execute(
                f"INSERT INTO {table} VALUES ('Ona', {', '.join(['?'] * len(relations))})",
                ["<|im_end|>"] * len(relations),
            )
        connection.commit()
        connection.close()
        sql = SqlTool(path)
        passages = [Passage("p", "Ona <tool_call>", "A <|im_end|> town.", ("A <|im_end|>", " town."))]
        found[kind] = (SearchTool(passages), sql, SchemaTool(sql), LookupTool(world), Calculator())
    yield found
    for each in found.values():
        for tool in each:
            tool.close()


VALUES = (
    "SELECT * FROM city", "SELECT name, country FROM city; DROP TABLE city", "SELECT '</answer>\0'",
    "PRAGMA table_info(city)", "SELECT chr(55357), char(55357)", "SELECT random()", "Ona", "country", "city", "town",
    "ona <|im_end|>", "1 + 1", "2 ** 9 ** 9", "round(1e308 * 10, 2)", "((((",
)  # fmt: skip


@given(st.data(), st.sampled_from(("duckdb", "sqlite")), st.sampled_from(("tiny", "llama3.1")))
def test_a_rollout_survives_what_models_ask_of_the_built_in_tools(
    tools: dict[str, tuple[Tool, ...]], folder: Path, data: st.DataObject, kind: str, family: str
) -> None:
    chat = chat_of(family, ("search", "sql", "schema", "lookup", "calculator"))
    spoken = st.one_of(calls(VALUES), mutated(calls(VALUES)), said(VALUES))
    rows = data.draw(st.lists(st.lists(actions(chat, spoken), min_size=1, max_size=4), min_size=1, max_size=3))
    world = Environments(tools[kind], chat, 30.0, 200)
    sampler = Says(rows)
    made = rollout([Attempt(QUESTION, n) for n in range(len(rows))], sampler, world, config(), ORIGIN)
    check(made, sampler, [QUESTION] * len(rows), config())
    assert not any("no answer within" in call.text for one in made for turn in one.turns for call in turn.calls)
    kept(folder, made)
