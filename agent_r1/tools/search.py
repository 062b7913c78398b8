"""The search tool: BM25 over titles and texts of passages, and where in the result each passage and sentence stands.

Which passages are gold is not known here; rewards compare the sources of a result with the evidence later.
"""

from __future__ import annotations

import copy
import html
import logging
import re
import unicodedata
from collections.abc import Mapping, Sequence

import bm25s
import numpy as np

from agent_r1.questions.records import Passage
from agent_r1.tools.protocol import JsonObject, Source, ToolResult

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG when it is imported

_WORD = re.compile(r"\w+")
_QUERY_CHARACTERS = 2000


class SearchTool:
    """Finds passages by the words of a query. Deterministic: equal scores keep the order of `passages`.

    A result shows up to `results` passages, of each at most `max_characters` of text. A passage that was cut is no
    source, nor are its sentences beyond the cut.
    """

    name = "search"

    def __init__(self, passages: Sequence[Passage], results: int = 3, max_characters: int | None = None) -> None:
        if results < 1:
            raise ValueError(f"results must be at least 1, got {results}")
        if max_characters is not None and max_characters < 1:
            raise ValueError(f"max_characters must be at least 1 or None, got {max_characters}")
        self._passages = tuple(passages)
        self._results = results
        self._max_characters = max_characters
        documents = [_words(f"{html.unescape(passage.title)} {_text(passage)}") for passage in self._passages]
        self._vocabulary = frozenset(word for document in documents for word in document)
        self._index = bm25s.BM25()
        if self._vocabulary:
            self._index.index(documents, show_progress=False)

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
        known = [word for word in _words(query[:_QUERY_CHARACTERS]) if word in self._vocabulary]
        if not known:
            return ToolResult("no passage found: none of these words is in any passage", ok=False)
        scores = self._index.get_scores(known)
        best = np.argsort(-scores, kind="stable")[: self._results]
        return _show([self._passages[i] for i in best if scores[i] > 0], self._max_characters)

    def showing(self, results: int) -> SearchTool:
        """The same passages and index, and so many passages a search."""
        other = copy.copy(self)
        other._results = results
        return other

    def close(self) -> None:
        """Nothing to free."""


def _words(text: str) -> list[str]:
    """Words as they are compared: any case, any Unicode form, without accents; one letter or digit is a word too."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return _WORD.findall("".join(letter for letter in decomposed if not unicodedata.combining(letter)))


def _text(passage: Passage) -> str:
    return "".join(passage.sentences) or passage.text


def _show(passages: Sequence[Passage], max_characters: int | None) -> ToolResult:
    """One block a passage, "[1] title" above its text, with the spans of what is shown whole."""
    shown = ""
    sources: list[Source] = []
    for number, passage in enumerate(passages, start=1):
        shown += ("\n\n" if shown else "") + f"[{number}] {html.unescape(passage.title)}\n"
        start, text = len(shown), _text(passage)
        limit = len(text) if max_characters is None else max_characters
        shown += text if len(text) <= limit else text[:limit] + "…"
        spans: list[tuple[int | None, int, int]] = [(None, 0, len(text))]
        begin = 0
        for index, sentence in enumerate(passage.sentences):
            spans.append((index, begin, begin + len(sentence)))
            begin += len(sentence)
        sources += [Source(passage.id, index, start + a, start + b) for index, a, b in spans if b <= limit]
    return ToolResult(shown, ok=True, sources=tuple(sources))
