"""The process of MLflow's server for `agent-r1 ui`: takes its workers along when it ends, and ends with its parent.

Run as a script by flows/ui.py, so it imports nothing of ours. Starting and waiting are left to that file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

STOP_SECONDS = 5.0


def main(options: list[str]) -> int:
    """Run `mlflow server` in this process group until it ends or standard input does."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # sent to the group, for the server
    server = subprocess.Popen([sys.executable, "-P", "-m", "mlflow", "server", *options], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return server.wait()


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
