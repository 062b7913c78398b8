"""What the SQL tool and its worker process say to each other, one JSON object a line, and a query's typed result.

It imports nothing but the standard library, because the worker starts with it. What is allowed is the engines' matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

ONE_SELECT = "only one SELECT (or EXPLAIN) statement at a time is allowed"
TOO_SLOW = "time-out: the query took longer than {} seconds and was stopped"
TOO_MUCH_MEMORY = "error: the query needed too much memory or broke the database engine"

Scalar = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Settings:
    """What the worker is started with."""

    path: str
    kind: str
    max_rows: int
    max_characters: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Request:
    """A query. With `max_rows` its answer has typed rows, at most so many; without, text as the model sees it."""

    query: str
    max_rows: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request. `text` says what was wrong unless `ok`. `broken`: the worker is of no further use."""

    text: str
    ok: bool
    broken: bool = False
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Scalar]] = ()


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A whole result with typed values, for scoring; or an `error`, and no columns or rows.

    Dates and times are text in ISO form, decimals numbers, bytes hexadecimal, lists and the like as they are shown.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The head of a result as the engine gives it: at most one row more than may be shown."""

    columns: list[str]
    rows: list[tuple[object, ...]]


class Database(Protocol):
    """An open database that answers one query within the time limit, or raises."""

    def query(self, sql: str, rows: int) -> Table:
        """The first `rows` rows. Raises Refused, or what the engine raises."""
        ...


class Refused(Exception):
    """The query is not allowed, or took too long; the message is for the model."""
