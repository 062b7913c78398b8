"""The environment: calls run side by side, in order, with limits; whatever fails is an observation (D8, D9, D12)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
from scripted import FakeTool, call

from agent_r1.chat import Chat
from agent_r1.config import Config
from agent_r1.environments import MAX_CALLS, Environments, OfDatabase, open_tools
from agent_r1.questions.records import Passage, Question
from agent_r1.tool_calls import ParsedTurn, parse
from agent_r1.tools import concurrently
from agent_r1.tools.databases import Databases
from agent_r1.tools.protocol import JsonObject, Source, ToolResult
from agent_r1.tools.search import SearchTool
from agent_r1.world.relations import TABLES

QUESTION = Question("q", "Where?")


def environment(chat: Chat, *tools: FakeTool, timeout: float = 5.0, limit: int = 500) -> Environments:
    return Environments(tools, chat, timeout, limit)


def turn(*texts: str) -> ParsedTurn:
    return parse("\n".join(texts))


def asked(*texts: str) -> tuple[Question, ParsedTurn]:
    return QUESTION, turn(*texts)


def failing(arguments: JsonObject) -> ToolResult:
    raise RuntimeError(f"no {arguments['x']}" + "!" * 1000)


def test_calls_are_run_and_recorded_in_order(chat: Chat) -> None:
    """D7, D10: one record for each call."""
    tool = FakeTool("look")
    (records,) = environment(chat, tool).run_calls([asked(call("a"), call("b"), call("a"))])
    assert [record.text for record in records] == ["saw a", "saw b", "saw a"]
    assert [record.arguments for record in records] == [{"x": "a"}, {"x": "b"}, {"x": "a"}]
    assert all(record.ok and not record.malformed and record.name == "look" for record in records)
    assert len(tool.seen) == 3


def test_results_go_to_the_turn_that_asked(chat: Chat) -> None:
    turns = [asked(call("a"), call("nope", "other")), asked("nothing"), asked(call("b"))]
    records = environment(chat, FakeTool("look")).run_calls(turns)
    assert [[record.text for record in of] for of in records] == [
        ["saw a", "error: unknown tool 'other'; there is look"],
        [],
        ["saw b"],
    ]


def test_an_unknown_tool_is_malformed_and_the_known_ones_are_named(chat: Chat) -> None:
    """D12."""
    (records,) = environment(chat, FakeTool("look"), FakeTool("find")).run_calls([asked(call("a", "nope"))])
    assert records[0].malformed
    assert not records[0].ok
    assert records[0].text == "error: unknown tool 'nope'; there is look, find"


def test_malformed_calls_come_last_and_say_what_is_wrong(chat: Chat) -> None:
    """D2."""
    (records,) = environment(chat, FakeTool("look")).run_calls([asked("<tool_call>{,}</tool_call>", call("a"))])
    assert [record.text.split(":")[0] for record in records] == ["saw a", "error"]
    assert (records[1].name, records[1].malformed, records[1].ok) == ("", True, False)


def test_a_tool_that_raises_is_a_failed_call_with_a_limited_text_and_others_go_on(chat: Chat) -> None:
    """D8."""
    world = environment(chat, FakeTool("bad", failing), FakeTool("look"), limit=10_000)
    records = world.run_calls([asked(call("a", "bad"), call("b"))])[0]
    assert records[0].text.startswith("error: RuntimeError: no a!")
    assert len(records[0].text) <= 300
    assert not records[0].ok
    assert not records[0].malformed
    assert records[1].text == "saw b"


def test_more_calls_than_allowed_are_not_run_and_the_agent_is_told(chat: Chat) -> None:
    tool = FakeTool("look")
    (records,) = environment(chat, tool).run_calls([asked(*(call(str(number)) for number in range(MAX_CALLS + 2)))])
    assert len(tool.seen) == MAX_CALLS
    assert len(records) == MAX_CALLS + 1
    assert records[-1].text.startswith(f"error: only the first {MAX_CALLS} of {MAX_CALLS + 2} calls")
    assert records[-1].malformed


def test_a_turn_s_observation_is_limited_and_what_was_cut_is_no_source(chat: Chat) -> None:
    def reply(arguments: JsonObject) -> ToolResult:
        del arguments
        return ToolResult(
            "word " * 100, True, (Source("p", 0, 0, 5), Source("p", 1, 300, 400), Source("p", None, 0, 500))
        )

    for calls in (1, 3):
        (records,) = environment(chat, FakeTool("look", reply), limit=60).run_calls([asked(*[call("a")] * calls)])
        assert sum(len(chat.plain(record.text)) for record in records) <= 60
        assert all(record.text.endswith(" [cut]") for record in records)
        assert all(record.sources == (Source("p", 0, 0, 5),) for record in records)


def test_a_source_that_ends_where_the_text_was_cut_is_in_view(chat: Chat) -> None:
    text = "word " * 100
    _, shown = chat.cut(text, 60)
    sources = (Source("p", 0, 0, shown), Source("p", 1, 0, shown + 1))
    tool = FakeTool("look", lambda _: ToolResult(text, True, sources))
    assert environment(chat, tool, limit=60).run_calls([asked(call("a"))])[0][0].sources == sources[:1]


def test_half_a_surrogate_pair_in_what_a_tool_says_is_a_question_mark(chat: Chat) -> None:
    """Sources stay where they were."""

    def reply(arguments: JsonObject) -> ToolResult:
        if arguments["x"] == "raise":
            raise RuntimeError("\ud800")
        return ToolResult("a\ud800b", True, (Source("p", 0, 1, 3),))

    (records,) = environment(chat, FakeTool("look", reply)).run_calls([asked(call("a"), call("raise"))])
    assert [record.text for record in records] == ["a?b", "error: RuntimeError: ?"]
    assert records[0].sources == (Source("p", 0, 1, 3),)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "a call must return a ToolResult, got NoneType"),
        ("text", "a call must return a ToolResult, got str"),
        (ToolResult(5, True), "a result's text must be a str, got int"),  # pyright: ignore[reportArgumentType]
        (ToolResult("a", 1), "a result's ok must be a bool, got int"),  # pyright: ignore[reportArgumentType]
        (ToolResult("a", True, ("p",)), "a result's sources must be a tuple of Source"),  # pyright: ignore[reportArgumentType]
        (ToolResult("a", True, (Source("p", None, 0, "1"),)), "a result's sources"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_is_no_result_is_a_failed_call(chat: Chat, returned: ToolResult, problem: str) -> None:
    tool = FakeTool("look", lambda _: returned)
    (records,) = environment(chat, tool).run_calls([asked(call("a"))])
    assert records[0].text.startswith(f"error: TypeError: {problem}")
    assert (records[0].ok, records[0].malformed) == (False, False)


def test_more_malformed_calls_than_calls_are_allowed_are_counted_and_not_shown(chat: Chat) -> None:
    (records,) = environment(chat, FakeTool("look")).run_calls([asked("<tool_call>{</tool_call>" * (MAX_CALLS + 2))])
    assert len(records) == MAX_CALLS + 1
    assert records[-1].text == "error: 2 more calls are malformed"


class Hang:
    """A tool's reply that hangs until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def __call__(self, arguments: JsonObject) -> ToolResult:
        if str(arguments["x"]).startswith("hang"):
            self.let_go.wait(60)
        return ToolResult(f"saw {arguments['x']}", ok=True)


