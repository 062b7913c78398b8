"""The process of the embedded Prefect server: serves on an inherited socket and dies with its parent.

Run as a script by flows/server.py, so it imports nothing of ours. Starting and waiting are left to that file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading

LINUX_SET_PARENT_DEATH_SIGNAL = 1


def main(descriptor: int) -> None:
    """Serve Prefect's API on the listening socket `descriptor` until SIGTERM, or until standard input ends."""
    threading.Thread(target=_exit_when_parent_is_gone, daemon=True).start()
    if sys.platform == "linux":  # the pipe is enough; this is for a parent whose pipe another child still holds
        ctypes.CDLL(None).prctl(LINUX_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    import uvicorn
    from prefect.server.api.server import create_app

    config = uvicorn.Config(
        create_app, factory=True, lifespan="on", log_level="critical", access_log=False, timeout_graceful_shutdown=3
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


def _exit_when_parent_is_gone() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
