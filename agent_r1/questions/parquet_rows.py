"""Rows of a Parquet file as items. Read a few hundred at a time, so a file's size is no matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from agent_r1.errors import DataError
from agent_r1.questions.items import Value, item
from agent_r1.questions.records import Json

BATCH = 256


def parquet_items(path: Path, file: BinaryIO) -> Iterator[Value]:
    """The rows, structs as objects, lists as lists. Raises DataError, naming file or row."""
    number = 0
    rows = _rows(path, file)
    while (row := next(rows, None)) is not None:
        number += 1
        where = f"{path}: row {number}"
        yield item(where, {key: _json(where, key, value) for key, value in row.items()})


def _rows(path: Path, file: BinaryIO) -> Iterator[dict[str, object]]:
    try:
        table = pq.ParquetFile(file)
        twice = [name for name, count in Counter(table.schema_arrow.names).items() if count > 1]
        if twice:
            raise DataError(f"{path}: column {twice[0]!r} is there twice")
        for batch in table.iter_batches(batch_size=BATCH):
            yield from batch.to_pylist()
    except DataError:  # which is a ValueError too
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        # what pyarrow raises on a damaged file, text that is not UTF-8 in it included
        message = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: broken or cut-off Parquet: {message[:200]}") from None


def _json(where: str, column: str, value: object) -> Json:
    """A cell as JSON: dates and decimals as text, not-a-number as null. Bytes are refused."""
    if isinstance(value, float):
        return value if value == value else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {str(key): _json(where, column, one) for key, one in value.items()}
    if isinstance(value, list | tuple):  # a tuple is an entry of a map
        return [_json(where, column, one) for one in value]
    if isinstance(value, date | datetime | time | Decimal):
        return str(value)
    raise DataError(f"{where}: field {column}: expected text, numbers, lists or structs, got {type(value).__name__}")