def test_a_call_that_hangs_is_given_up_and_no_other_is_harmed(chat: Chat) -> None:
    """D9, D14: one of four trajectories hangs."""
    hang = Hang()
    world = environment(chat, FakeTool("look", hang), timeout=0.3)
    records = world.run_calls([asked(call(x)) for x in ("a", "hang", "b", "c")])
    hang.let_go.set()
    assert [of[0].text for of in records] == ["saw a", "error: no answer within 0.3 seconds", "saw b", "saw c"]
    assert [of[0].ok for of in records] == [True, False, True, True]


def test_calls_that_hang_side_by_side_are_given_up_side_by_side() -> None:
    """Twice as many as there are slots, and one that works behind them: two time-outs in all, not sixteen."""
    hang = Hang()
    tool = FakeTool("look", hang)
    begun = time.monotonic()
    names = [f"hang {number}" for number in range(2 * concurrently.SLOTS)]
    results = concurrently.run([(tool, {"x": name}) for name in [*names, "last"]], timeout=0.25)
    seconds = time.monotonic() - begun
    hang.let_go.set()
    assert [result.ok for result in results] == [False] * len(names) + [True]
    assert results[-1].text == "saw last"
    assert seconds < 2.0


def test_a_late_answer_is_not_taken_for_another_call_s() -> None:
    def reply(arguments: JsonObject) -> ToolResult:
        time.sleep(0.4 if arguments["x"] == "slow" else 0.05)
        return ToolResult(str(arguments["x"]), ok=True)

    tool = FakeTool("look", reply)
    names = ["slow", *(str(number) for number in range(70))]
    results = concurrently.run([(tool, {"x": name}) for name in names], timeout=0.25)
    assert [result.text for result in results[1:]] == names[1:]
    assert results[0].text.startswith("error: no answer")


def test_a_database_tool_fails_for_a_question_that_names_no_database(chat: Chat) -> None:
    """A file may mix questions about databases with others, and what a model calls must not end the run."""
    sql = OfDatabase("sql", {}, Databases("nowhere").tool)
    ((record,),) = Environments([sql], chat, 5.0, 500).run_calls([asked(call("SELECT 1", name="sql"))])
    assert (record.text, record.ok) == ("error: this question is about no database, which sql needs", False)


def test_no_calls_give_no_results() -> None:
    assert concurrently.run([], timeout=1.0) == []


def test_a_hanging_call_does_not_keep_the_process_alive() -> None:
    script = """
import time
from agent_r1.tools import concurrently
from agent_r1.tools.protocol import ToolResult

class Hang:
    name, schema = "hang", {}
    def call(self, arguments):
        time.sleep(600)
    def close(self):
        pass

assert not concurrently.run([(Hang(), {})], timeout=0.1)[0].ok
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "world.duckdb"
    with duckdb.connect(str(path)) as connection:
        for kind, relations in TABLES.items():
            columns = ", ".join(f"{relation.name} VARCHAR" for relation in relations)
            connection.execute(f"CREATE TABLE {kind} (name VARCHAR, {columns})")
    return path


def test_search_shows_as_much_as_the_configuration_says(database: Path) -> None:
    passages = [Passage(name, name, "fog and rain") for name in ("p", "q", "r")]
    settings = Config.model_validate({"tools": ["search"], "search": {"results": 2, "max_characters": 3}})
    (tool,) = open_tools(settings, database, passages, Databases(database.parent))
    assert isinstance(tool, SearchTool)
    assert tool.call({"query": "fog"}).text == "[1] p\nfog…\n\n[2] q\nfog…"


def test_the_tools_of_a_configuration_are_opened_in_its_order(database: Path) -> None:
    names = ("calculator", "search", "lookup", "sql")
    tools = open_tools(Config(tools=names), database, [Passage("p", "Title", "Text")], Databases(database.parent))
    assert tuple(tool.name for tool in tools) == names
    for tool in tools:
        function = tool.schema["function"]
        assert isinstance(function, dict)
        assert function["name"] == tool.name
        assert not isinstance(tool, OfDatabase)
        tool.close()
