"""Items of a JSON list or of JSON lines, and a cursor into them, so that every complaint names file, item and field.

What the fields mean is left to one file per format beside this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_r1.errors import DataError
from agent_r1.questions.records import Json

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value inside an item: `item` says which item of which file, `way` the keys and positions that lead to it.

    Every method that reads it raises DataError where it is not what was asked for.
    """

    item: str
    way: tuple[str | int, ...]
    json: Json

    def error(self, problem: str) -> DataError:
        """A DataError about this value; `problem` says what is wrong, and what was expected."""
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.way).removeprefix(".")
        return DataError(f"{self.item}: field {field}: {problem}" if field else f"{self.item}: {problem}")

    def keys(self) -> tuple[str, ...]:
        """The keys of an object, in the order of the file."""
        if not isinstance(self.json, dict):
            raise self._wrong_type("an object")
        return tuple(self.json)

    def get(self, key: str) -> Value | None:
        """The value under a key, None where it is absent or null."""
        self.keys()
        found = self.json.get(key) if isinstance(self.json, dict) else None
        return None if found is None else Value(self.item, (*self.way, key), found)

    def __getitem__(self, key: str) -> Value:
        """The value under a key that must be there."""
        found = self.get(key)
        if found is None:
            raise Value(self.item, (*self.way, key), None).error(
                f"missing or null; keys here: {', '.join(self.keys())}"
            )
        return found

    def elements(self) -> list[Value]:
        """The elements of a list."""
        if not isinstance(self.json, list):
            raise self._wrong_type("a list")
        return [Value(self.item, (*self.way, position), element) for position, element in enumerate(self.json)]

    def text(self) -> str:
        """A string, as it stands in the file."""
        if not isinstance(self.json, str):
            raise self._wrong_type("a string")
        try:
            self.json.encode()
        except UnicodeEncodeError:
            raise self.error("half of a surrogate pair, which is not valid text") from None
        return self.json

    def filled_text(self) -> str:
        """A string that is not blank, as it stands in the file."""
        if not self.text().strip():
            raise self.error("blank, expected text")
        return self.text()

    def texts(self) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(element.text() for element in self.elements())

    def position(self) -> int:
        """An integer from 0 on."""
        if not isinstance(self.json, int) or isinstance(self.json, bool) or self.json < 0:
            raise self._wrong_type("an integer from 0 on")
        return self.json

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.json, bool):
            raise self._wrong_type("true or false")
        return self.json

    def decoded(self) -> Value:
        """This value, read from JSON where it is a string that holds JSON (as Parquet re-issues have it)."""
        if not isinstance(self.json, str):
            return self
        try:
            return Value(self.item, self.way, _parse(self.json))
        except (ValueError, RecursionError) as error:
            raise self.error(f"a string that does not hold JSON ({error})") from None

    def _wrong_type(self, expected: str) -> DataError:
        shown = json.dumps(self.json, ensure_ascii=False)
        return self.error(f"expected {expected}, got {shown if len(shown) <= 60 else shown[:60] + '...'}")


def read_items(path: Path) -> Iterator[Value]:
    """The items of a file, told to be a JSON list or JSON lines by its first character. Raises DataError.

    JSON lines are streamed. Items are counted from 1; in JSON lines an item goes by its line.
    """
    try:
        with path.open("rb") as file:
            start = next((line for line in file if line.removeprefix(_BOM).strip()), b"").removeprefix(_BOM).lstrip()
            file.seek(0)
            yield from _list_items(path, file.read()) if start.startswith(b"[") else _line_items(path, file)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _list_items(path: Path, content: bytes) -> Iterator[Value]:
    items = _read_json(content, where=f"{path}")
    assert isinstance(items, list), "the first character was a bracket"
    for number, item in enumerate(items, start=1):
        yield _item(f"{path}: item {number}", item)


def _line_items(path: Path, lines: BinaryIO) -> Iterator[Value]:
    for number, line in enumerate(lines, start=1):
        if line.removeprefix(_BOM).strip():
            where = f"{path}: line {number}"
            yield _item(where, _read_json(line, where))


def _item(where: str, json_value: Json) -> Value:
    """The cursor at an item, which must be an object; its id, where it has one, is part of its name."""
    if not isinstance(json_value, dict):
        raise Value(where, (), json_value)._wrong_type("an object")
    name = next((json_value[key] for key in ("_id", "id") if isinstance(json_value.get(key), str)), None)
    return Value(where if name is None else f"{where} (id {name!r})", (), json_value)


def _read_json(content: bytes, where: str) -> Json:
    try:
        return _parse(content.decode("utf-8-sig").rstrip())
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at offset {error.start}"
        raise DataError(f"{where}: not UTF-8 text: {byte}") from None
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{where}: broken or cut-off JSON at {place}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: JSON that cannot be read: {error}") from None


def _parse(text: str) -> Json:
    """JSON, where NaN and Infinity (pandas writes NaN for what is missing) become null."""
    return json.loads(text, parse_constant=lambda _: None)
