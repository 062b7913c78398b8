"""The environments of a rollout, side by side: one for each attempt, over tools that they share.

Runs the calls of a wave of turns and lets each environment say what comes next. What one is, is left to
`environment.py`; when a trajectory ends, to `rollout.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from transformers import PreTrainedTokenizerBase

from agent_r1.chat import Chat
from agent_r1.config import Config
from agent_r1.environment import Environment, Step, ToolEnvironment, checked_question, checked_step
from agent_r1.errors import DataError
from agent_r1.execution import execution_match
from agent_r1.own import environment_maker, own_tools
from agent_r1.questions.records import Passage, Question
from agent_r1.scoring import exact_match, f1_score
from agent_r1.tool_calls import ParsedTurn, ToolCall
from agent_r1.tools.calculator import Calculator
from agent_r1.tools.concurrently import run, side_by_side
from agent_r1.tools.databases import Databases
from agent_r1.tools.finder import Finder
from agent_r1.tools.protocol import JsonObject, Tool, ToolResult, encodable
from agent_r1.tools.schema import SCHEMA, SchemaTool
from agent_r1.tools.search import SearchTool
from agent_r1.tools.sql import sql_schema
from agent_r1.trajectory import CallRecord
from agent_r1.world.lookup import LookupTool

MAX_CALLS = 8
SQL = sql_schema("Run one read-only query on the question's database and see its rows.")
T = TypeVar("T")

log = logging.getLogger("agent_r1.environments")


@dataclass(frozen=True, slots=True)
class OfDatabase:
    """A tool over the database that a question names. What the model sees of it is the same for all."""

    name: str
    schema: JsonObject
    open: Callable[[str], Tool]


def open_tools(
    config: Config, database: Path, passages: Sequence[Passage] | Finder, databases: Databases
) -> tuple[Tool | OfDatabase, ...]:
    """The tools of a configuration, MCP servers' last, over one split's passages, or what finds them, and its database.

    Where questions come from a file, each names its own among `databases`; else the split's is one of them.
    """
    search, of_file = config.search, config.data.path is not None
    makers: dict[str, Callable[[], Tool | OfDatabase]] = {
        "search": lambda: SearchTool(passages, search.results, search.max_characters),
        "sql": lambda: OfDatabase("sql", SQL, databases.tool) if of_file else databases.tool(database.stem),
        "schema": lambda: (
            OfDatabase("schema", SCHEMA, lambda name: SchemaTool(databases.tool(name)))
            if of_file
            else SchemaTool(databases.tool(database.stem))
        ),
        "lookup": lambda: LookupTool(database),
        "calculator": Calculator,
    }
    own = own_tools(config)
    named = [makers[name]() if name in makers else own.pop(0) for name in config.tools]
    return (*named, *own)


@dataclass(frozen=True, slots=True)
class Environments:
    """Makes environments and steps them. The calls of a wave run concurrently; the next wave waits for all of them.

    `databases` are those that questions name. `make` gives a new environment for each attempt. Where it is not
    ToolEnvironment, it is other people's code: it runs in threads, within `timeout` seconds a step.
    """

    tools: Sequence[Tool | OfDatabase]
    chat: Chat
    timeout: float
    max_observation: int
    make: Callable[[], Environment] = ToolEnvironment
    databases: Databases | None = None

    def begin(self, asked: Sequence[tuple[Question, int]]) -> list[tuple[Environment, str] | None]:
        """An environment for each question, given its seed, and what it asks; None where it failed."""
        return self._each([partial(self._begun, *one) for one in asked])

    def run_calls(self, turns: Sequence[tuple[Question, ParsedTurn]]) -> list[tuple[CallRecord, ...]]:
        """The records of each turn's calls, in the order of the calls, malformed ones last."""
        by_name = {tool.name: tool for tool in self.tools}
        known = [
            (_bound(by_name[call.name], question), call.arguments)
            for question, turn in turns
            for call in turn.calls[:MAX_CALLS]
            if call.name in by_name
        ]
        results = iter(run(known, self.timeout))
        return [
            self._records(turn, [next(results) if call.name in by_name else None for call in turn.calls[:MAX_CALLS]])
            for _, turn in turns
        ]

    def scores(self, question: Question, answer: str | None) -> tuple[float, float]:
        """Exact match and F1 of an answer. One to a question about a database is a query, right if its result is."""
        if question.database is None:
            return exact_match(answer, question.answers), f1_score(answer, question.answers)
        if self.databases is None:
            raise DataError(f"question {question.id!r} is about the database {question.database!r}: set data.databases")
        matched = execution_match(answer, question.answers, self.databases.tool(question.database))
        return matched, matched

    def step(self, turns: Sequence[tuple[Environment, ParsedTurn, tuple[CallRecord, ...]]]) -> list[Step | None]:
        """What each environment makes of its turn and the results of the turn's calls; None where it failed."""
        made = self._each([partial(_stepped, *one) for one in turns])
        return [None if step is None else self._shortened(step) for step in made]

    def given_after(self, step: Step, results: Sequence[CallRecord]) -> list[int]:
        """The tokens before the next action; the whole context where the step brings a new one."""
        if step.context is not None:
            return self.chat.prompt(step.context)
        if step.observation is not None:
            return self.chat.reply(step.observation)
        return self.chat.observation([result.text for result in results])

    def _shortened(self, step: Step) -> Step:
        if step.observation is None:
            return step
        return replace(step, observation=self.chat.cut(step.observation, self.max_observation)[0])

    def _begun(self, question: Question, seed: int) -> tuple[Environment, str]:
        environment = self.make()
        return environment, checked_question(environment.reset(question, seed))

    def _each(self, jobs: Sequence[Callable[[], T]]) -> list[T | None]:
        if self.make is ToolEnvironment:
            return [job() for job in jobs]
        return side_by_side(jobs, self.timeout, _failed)

    def _records(self, turn: ParsedTurn, results: Sequence[ToolResult | None]) -> tuple[CallRecord, ...]:
        made = [
            (call, self._unknown(call) if result is None else result, result is None)
            for call, result in zip(turn.calls[:MAX_CALLS], results, strict=True)
        ]
        nothing = ToolCall("", {})
        wrong = list(turn.errors[:MAX_CALLS])
        if len(turn.errors) > MAX_CALLS:
            wrong.append(f"{len(turn.errors) - MAX_CALLS} more calls are malformed")
        if len(turn.calls) > MAX_CALLS:
            wrong.append(f"only the first {MAX_CALLS} of {len(turn.calls)} calls were run")
        made += [(nothing, ToolResult(f"error: {error}", ok=False), True) for error in wrong]
        limit = max(self.max_observation // max(len(made), 1), 1)
        return tuple(self._record(call, result, malformed, limit) for call, result, malformed in made)

    def _record(self, call: ToolCall, result: ToolResult, malformed: bool, limit: int) -> CallRecord:
        text, shown = self.chat.cut(encodable(result.text), limit)
        sources = tuple(source for source in result.sources if source.end <= shown)
        return CallRecord(call.name, call.arguments, result.ok, text, sources, malformed)

    def _unknown(self, call: ToolCall) -> ToolResult:
        there = ", ".join(tool.name for tool in self.tools) or "no tool at all"
        return ToolResult(f"error: unknown tool {call.name!r}; there is {there}", ok=False)


@dataclass(frozen=True, slots=True)
class _NoDatabase:
    """A tool over databases for a question that names none, as one of a mixed file may: its calls fail."""

    name: str
    schema: JsonObject

    def call(self, arguments: JsonObject) -> ToolResult:
        """See Tool."""
        del arguments
        return ToolResult(f"error: this question is about no database, which {self.name} needs", ok=False)

    def close(self) -> None:
        """See Tool."""


def _bound(tool: Tool | OfDatabase, question: Question) -> Tool:
    """The tool to call for a question."""
    if not isinstance(tool, OfDatabase):
        return tool
    if question.database is None:
        return _NoDatabase(tool.name, tool.schema)
    return tool.open(question.database)


def _stepped(environment: Environment, turn: ParsedTurn, results: tuple[CallRecord, ...]) -> Step:
    return checked_step(environment.step(turn, results))


def _failed(reason: str) -> None:
    log.warning("an environment failed, which ends its trajectory: %s", encodable(reason))


@contextmanager
def open_environments(
    config: Config, database: Path, passages: Sequence[Passage] | Finder, tokenizer: PreTrainedTokenizerBase
) -> Iterator[Environments]:
    """The environments of a configuration for a policy's tokenizer; their tools are closed at the end.

    The databases that questions name lie in `data.databases`; those of the built-in world beside `database`.
    """
    limits, folder = config.rollout, config.data.databases
    with ExitStack() as opened:
        databases = opened.enter_context(closing(Databases(database.parent if folder is None else Path(folder))))
        tools = open_tools(config, database, passages, databases)
        for tool in tools:
            if not isinstance(tool, OfDatabase):
                opened.callback(tool.close)
        chat = Chat(tokenizer, tools, limits.system_prompt, config.model.tool_format, config.model.thinking)
        make = environment_maker(config.environment)
        yield Environments(tools, chat, limits.tool_timeout, limits.max_observation, make, databases)
