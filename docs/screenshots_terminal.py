"""The picture of a training in a terminal: a command in a real pseudo-terminal, what stands on its screen, as PNG.

    python docs/screenshots_terminal.py docs/images/terminal.png

trains the quickstart in a temporary home until its sixth iteration, a minute or more, and stops it. Needs Chromium.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 100, 18
UNTIL = re.compile(r"6/14  rollout 2/.*trajectories")
LONGEST = 900.0  # seconds
CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
CHROMIUM = "/usr/bin/chromium"


class Screen:
    """The lines of a terminal, as far as rich moves its cursor: up, carriage return, erased lines. Colours are kept."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.row = 0

    def feed(self, text: str) -> None:
        """Output, in whole control sequences."""
        place = 0
        while place < len(text):
            found = CONTROL.match(text, place)
            if found:
                self._control(found.group(1), found.group(2), found.group(0))
                place = found.end()
                continue
            if text[place] == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            elif text[place] != "\r":
                self.lines[self.row] += text[place]
            place += 1

    def _control(self, number: str, letter: str, whole: str) -> None:
        if letter == "A":
            self.row -= int(number or 1)
        elif letter == "K":
            self.lines[self.row] = ""
        elif letter == "m":
            self.lines[self.row] += whole


def watch(command: list[str], done: Callable[[str], bool], columns: int = COLUMNS) -> Screen:
    """A command in a pseudo-terminal until its screen shows what is wanted; then Ctrl-C."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    screen, rest, deadline = Screen(), "", time.monotonic() + LONGEST
    try:
        while time.monotonic() < deadline and not done("\n".join(screen.lines)):
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    rest += os.read(ours, 65536).decode(errors="replace")
                except OSError:  # its other end is closed: the command is gone
                    break
                whole = rest.rpartition("\x1b")[0] if "\x1b" in rest[-12:] else rest
                screen.feed(whole)
                rest = rest[len(whole) :]
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
        os.close(ours)
    return screen


def terminal(target: Path) -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        home = str(Path(folder) / "agent-r1-home")
        command = [sys.executable, "-m", "flows.cli", "train", "--home", home]
        screen = watch(command, lambda text: UNTIL.search(CONTROL.sub("", text)) is not None)
    shown = [line.replace(home, "agent-r1-home") for line in screen.lines]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ agent-r1 train"))
    for line in shown:
        console.print(Text.from_ansi(line))
    draw(console.export_svg(title="agent-r1 train"), target)


def draw(svg: str, target: Path) -> None:
    """A picture of an SVG, by Chromium."""
    from playwright.sync_api import sync_playwright

    target.parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 600})
        page.set_content(f"<style>body{{margin:0}} svg{{width:1100px}}</style>{svg}")
        page.locator("svg").screenshot(path=str(target))
        browser.close()


if __name__ == "__main__":
    terminal(Path(sys.argv[1]))
