"""The process between a run and an MCP server: starts the server, and ends all that it started as soon as one is gone.

Run as a script by mcp.py, so it imports nothing of ours. The server speaks on the standard input and output that this
process was given; nothing of what is said passes through here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType

GRACE = 1.0  # seconds between asking the server's processes to end and killing them
LINUX_SET_PARENT_DEATH_SIGNAL = 1


def main(command: list[str]) -> int:
    """Run the command until it ends, or on SIGTERM, which comes from the run or, on Linux, when the run dies."""
    signal.signal(signal.SIGTERM, _over)
    _die_with_the_parent(signal.SIGTERM)
    try:
        server = subprocess.Popen(
            command, start_new_session=True, preexec_fn=lambda: _die_with_the_parent(signal.SIGKILL)
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    try:
        os.close(0)  # so that the pipes end with the server, and not with this process
        os.close(1)
        return server.wait()
    finally:
        _end(server)


def _over(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server's group: what the server started may have outlived it."""
    deadline = time.monotonic() + GRACE
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(0.02)
            server.poll()  # buries the leader, who else counts as living
            os.killpg(server.pid, 0)
        os.killpg(server.pid, signal.SIGKILL)


def _die_with_the_parent(how: signal.Signals) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(LINUX_SET_PARENT_DEATH_SIGNAL, how)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
