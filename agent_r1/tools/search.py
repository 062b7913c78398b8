"""The search tool: what a finder finds, and where in the result each passage and sentence stands.

Finding is left to search_index.py and search_server.py. Which passages are gold is not known here; rewards compare the
sources of a result with the evidence later.
"""

from __future__ import annotations

import copy
import html
from collections.abc import Mapping, Sequence

from agent_r1.questions.records import Passage
from agent_r1.tools.finder import Finder, NothingFoundError
from agent_r1.tools.protocol import JsonObject, Source, ToolResult
from agent_r1.tools.search_index import index_of, shown_text

_QUERY_CHARACTERS = 2000


class SearchTool:
    """Finds passages by the words of a query: those of a finder, or passages, of which it makes an index in memory.

    A result shows up to `results` passages, of each at most `max_characters` of text. A passage that was cut is no
    source, nor are its sentences beyond the cut.
    """

    name = "search"

    def __init__(
        self, passages: Sequence[Passage] | Finder, results: int = 3, max_characters: int | None = None
    ) -> None:
        if results < 1:
            raise ValueError(f"results must be at least 1, got {results}")
        if max_characters is not None and max_characters < 1:
            raise ValueError(f"max_characters must be at least 1 or None, got {max_characters}")
        self._finder: Finder = passages if isinstance(passages, Finder) else index_of(passages)
        self._results = results
        self._max_characters = max_characters

    @property
    def schema(self) -> JsonObject:
        """What the model sees, in OpenAI form."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": "Search the passages by words and see the best matches.",
                "parameters": {
                    "type": "object",
                    "properties": {"query": {"type": "string", "description": "The words to look for."}},
                    "required": ["query"],
                },
            },
        }

    def call(self, arguments: JsonObject) -> ToolResult:
        """The best passages for arguments["query"]. Never raises; nothing found is a result with ok False."""
        query = arguments.get("query") if isinstance(arguments, Mapping) else None
        if not isinstance(query, str) or not query.strip():
            return ToolResult("error: search needs the parameter 'query', a string of words to look for", ok=False)
        if unknown := sorted(str(key) for key in arguments if key != "query"):
            return ToolResult(f"error: search has no parameter {unknown[0][:50]!r}, only 'query'", ok=False)
        try:
            found = self._finder.find(query[:_QUERY_CHARACTERS], self._results)
        except NothingFoundError as error:
            return ToolResult(str(error), ok=False)
        return _show(found, self._max_characters)

    def showing(self, results: int) -> SearchTool:
        """The same passages and index, and so many passages a search."""
        other = copy.copy(self)
        other._results = results
        return other

    def close(self) -> None:
        """Close the finder."""
        self._finder.close()


def _show(passages: Sequence[Passage], max_characters: int | None) -> ToolResult:
    """One block a passage, "[1] title" above its text, with the spans of what is shown whole."""
    shown = ""
    sources: list[Source] = []
    for number, passage in enumerate(passages, start=1):
        shown += ("\n\n" if shown else "") + f"[{number}] {html.unescape(passage.title)}\n"
        start, text = len(shown), shown_text(passage)
        limit = len(text) if max_characters is None else max_characters
        shown += text if len(text) <= limit else text[:limit] + "…"
        spans: list[tuple[int | None, int, int]] = [(None, 0, len(text))]
        begin = 0
        for index, sentence in enumerate(passage.sentences):
            spans.append((index, begin, begin + len(sentence)))
            begin += len(sentence)
        sources += [Source(passage.id, index, start + a, start + b) for index, a, b in spans if b <= limit]
    return ToolResult(shown, ok=True, sources=tuple(sources))
