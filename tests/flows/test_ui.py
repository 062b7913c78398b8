"""ui: MLflow's pages and Prefect's, as a person opens and ends them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.cli import main

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def opened(home: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command as a process of its own, and its first line for each of the pages."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL")
    }
    command = [sys.executable, "-m", "flows.cli", "ui", "--home", str(home), *words]
    child = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        said = []
        while not said or not said[-1].startswith("Ctrl-C"):
            said.append(child.stdout.readline())
            assert said[-1], "it ended"
        yield child, said
    finally:
        child.kill()
        child.communicate()


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def page(port: int) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        return answer.read().decode()


def living(home: Path) -> list[str]:
    """Processes but this one with the home in their command line or environment; none where there is no /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_text() + (process / "environ").read_text()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(home) in text and state != "Z" and process.name != str(os.getpid()):
            found.append((process / "cmdline").read_text())
    return found


def gone(home: Path) -> bool:
    deadline = time.monotonic() + 30
    while living(home) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not living(home)


@pytest.mark.slow
def test_both_pages_answer_and_a_kill_leaves_nothing(tmp_path: Path) -> None:
    mlflow, prefect = free(), free()
    with opened(tmp_path, "--port", str(mlflow), "--prefect-port", str(prefect)) as (child, said):
        assert f"http://127.0.0.1:{mlflow}" in said[0]
        assert f"http://127.0.0.1:{prefect}" in said[1]
        assert "<title>MLflow</title>" in page(mlflow)
        assert "<title>Prefect Server</title>" in page(prefect)
        child.kill()
    assert gone(tmp_path), living(tmp_path)


@pytest.mark.slow
def test_mlflow_alone_is_served_and_sigterm_ends_it_well(tmp_path: Path) -> None:
    mlflow = free()
    with opened(tmp_path, "--port", str(mlflow), "--no-prefect") as (child, said):
        assert [line.split()[0] for line in said] == ["MLflow", "Ctrl-C"]
        assert "<title>MLflow</title>" in page(mlflow)
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
        assert not living(tmp_path)


@pytest.mark.parametrize("option", ["--port", "--prefect-port"])
def test_a_port_that_is_taken_is_one_line(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = "--prefect-port" if option == "--port" else "--port"
        assert main(["ui", "--home", str(tmp_path), option, str(port), other, str(free())]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"port {port}" in err
    assert f"use another {option}\n" in err
    assert not (tmp_path / "mlflow-ui.log").exists(), "nothing was started"
