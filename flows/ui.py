"""ui: MLflow's pages and Prefect's on loopback, over what a home holds, until Ctrl-C. What they show is left to them.

Both are children of ours that die with us. Prefect's is the standing server of server.py.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from agent_r1.errors import AgentR1Error
from flows.server import pages, standing_server
from flows.session import sigterm_is_ctrl_c
from storage.addresses import check_kind, without_login

START_SECONDS = 180.0
STOP_SECONDS = 10.0
CHILD = Path(__file__).with_name("ui_child.py")
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # 13 more processes, for what nobody here asks
    "MLFLOW_LOGGING_LEVEL": "ERROR",
}


class PagesError(AgentR1Error):
    """The pages cannot be had."""


def serve(home: Path, port: int, prefect_port: int | None, say: Callable[[str], None]) -> None:
    """Serve both, say where they are, and stay. `prefect_port` None is without Prefect's. Ends by KeyboardInterrupt."""
    given = os.environ.get("MLFLOW_TRACKING_URI") or ""
    if given:
        check_kind(given)
    remote = without_login(given) if given.startswith(("http://", "https://")) else None
    if prefect_port is not None and not os.environ.get("PREFECT_API_URL"):
        check_free(prefect_port, "Prefect", "--prefect-port")  # before MLflow's server, which takes seconds
    prefect = nullcontext("") if prefect_port is None else standing_server(home, prefect_port)
    with (
        sigterm_is_ctrl_c(),
        nullcontext(remote) if remote else mlflow_pages(home, port, given) as mlflow,
        prefect as api,
    ):
        say(f"MLflow   {mlflow}{'   (MLFLOW_TRACKING_URI)' if remote else ''}")
        if api:
            say(f"Prefect  {pages(api)}")
        if not remote or api:
            say("Ctrl-C ends them.")
            while True:
                time.sleep(3600)


@contextmanager
def mlflow_pages(home: Path, port: int, store: str = "") -> Iterator[str]:
    """MLflow's server over the home's mlflow.db, or over `store`, until left; yields its address. PagesError."""
    check_free(port)
    uri = store or f"sqlite:///{home / 'mlflow.db'}"
    if not store and not (home / "mlflow.db").exists():
        from storage.tracking import Tracker  # takes seconds

        Tracker(home)  # makes it whole or not at all, which MLflow's server does not
    log_path = home / "mlflow-ui.log"
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--backend-store-uri", uri]
    with log_path.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-P", str(CHILD), *options],
            stdin=subprocess.PIPE,  # never written: its end tells the child that we are gone
            stdout=log,
            stderr=log,
            env={**os.environ, **QUIET},
            start_new_session=True,  # Ctrl-C in the terminal is for us alone
            cwd=home,
        )
        try:
            _wait_until_up(child, f"http://127.0.0.1:{port}", log_path)
            yield f"http://127.0.0.1:{port}"
        finally:
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def check_free(port: int, whose: str = "MLflow", option: str = "--port") -> None:
    """PagesError where the port is taken."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise PagesError(
            f"port {port} for {whose}'s pages cannot be had: {error.strerror}; use another {option}"
        ) from error


def _wait_until_up(child: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline and child.poll() is None:
        try:
            with opener.open(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    problem = "did not answer" if child.returncode is None else f"ended with status {child.returncode}"
    said = " | ".join(line.strip() for line in log_path.read_text(errors="replace").strip().splitlines()[-3:])
    raise PagesError(f"MLflow's server {problem} ({log_path}): {said or 'nothing in its log'}")
