"""What a question is, whatever file or world it came from. Reading files is left to the loaders beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
DEEPEST = 100  # levels of a JSON value from outside


def is_too_deep(value: Json, levels: int = DEEPEST) -> bool:
    """Whether more than `levels` lists and objects are nested in each other.

    How deep Python's JSON goes depends on how deep its caller is: what could just be read may not be written elsewhere.
    """
    if not isinstance(value, list | dict):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_too_deep(one, levels - 1) for one in inner)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A piece of gold evidence: a passage, or one sentence of it (0-based, may point past the end as in HotpotQA)."""

    passage_id: str
    sentence: int | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that the search tool can return. `sentences` is how the source split it, empty where it did not."""

    id: str
    title: str
    text: str
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question to answer with tools.

    `answers` holds every accepted gold answer and may be empty (a test file without gold). `evidence` is in hop order
    where the source has one. `hops` is None where the source does not say. `metadata` must be JSON. These
    are read from it: `kind`, such as "bridge" or "comparison"; `answerable`, false where the answer cannot be found;
    `decomposition`, a list of objects with a `question` and an `answer`; `facts`, one [subject, relation, object] of
    strings per entry of `evidence`, where the source is a database; `database`, the name of the one that the answers
    are queries of; `demonstration`, a list of calls, objects with a `name` and `arguments`.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    passages: tuple[Passage, ...] = ()
    hops: int | None = None
    dataset: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict)

    @property
    def database(self) -> str | None:
        """The name of the database that the question is about; its answers are then queries, of equal standing."""
        name = self.metadata.get("database")
        return name if isinstance(name, str) else None

    @property
    def plain_text(self) -> str:
        """The text, the same for questions that differ in case and white space alone."""
        return " ".join(self.text.casefold().split())

    @property
    def kind(self) -> str:
        """The kind of reasoning the source names, "" where it names none."""
        return str(self.metadata.get("kind", ""))
