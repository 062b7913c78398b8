"""Text that a model, a tool or a file wrote, as a page may show it: nothing hidden, nothing endless, nothing run."""

from __future__ import annotations

import json
import re
import unicodedata
from html import escape

from agent_r1.questions.records import Json

JOINERS = "\u200c\u200d"  # invisible, and letters of Persian and emoji need them
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
_SURROGATE = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """With a sign in place of each character that is not seen or turns the writing around: ␛, ‹U+202E›."""
    return text if text.isprintable() else "".join(_sign(letter) for letter in text)


def cut(text: str, limit: int) -> str:
    """The beginning of a text that is longer than `limit`, and how much more there is; made visible."""
    rest = len(text) - limit
    return visible(text) if rest <= 0 else f"{visible(text[:limit])} … ({rest:,} more characters)"


def html(text: object, limit: int = 4000) -> str:
    """A text between tags or in an attribute."""
    return escape(cut(str(text), limit))


def script(value: Json) -> str:
    """JSON inside a script element, which no text in it can end: every < is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return _SURROGATE.sub("\ufffd", text)


def _sign(letter: str) -> str:
    if letter in "\n\t" or letter in JOINERS or unicodedata.category(letter) not in UNSEEN:
        return letter
    code = ord(letter)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"‹U+{code:04X}›"
