"""Who works on a home or left something running: processes by /proc, and the files of the home that they hold open.

Only what this user may see is seen; where there is no /proc (macOS) nothing is found. Nothing is ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SERVERS = ("server_child.py", "vllm.entrypoints")
LONGEST = 100  # characters of a command


@dataclass(frozen=True)
class Process:
    """A process: its id, command, and seconds since it was started."""

    pid: int
    command: str
    seconds: float
    parent: int

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command[:LONGEST]}), for {_age(self.seconds)}"


def described(pid: str) -> str:
    """A process by the id that a lock names, as far as it can be seen."""
    found = _process(int(pid)) if pid.isdigit() else None
    return f"process {pid}" if found is None else str(found)


def around(home: Path) -> list[Process]:
    """Processes but this one and who started it that name the home in their command, or hold a file of it open."""
    inside, found, ours = f"{home}{os.sep}", [], _line_of(os.getpid())
    for pid in _pids():
        process = None if pid in ours else _process(pid)
        if process is not None and (_names(pid, str(home)) or any(name.startswith(inside) for name in _files(pid))):
            found.append(process)
    return sorted(found, key=lambda each: each.pid)


def left_over(processes: list[Process]) -> list[Process]:
    """Those whose parent is gone: servers of ours end with their run, so that whatever is left has to be ended."""
    return [
        each for each in processes if each.parent == 1 and ("server_child" in each.command or "vllm" in each.command)
    ]


def _line_of(pid: int) -> set[int]:
    """A process with its parent, and so on."""
    found: set[int] = set()
    while pid not in found and (process := _process(pid)) is not None:
        found.add(pid)
        pid = process.parent
    return found


def _pids() -> list[int]:
    with suppress(OSError):
        return [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]
    return []


def _process(pid: int) -> Process | None:
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        # behind the name in parentheses, which may hold spaces: state, parent, ..., and 20th the start in ticks
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        up = float((PROC / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return Process(pid, " ".join(word for word in words if word), max(up - started, 0.0), int(fields[1]))


def _names(pid: int, home: str) -> bool:
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return any(word == home or word.startswith(f"{home}/") or word.endswith(f"={home}") for word in words)


def _files(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                yield os.readlink(entry)


def _age(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds < 86400 else f"{seconds / 86400:.1f} days"
