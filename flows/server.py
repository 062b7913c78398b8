"""The embedded Prefect server: a child of ours on a loopback port that lives exactly as long as we do.

Prefect's own ephemeral server outlives killed runs and loses task records. What runs against it is left to training.py.
A standing one, with the pages to look at and the service that schedules, is for commands that stay: schedule and ui.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import UUID

from agent_r1.errors import AgentR1Error
from storage.addresses import without_login

START_SECONDS = 180.0
STOP_SECONDS = 10.0
RECORD_SECONDS = 10.0
ANSWER_SECONDS = 10.0
CHILD = Path(__file__).with_name("server_child.py")

QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}
PORT = 4200
STANDING = {
    **QUIET,
    "PREFECT_SERVER_UI_ENABLED": "true",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT__SERVER_EPHEMERAL": "",  # with its services: the one that schedules above all
    # leases in memory, the default, keep a slot taken after everything was killed
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
}


class ServerError(AgentR1Error):
    """The embedded Prefect server did not come up."""


@contextmanager
def prefect_server(home: Path, meanwhile: Callable[[], object] = lambda: None) -> Iterator[str]:
    """A Prefect API for this process; yields its address. `meanwhile` is done while the server starts.

    The user's PREFECT_API_URL wins, and then nothing is started. Otherwise the server keeps its records in
    home/prefect and is gone afterwards, also after kill -9 of this process. Call it from the main thread, before
    Prefect is imported where that can be had. Raises ServerError.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
        _check_answers(given)
        meanwhile()
        yield given
        return
    with _server(home, 0, QUIET, meanwhile) as url:
        yield url


@contextmanager
def standing_server(home: Path, port: int = PORT, meanwhile: Callable[[], object] = lambda: None) -> Iterator[str]:
    """As `prefect_server`, with Prefect's pages at http://127.0.0.1:`port` and its services: it can schedule.

    The user's PREFECT_API_URL wins here, too. ServerError where the port is taken.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given:
        with prefect_server(home, meanwhile) as url:
            yield url
        return
    how = {
        **STANDING,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port},http://localhost:{port}",  # no other page's
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(home / "prefect" / "pages"),  # where Prefect lies may be read-only
    }
    with _server(home, port, how, meanwhile) as url:
        yield url


def pages(url: str) -> str:
    """Where Prefect's pages are, of the server whose API is at `url`."""
    return url.removesuffix("/").removesuffix("/api")


@contextmanager
def _server(home: Path, port: int, how: Mapping[str, str], meanwhile: Callable[[], object]) -> Iterator[str]:
    """A server of our own over home/prefect; port 0 is any that is free."""
    folder = home / "prefect"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ServerError(
            f"port {port} for Prefect's server cannot be had: {error.strerror}; use another --port"
        ) from (error)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
    with (
        _environment({**how, "PREFECT_HOME": str(folder), "PREFECT_API_URL": url}),
        _child(folder, listener, url, meanwhile),
        _settings(url, folder),
    ):
        yield url


def _check_answers(url: str) -> None:
    """ServerError, after seconds and not minutes, where the user's server is not there."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=ANSWER_SECONDS):
            return
    except urllib.error.HTTPError:
        return  # it answers, if not to that: Prefect itself says what it wants
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ServerError(
            f"the Prefect server at {without_login(url)} (PREFECT_API_URL) does not answer: {reason}; start it, or "
            "unset PREFECT_API_URL to have one for the run alone"
        ) from error


@contextmanager
def _environment(ours: Mapping[str, str]) -> Iterator[None]:
    """Variables for the child, and for a Prefect that is imported inside; afterwards as before."""
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _settings(url: str, folder: Path) -> Iterator[None]:
    """The same once more for a Prefect that was imported before; and no heartbeats, which cost a second a flow."""
    from prefect.events.worker import EventsWorker
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_HOME,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    with temporary_settings(
        {
            PREFECT_API_URL: url,
            PREFECT_HOME: folder,
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
            PREFECT_LOGGING_TO_API_ENABLED: False,
        }
    ):
        try:
            yield
        finally:  # states of tasks travel as events, and are recorded one by one: wait for both before the server goes
            EventsWorker.drain_all(timeout=RECORD_SECONDS)
            _wait_until_recorded(url)


@contextmanager
def _child(folder: Path, listener: socket.socket, url: str, meanwhile: Callable[[], object]) -> Iterator[None]:
    log_path = folder / "server.log"
    with log_path.open("wb") as log, (folder / "start.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)  # two runs of one home must not migrate its database at once
        child = _start(listener, log)
        listener.close()
        try:
            meanwhile()
            _wait_until_up(child, url, log_path)
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield
        except AgentR1Error:
            raise
        except Exception as error:  # Prefect's client has errors of many kinds for a server that is not there
            if child.poll() is None:
                raise
            raise ServerError(
                f"the run's Prefect server is gone (status {child.returncode}; killed, perhaps for its memory): what "
                "was finished is stored; go on with agent-r1 resume"
            ) from error
        finally:
            _stop(child)


def _start(listener: socket.socket, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", str(CHILD), str(listener.fileno())],
        stdin=subprocess.PIPE,  # never written: its end tells the child that we are gone
        stdout=log,
        stderr=log,
        pass_fds=(listener.fileno(),),
        start_new_session=True,  # Ctrl-C in the terminal is for us alone
        cwd=CHILD.parent.anchor,  # a prefect.toml or .env where the user works is not for the server
    )


def _wait_until_up(child: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        try:
            with _without_proxy().open(f"{url}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    problem = "did not answer" if child.returncode is None else f"ended with status {child.returncode}"
    lines = log_path.read_text(errors="replace").strip().splitlines()[-5:]
    said = " | ".join(line.strip() for line in lines) or "nothing in its log"
    raise ServerError(
        f"the embedded Prefect server {problem} within {START_SECONDS:.0f} s ({log_path}): {said}. Where its records "
        f"are damaged, delete {log_path.parent}: it holds no results"
    )


def _wait_until_recorded(url: str) -> None:
    """Until the number of ended task runs stands still; Prefect has no way to ask."""
    ended = {"task_runs": {"state": {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED"]}}}}
    deadline = time.monotonic() + RECORD_SECONDS
    before, now = -1, _count(url, ended)
    while now != before and time.monotonic() < deadline:
        time.sleep(0.3)
        before, now = now, _count(url, ended)


def _count(url: str, which: Mapping[str, object]) -> int:
    request = urllib.request.Request(
        f"{url}/task_runs/count", json.dumps(which).encode(), {"Content-Type": "application/json"}
    )
    try:
        with _without_proxy().open(request, timeout=5) as answer:
            return int(answer.read())
    except (urllib.error.URLError, OSError):
        return -1


def _without_proxy() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    finally:
        assert child.stdin is not None
        child.stdin.close()


def crash_dead_runs(tags: Sequence[str], alive: UUID | None = None) -> int:
    """Set flow runs with all these tags that never ended to Crashed, but for the one that is `alive`; says how many.

    Call it only while holding the run's lock: whoever left them behind is dead.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        FlowRunFilterTags,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    open_states = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    with get_client(sync_client=True) as client:
        dead = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                tags=FlowRunFilterTags(all_=list(tags)),
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=open_states)),
            )
        )
        dead = [flow_run for flow_run in dead if flow_run.id != alive]
        for flow_run in dead:
            client.set_flow_run_state(flow_run.id, Crashed(message="its process is gone"), force=True)
    return len(dead)
