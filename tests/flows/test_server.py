"""The embedded Prefect server, for real: one run of fake stages, killed with -9 and run again."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from fakes import config

from flows import server
from flows.reports import runs
from flows.server import ServerError, pages, prefect_server, standing_server
from storage import stages
from tasks.context import RunContext

ROOT = Path(__file__).parents[2]


def start(home: Path, pause: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fakes.py")), str(home), "a", str(pause)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return state not in ("", "Z")


def wait_until_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    first = start(tmp_path, 0.1)
    assert first.stdout is not None
    for line in first.stdout:
        if line == "begin update 1\n":
            break
    servers = children(first.pid)
    first.kill()
    first.wait()
    assert servers
    assert wait_until_gone(servers)
    assert '"status": "killed"' in runs(tmp_path).json_text()

    second = start(tmp_path, 0.0)
    said, _ = second.communicate(timeout=120)
    assert second.returncode == 0
    begun = [line for line in said.splitlines() if line.startswith("begin ")]
    assert begun[:3] == ["begin update 1", "begin evaluate 1", "begin publish 1"]
    with RunContext(tmp_path, "a", config()).store.read() as con:
        done = stages.of_run(con, "a")
    assert len(done) == 16
    assert {row.attempt for row in done} == {1}
    with sqlite3.connect(tmp_path / "prefect" / "prefect.db") as con:
        states = [state for (state,) in con.execute("SELECT state_type FROM flow_run ORDER BY start_time")]
        tasks = con.execute("SELECT count(*) FROM task_run WHERE state_type = 'COMPLETED'").fetchone()[0]
        tags = {tag for (tag,) in con.execute("SELECT DISTINCT tags FROM task_run").fetchall()}
        name = con.execute("SELECT name FROM flow_run ORDER BY start_time DESC LIMIT 1").fetchone()
    assert states == ["CRASHED", "COMPLETED"]
    assert tasks >= 16  # every stage of the second flow, skipped or not
    assert {tuple(sorted(json.loads(tag))) for tag in tags} == {
        ("run:a",), ("iteration:1", "run:a"), ("iteration:2", "run:a")
    }  # fmt: skip
    assert name == ("a: iterations 1 to 2",)


def test_the_users_server_is_used_and_none_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    monkeypatch.setattr("flows.server._check_answers", lambda _: None)
    with prefect_server(tmp_path) as url:
        assert url == "http://127.0.0.1:1/api"
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_come_up_is_one_line_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "child.py"
    script.write_text("import sys; print('first'); sys.exit('no room left')")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(server, "CHILD", script)
    before = os.environ.copy()
    with pytest.raises(ServerError, match=r"ended with status 1.*server.log.*no room left"), prefect_server(tmp_path):
        pass
    assert os.environ.copy() == before


def test_a_port_that_is_taken_is_one_line_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=f"^port {port} .* use another --port$"), standing_server(tmp_path, port):
            pass


@pytest.mark.slow
def test_a_standing_server_shows_pages_that_ask_its_own_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with standing_server(tmp_path, port) as url:
        assert pages(url) == f"http://127.0.0.1:{port}"
        assert b"<!DOCTYPE html>" in urllib.request.urlopen(pages(url)).read()
        assert f'"api_url":"{url}"'.encode() in urllib.request.urlopen(f"{pages(url)}/ui-settings").read()


ANSWERS = """
import socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    caller, _ = listener.accept()
    caller.recv(10_000)
    caller.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n0")
    caller.close()
"""


def test_a_server_that_is_killed_is_what_is_said_of_the_errors_that_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "child.py"
    script.write_text(ANSWERS)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(server, "CHILD", script)
    children: list[subprocess.Popen[bytes]] = []
    start = server._start
    monkeypatch.setattr(server, "_start", lambda *given: children.append(start(*given)) or children[-1])
    with pytest.raises(ValueError, match="ours"), prefect_server(tmp_path):
        raise ValueError("ours")

    def meet_its_end() -> None:
        children[-1].kill()
        children[-1].wait()
        raise ConnectionError("all connection attempts failed")

    with pytest.raises(ServerError, match=r"server is gone \(status -9.*agent-r1 resume"), prefect_server(tmp_path):
        meet_its_end()
