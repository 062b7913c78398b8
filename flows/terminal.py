"""What a command prints: lines while it works, and its answer as tables or as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from flows.reports import View


def say(line: str) -> None:
    """A line on stdout, at once."""
    print(line, flush=True)


def say_aside(line: str) -> None:
    """A line on stderr: stdout is for the answer."""
    print(line, file=sys.stderr, flush=True)


def say_nothing(_line: str) -> None:
    """For commands whose answer alone is wanted."""


def show_view(view: View, as_json: bool) -> None:
    """The answer, for programs or for people."""
    if as_json:
        print(view.json_text())
    else:
        view.draw(console())


def console() -> Console:
    """As wide as the terminal; wide enough for every table where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=200)
