"""Addresses as they may be shown and probed."""

from __future__ import annotations

import re

_LOGIN = re.compile(r"//\S*@")  # up to the last @: a password may hold a slash


def without_login(text: str) -> str:
    """A text without the user and password of an address in it."""
    return _LOGIN.sub("//", text)
