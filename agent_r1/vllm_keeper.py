"""The process between a run and its vLLM server: starts the server, and ends all of it as soon as the run is gone.

Run as a script by vllm_server.py in a process group of its own, so it imports nothing of ours.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from types import FrameType


def main(folder: str, command: list[str]) -> None:
    """Run the command until it ends, on SIGTERM, or until standard input ends: then kill its whole group.

    `folder` holds the server's socket and goes with it.
    """

    def end(_number: int = 0, _frame: FrameType | None = None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)

    def end_with_the_run() -> None:
        while os.read(0, 1):
            pass
        end()

    signal.signal(signal.SIGTERM, end)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=end_with_the_run, daemon=True).start()
    server.wait()
    end()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
