"""The world's side of a turn: run the calls of an action, say what the agent sees. Rewards are left to rewards.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from agent_r1.chat import Chat
from agent_r1.config import Config
from agent_r1.questions.records import Passage
from agent_r1.sections import SearchConfig
from agent_r1.tool_calls import ParsedTurn, ToolCall
from agent_r1.tools.calculator import Calculator
from agent_r1.tools.concurrently import run
from agent_r1.tools.finder import Finder
from agent_r1.tools.protocol import Tool, ToolResult
from agent_r1.tools.search import SearchTool
from agent_r1.tools.sql import SqlTool
from agent_r1.trajectory import CallRecord
from agent_r1.world.lookup import LookupTool

MAX_CALLS = 8


def open_tools(
    names: Sequence[str], database: Path, passages: Sequence[Passage] | Finder, search: SearchConfig
) -> tuple[Tool, ...]:
    """The tools of a configuration, over one split's database (where it has one) and passages, or their finder."""
    makers: dict[str, Callable[[], Tool]] = {
        "search": lambda: SearchTool(passages, search.results, search.max_characters),
        "sql": lambda: SqlTool(database),
        "lookup": lambda: LookupTool(database),
        "calculator": Calculator,
    }
    return tuple(makers[name]() for name in names)


@dataclass(frozen=True, slots=True)
class Environment:
    """Runs calls. The calls of all trajectories of a wave run concurrently; the next wave waits for all of them."""

    tools: Sequence[Tool]
    chat: Chat
    timeout: float
    max_observation: int

    def step(self, turns: Sequence[ParsedTurn]) -> list[tuple[CallRecord, ...]]:
        """The records of each turn's calls, in the order of the calls, malformed ones last."""
        by_name = {tool.name: tool for tool in self.tools}
        known = [call for turn in turns for call in turn.calls[:MAX_CALLS] if call.name in by_name]
        results = iter(run([(by_name[call.name], call.arguments) for call in known], self.timeout))
        return [
            self._records(turn, [next(results) if call.name in by_name else None for call in turn.calls[:MAX_CALLS]])
            for turn in turns
        ]

    def _records(self, turn: ParsedTurn, results: Sequence[ToolResult | None]) -> tuple[CallRecord, ...]:
        made = [
            (call, self._unknown(call) if result is None else result, result is None)
            for call, result in zip(turn.calls[:MAX_CALLS], results, strict=True)
        ]
        nothing = ToolCall("", {})
        made += [(nothing, ToolResult(f"error: {error}", ok=False), True) for error in turn.errors]
        if len(turn.calls) > MAX_CALLS:
            text = f"error: only the first {MAX_CALLS} of {len(turn.calls)} calls were run"
            made.append((nothing, ToolResult(text, ok=False), True))
        limit = max(self.max_observation // max(len(made), 1), 1)
        return tuple(self._record(call, result, malformed, limit) for call, result, malformed in made)

    def _record(self, call: ToolCall, result: ToolResult, malformed: bool, limit: int) -> CallRecord:
        text, shown = self.chat.cut(result.text, limit)
        sources = tuple(source for source in result.sources if source.end <= shown)
        return CallRecord(call.name, call.arguments, result.ok, text, sources, malformed)

    def _unknown(self, call: ToolCall) -> ToolResult:
        return ToolResult(
            f"error: unknown tool {call.name!r}; there is {', '.join(t.name for t in self.tools)}", ok=False
        )


@contextmanager
def open_environment(
    config: Config, database: Path, passages: Sequence[Passage] | Finder, tokenizer: PreTrainedTokenizerBase
) -> Iterator[Environment]:
    """The environment of a configuration for a policy's tokenizer; its tools are closed at the end."""
    tools = open_tools(config.tools, database, passages, config.search)
    limits = config.rollout
    try:
        chat = Chat(tokenizer, tools, limits.system_prompt, config.model.tool_format, config.model.thinking)
        yield Environment(tools, chat, limits.tool_timeout, limits.max_observation)
    finally:
        for tool in tools:
            tool.close()
