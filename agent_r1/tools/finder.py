"""Where the search tool looks: what an index and a server have in common. What is shown is left to search.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agent_r1.corpus import fingerprint
from agent_r1.questions.records import Passage


class NothingFoundError(Exception):
    """There is nothing to show; the message says to the agent why."""


@runtime_checkable
class Finder(Protocol):
    """Finds passages by the words of a query. Asked by several threads at once."""

    def find(self, query: str, results: int) -> list[Passage]:
        """The best passages, up to `results` and at least one. NothingFoundError where there is none."""
        ...

    def close(self) -> None:
        """Free what it holds open."""
        ...


@dataclass(frozen=True, slots=True)
class Recognising:
    """A finder whose passages are taken for the questions' own where title and text are the same.

    So a passage of a corpus has the id that evidence names, and the sentences that the questions' file split it into.
    `known` are the questions' passages by fingerprint.
    """

    finder: Finder
    known: Mapping[int, Passage]

    def find(self, query: str, results: int) -> list[Passage]:
        """See Finder."""
        found = self.finder.find(query, results)
        return [self.known.get(fingerprint(passage.title, passage.text), passage) for passage in found]

    def close(self) -> None:
        """See Finder."""
        self.finder.close()
