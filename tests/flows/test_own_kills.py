"""Whole runs, Prefect and all, with an MCP server and a rewritten context: killed, stopped, and nothing left behind."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_kills import DRIVER, SMALL

from benchmarks.likeness import TABLES, finished, lasting, left_over, rows
from storage.annotations import load, load_credits
from storage.database import Store

pytestmark = pytest.mark.slow

SERVER = Path(__file__).parents[1] / "agent_r1" / "bare_mcp_server.py"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A server that no other test has started, and that ends no sooner than it is killed."""
    return Path(shutil.copy(SERVER, tmp_path / "server.py"))


def command(home: Path, server: Path) -> list[str]:
    """The small run of the kills, in the environment that forgets, with a server whose tools nobody needs."""
    mcp = f"mcp=[{{command: [{sys.executable}, -S, {server}, stubborn]}}]"
    settings = [f"--set={setting}" for setting in (*SMALL, mcp)]
    return ["train", "forgetting", "--run", "small", "--home", str(home), *settings]


def gone(text: Path) -> bool:
    """Whether all processes whose command lines name the file end in time."""
    return lasting(text) == []


def test_a_run_that_is_killed_leaves_no_server_and_ends_as_if_nothing_had_happened(
    tmp_path: Path, server: Path
) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert subprocess.run([sys.executable, "-m", "flows.cli", *command(straight, server)]).returncode == 0
    assert gone(server)

    driven = ["update", "2", "0", "0.05", "--", *command(killed, server)]
    assert subprocess.run([sys.executable, str(DRIVER), *driven]).returncode == -9
    assert gone(server)
    assert ("update", 2, 0) not in finished(killed)

    resume = ["resume", "small", "--home", str(killed)]
    assert subprocess.run([sys.executable, "-m", "flows.cli", *resume]).returncode == 0
    assert gone(server)
    for table in TABLES:
        assert rows(killed, table) == rows(straight, table), table
    for checkpoint in ("00001", "00002"):
        part = Path("runs/small/checkpoints") / checkpoint / "policy/model.safetensors"
        assert (killed / part).read_bytes() == (straight / part).read_bytes()

    with Store(straight / "store.duckdb").read() as con:
        made, credits = load(con, "small", 2), load_credits(con, "small", 2)
    assert max(row.segment for row in made) > 0
    assert len(made) == len(credits)
    for row in made:
        assert sum(row.rewards) == pytest.approx(sum(sum(parts.values()) for parts in row.reward_parts.values()))


HEARING = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from flows.cli import main
sys.exit(main())
"""
"""The command line where Ctrl-C is heard: whoever is started in the background of a shell inherits deaf ears."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_leaves_no_server(tmp_path: Path, server: Path, number: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", HEARING, *command(tmp_path / "home", server)], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    while "warm start" not in run.stdout.readline():
        assert run.poll() is None
    assert left_over(server)
    run.send_signal(number)
    assert run.wait(60) == 130
    run.stdout.close()
    assert gone(server)


def test_an_evaluation_ends_its_server(tmp_path: Path, server: Path) -> None:
    home = tmp_path / "home"
    assert subprocess.run([sys.executable, "-m", "flows.cli", *command(home, server), "--iterations=0"]).returncode == 0
    evaluate = ["evaluate", "small", "--home", str(home), "--json"]
    done = subprocess.run([sys.executable, "-m", "flows.cli", *evaluate], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "eval/greedy/exact_match" in done.stdout
    assert gone(server)
