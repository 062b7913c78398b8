"""A cursor into one item of a question file, so that every complaint names file, item and field.

Reading items out of files is left to `containers`, what the fields mean to one file per format beside this one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from agent_r1.errors import DataError
from agent_r1.questions.records import Json, is_too_deep


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
        message = f"{self.item}: field {field}: {problem}" if field else f"{self.item}: {problem}"
        return DataError(message.encode(errors="backslashreplace").decode())

    def keys(self) -> tuple[str, ...]:
        """The keys of an object, in the order of the file."""
        if not isinstance(self.json, dict):
            raise self.wrong("an object")
        return tuple(self.json)

    def __contains__(self, key: str) -> bool:
        """Whether an object has a key, be it null."""
        return key in self.keys()

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
            raise self.wrong("a list")
        return [Value(self.item, (*self.way, position), element) for position, element in enumerate(self.json)]

    def text(self) -> str:
        """A string, as it stands in the file."""
        if not isinstance(self.json, str):
            raise self.wrong("a string")
        try:
            self.json.encode()
        except UnicodeEncodeError:
            raise self.error("half of a surrogate pair, which is not valid text") from None
        if "\0" in self.json:
            raise self.error("a NUL character, which is not valid text")
        return self.json

    def filled_text(self) -> str:
        """A string that is not blank, as it stands in the file."""
        if not self.text().strip():
            raise self.error("blank, expected text")
        return self.text()

    def name(self) -> str:
        """A string that is not blank, or an integer as text."""
        if isinstance(self.json, int) and not isinstance(self.json, bool):
            return str(self.json)
        return self.filled_text()

    def texts(self) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(element.text() for element in self.elements())

    def position(self) -> int:
        """An integer from 0 on."""
        if not isinstance(self.json, int) or isinstance(self.json, bool) or self.json < 0:
            raise self.wrong("an integer from 0 on")
        return self.json

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.json, bool):
            raise self.wrong("true or false")
        return self.json

    def decoded(self) -> Value:
        """This value, read from JSON where it is a string that holds JSON (as Parquet re-issues have it)."""
        if not isinstance(self.json, str):
            return self
        try:
            return Value(self.item, self.way, parse(self.json))
        except (ValueError, RecursionError) as error:
            raise self.error(f"a string that does not hold JSON ({error})") from None

    def unwrapped(self) -> Value:
        """This value, read from JSON where it is a string that looks like a list or an object; else as it is."""
        text = self.json.strip() if isinstance(self.json, str) else ""
        return self.decoded() if (text[:1], text[-1:]) in (("[", "]"), ("{", "}")) else self

    def tree(self) -> Json:
        """The value as it stands, all of it storable: valid text and numbers, not nested without end."""
        if is_too_deep(self.json):
            raise self.error("nested too deeply")
        try:
            shown = json.dumps(self.json, ensure_ascii=False, allow_nan=False)
            shown.encode()
        except UnicodeEncodeError:
            raise self.error("half of a surrogate pair, which is not valid text") from None
        except ValueError:
            raise self.error("a number out of range") from None
        if "\\u0000" in shown:
            raise self.error("a NUL character, which is not valid text")
        return self.json

    def wrong(self, expected: str) -> DataError:
        """A DataError that shows the value beside what was expected."""
        try:
            shown = json.dumps(self.json, ensure_ascii=False)
        except RecursionError:
            shown = "something nested too deeply"
        return self.error(f"expected {expected}, got {shown if len(shown) <= 60 else shown[:60] + '...'}")


def item(where: str, json_value: Json) -> Value:
    """The cursor at an item, which must be an object; its id, where it has one, is part of its name."""
    if not isinstance(json_value, dict):
        raise Value(where, (), json_value).wrong("an object")
    name = next((json_value[key] for key in ("_id", "id") if isinstance(json_value.get(key), str)), None)
    return Value(where if name is None else f"{where} (id {name!r})", (), json_value)


def parse(text: str) -> Json:
    """JSON, where NaN and Infinity (pandas writes NaN for what is missing) become null. Raises ValueError."""
    return json.loads(text, parse_constant=lambda _: None)
