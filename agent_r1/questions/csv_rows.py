"""Rows of a CSV file as items: the first row names the columns, an empty cell is a missing value, all others are text.

Quotes follow Python's csv: one in the middle of a cell that does not start with one is a character like others, as the
published files need. What Python's csv would let pass in silence is an error here: a quote that is never closed, a row
of another length, a column named twice, NUL.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from agent_r1.errors import DataError
from agent_r1.questions.items import Value, item
from agent_r1.questions.records import Json


def csv_items(path: Path, file: BinaryIO) -> Iterator[Value]:
    """The rows after the first, blank lines left out, streamed. Raises DataError, naming row and line."""
    names: list[str] = []
    for number, (line, cells) in enumerate(_rows(path, file)):
        where = f"{path}: row {number} (line {line})"
        if not names:
            names = [name.strip() for name in cells]
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise DataError(f"{path}: line {line}: column {twice[0]!r} is there twice")
            continue
        if len(cells) != len(names):
            raise DataError(
                f"{where}: {len(cells)} cells, expected {len(names)}: {', '.join(names)[:200]}"
                " (cells are separated by commas, one that holds a comma is quoted)"
            )
        row: dict[str, Json] = {name: cell or None for name, cell in zip(names, cells, strict=True)}
        yield item(where, row)


def _rows(path: Path, file: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the line at which each begins."""
    lines = _Lines(path, file)
    reader = csv.reader(lines)
    while True:
        begins = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{path}: line {begins}: CSV that cannot be read: {error}") from None
        if lines.ended:  # the reader wanted another line to end this row
            raise DataError(f"{path}: line {begins}: a quote is opened here that is never closed")
        if cells:
            yield begins, cells


class _Lines:
    """The lines of a file as text; `ended` once more were asked for than there are."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.ended = False
        self._path, self._file, self._number = path, file, 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline()
        self._number += 1
        if not line:
            self.ended = True
            raise StopIteration
        try:
            text = line.decode("utf-8-sig" if self._number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} at offset {error.start}"
            raise DataError(f"{self._path}: line {self._number}: not UTF-8 text: {byte}") from None
        if "\0" in text:
            raise DataError(f"{self._path}: line {self._number}: a NUL byte, expected text")
        return text
