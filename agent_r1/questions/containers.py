"""Items out of a file: a JSON list, JSON lines, CSV or Parquet, told apart by content and never by name.

What an item means is left to the formats beside this file, CSV to `csv_rows`, Parquet to `parquet_rows`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from agent_r1.errors import DataError
from agent_r1.questions.csv_rows import csv_items
from agent_r1.questions.items import Value, item, parse
from agent_r1.questions.parquet_rows import parquet_items
from agent_r1.questions.records import Json

BOM = b"\xef\xbb\xbf"
Container = Literal["a JSON list", "JSON lines", "CSV", "Parquet"]


def container(path: Path) -> Container:
    """What a file is, by its first bytes. CSV is what is left. Raises DataError where it cannot be read."""
    try:
        with _opened(path) as file:
            return _container(file)
    except OSError as error:  # a pipe, which cannot be read twice
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_items(path: Path) -> Iterator[Value]:
    """The items of a file, in its order. Raises DataError, naming the place.

    All but a JSON list are streamed. Items are counted from 1; in JSON lines an item goes by its line.
    """
    try:
        with _opened(path) as file:
            match _container(file):
                case "Parquet":
                    yield from parquet_items(path, file)
                case "a JSON list":
                    yield from _list_items(path, file.read())
                case "JSON lines":
                    yield from _line_items(path, file)
                case "CSV":
                    yield from csv_items(path, file)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise DataError(f"{path}: cannot be read: {error}") from error


def _container(file: BinaryIO) -> Container:
    """By the magic number, else by the first character that is not blank; the file is at its start before and after."""
    start = file.read(8)
    while start and not start.removeprefix(BOM).strip() and (more := file.read(8192)):
        start = more
    file.seek(0)
    if start.startswith(b"PAR1"):
        return "Parquet"
    first = start.removeprefix(BOM).lstrip()[:1]
    return "a JSON list" if first == b"[" else "JSON lines" if first == b"{" else "CSV"


def _list_items(path: Path, content: bytes) -> Iterator[Value]:
    items = _read_json(content, where=f"{path}")
    assert isinstance(items, list), "the first character was a bracket"
    for number, json_value in enumerate(items, start=1):
        yield item(f"{path}: item {number}", json_value)


def _line_items(path: Path, lines: BinaryIO) -> Iterator[Value]:
    for number, line in enumerate(lines, start=1):
        if line.removeprefix(BOM).strip():
            where = f"{path}: line {number}"
            yield item(where, _read_json(line, where))


def _read_json(content: bytes, where: str) -> Json:
    try:
        return parse(content.decode("utf-8-sig").rstrip())
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at offset {error.start}"
        raise DataError(f"{where}: not UTF-8 text: {byte}") from None
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{where}: broken or cut-off JSON at {place}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: JSON that cannot be read: {error}") from None
