"""The process between a run and its vLLM server: starts the server, and ends all of it as soon as the run is gone.

Run as a script by vllm_process.py, so it imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

GRACE = 5.0  # seconds in which the server may take its shared memory away with it
GROUP = "group"
LINUX_SET_PARENT_DEATH_SIGNAL = 1


def main(folder: Path, command: list[str]) -> None:
    """Run the command until it ends, on SIGTERM, or until standard input ends: then end its whole group.

    `folder` holds what the server needs for its life only, its socket among it, and the number of its group.
    """
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_the_keeper
    )
    (folder / GROUP).write_text(str(server.pid))
    threading.Thread(target=_wait_for_the_run, args=[over], daemon=True).start()
    while server.poll() is None and not over.wait(0.1):
        pass
    end(server.pid, server.poll)
    shutil.rmtree(folder, ignore_errors=True)


def end(group: int, reap: Callable[[], object] = lambda: None) -> None:
    """Ask a process group to end, and kill what is left of it; `reap` buries its leader, who else counts as living."""
    deadline = time.monotonic() + GRACE
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(0.05)
            reap()
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)


def _wait_for_the_run(over: threading.Event) -> None:
    while os.read(0, 1):
        pass
    over.set()


def _end_with_the_keeper() -> None:
    """The server is asked to end even where something kills the keeper alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(LINUX_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
