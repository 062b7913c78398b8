"""A corpus: passages from a file of their own, and what makes one of them the same as a passage of the questions.

Searching them is left to tools/search_index.py; which passages are gold is not known here.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterator
from pathlib import Path

from agent_r1.errors import DataError
from agent_r1.questions.containers import read_items
from agent_r1.questions.items import Value
from agent_r1.questions.passages import passage_id
from agent_r1.questions.records import Passage

NAME = "corpus"


def read_corpus(path: Path) -> Iterator[Passage]:
    """The passages of a file in its order: JSON lines are streamed, a JSON list is read whole. Raises DataError.

    An item's `id` (or `_id`), where it has one, makes its passage "corpus:<id>". An id that comes back with the same
    title and text is passed over, one that comes back with others is an error.
    """
    seen: dict[str, int] = {}
    for item in read_items(path):
        title, text = title_and_text(item)
        number = item.get("id") or item.get("_id")
        identity = passage_id(NAME, title, text) if number is None else f"{NAME}:{_id(number)}"
        content = fingerprint(title, text)
        if identity not in seen:
            seen[identity] = content
            yield Passage(identity, title, text)
        elif seen[identity] != content:
            raise item.error(f"id {identity.removeprefix(f'{NAME}:')!r} was there before, with another title or text")
    if not seen:
        raise DataError(f"{path}: empty, expected passages as a JSON list or JSON lines")


def title_and_text(item: Value) -> tuple[str, str]:
    """An item's title ("" where it has none) and text: from `title` and `text`, or from FlashRAG's `contents`.

    The first line of `contents` is the title, in double quotes or not, and the rest the text; one line alone is text.
    DataError where a field is missing or of the wrong type, or the text is blank.
    """
    contents = item.get("contents")
    if contents is None or item.get("text") is not None:
        title = item.get("title")
        return "" if title is None else title.text(), item["text"].filled_text()
    first, _, rest = contents.filled_text().strip().partition("\n")
    first = first.removesuffix("\r")
    if not rest.strip():
        return "", first
    quoted = len(first) > 1 and first[0] == first[-1] == '"'
    return first[1:-1] if quoted else first, rest


def fingerprint(title: str, text: str) -> int:
    """64 bits that two passages share if their titles and texts are the same: but for white space and HTML entities.

    Upper and lower case are not the same.
    """
    plain = "\x1f".join(" ".join(html.unescape(part).split()) for part in (title, text))
    return int.from_bytes(hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _id(number: Value) -> str:
    """An id is a string, or an integer from 0 on."""
    return number.filled_text() if isinstance(number.json, str) else str(number.position())
