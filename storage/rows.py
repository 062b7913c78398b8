"""How values become columns and come back: Arrow in bulk, JSON text, UTC times. Meaning is left to the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from duckdb import DuckDBPyConnection

from agent_r1.questions.records import Json

INTS = pa.list_(pa.int32())
FLOATS = pa.list_(pa.float64())
BOOLS = pa.list_(pa.bool_())

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def insert(con: DuckDBPyConnection, table: str, columns: Mapping[str, pa.Array]) -> None:
    """Insert columns of one length by name, which is some thirty times as fast as executemany."""
    con.register("incoming_rows", pa.table(dict(columns)))
    try:
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming_rows")
    finally:
        con.unregister("incoming_rows")


def texts(values: Iterable[str | None]) -> pa.Array:
    """A text column. A lone surrogate, which no UTF-8 can hold, becomes U+FFFD."""
    values = list(values)
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        return pa.array([None if value is None else _storable(value) for value in values], pa.string())


def to_json(value: Mapping[str, Json] | Sequence[Json] | Mapping[int, Mapping[str, float]]) -> str:
    """JSON text, keys in their order, other alphabets as they are."""
    return _storable(json.dumps(value, ensure_ascii=False))


def to_utc(at: datetime) -> datetime:
    """The moment as the store keeps it: UTC without a zone. ValueError for a time that does not say its zone."""
    if at.tzinfo is None:
        raise ValueError(f"expected a time with a time zone, got {at!r}")
    return at.astimezone(UTC).replace(tzinfo=None)


def from_utc(at: datetime) -> datetime:
    """A stored moment with its zone."""
    return at.replace(tzinfo=UTC)


def same_lengths(what: str, **lists: Sequence[object]) -> None:
    """ValueError, naming `what`, where lists that belong together differ in length."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{what}: lists of different lengths: {lengths}")


def _storable(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)
