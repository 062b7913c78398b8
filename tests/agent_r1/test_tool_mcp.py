"""Tools of MCP servers: what the model sees, and that a server which is late, wrong or dead is a failed call."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from agent_r1.errors import ConfigError
from agent_r1.tools import mcp as mcp_tools
from agent_r1.tools.mcp import McpServer
from agent_r1.tools.own import check_schema
from agent_r1.tools.protocol import JsonObject, ToolResult

SERVER = (sys.executable, str(Path(__file__).with_name("mcp_server.py")))
BARE = (sys.executable, "-S", str(Path(__file__).with_name("bare_mcp_server.py")))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp") / "server.log"


@pytest.fixture(scope="module")
def server(log: Path) -> Iterator[McpServer]:
    os.environ["MCP_TEST_SECRET"] = "secret"
    one = McpServer(SERVER, env={"GIVEN": "given"}, timeout=5, log=log)
    yield one
    one.close()
    del os.environ["MCP_TEST_SECRET"]


@pytest.fixture
def bare() -> Iterator[Callable[..., McpServer]]:
    """Starts servers that are closed at the end."""
    servers: list[McpServer] = []

    def start(*how: str, timeout: float = 5.0) -> McpServer:
        servers.append(McpServer((*BARE, *how), timeout=timeout))
        return servers[-1]

    yield start
    for each in servers:
        each.close()


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether a process ends in time; one that nobody has buried yet has ended too."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
        if not status or status.startswith("Z"):
            return True
        time.sleep(0.05)
    return False


def test_tools_are_as_the_server_lists_them(server: McpServer) -> None:
    tool = server.tools[0]
    listed = ["population", "sleep", "broken", "picture", "kill", "process", "variable"]
    assert [each.name for each in server.tools] == listed
    for each in server.tools:
        check_schema(each, "mcp")
    assert tool.schema["type"] == "function"
    assert tool.schema["function"] == {
        "name": "population",
        "description": "How many people live in a city.",
        "parameters": {
            "title": "populationArguments",
            "type": "object",
            "properties": {"city": {"title": "City", "type": "string"}},
            "required": ["city"],
        },
    }


def test_answer_is_the_text_of_its_contents_and_names_what_is_no_text(server: McpServer) -> None:
    assert server.tools[0].call({"city": "Zürich"}) == ToolResult("400000", ok=True)
    assert server.call("picture", {}) == ToolResult("a map\n[image]", ok=True)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("broken", {}, "Error executing tool broken"),
        ("population", {"cty": "Bern"}, "city\n  Field required"),
        ("nothing_of_the_kind", {}, "Unknown tool: nothing_of_the_kind"),
    ],
)
def test_error_of_a_tool_is_a_failure_in_the_server_s_words(
    server: McpServer, name: str, arguments: dict[str, str], said: str
) -> None:
    result = server.call(name, dict(arguments))
    assert not result.ok
    assert said in result.text


def test_server_sees_what_it_is_given_and_no_other_secrets(server: McpServer) -> None:
    assert server.call("variable", {"name": "GIVEN"}).text == "given"
    assert server.call("variable", {"name": "MCP_TEST_SECRET"}).text == "not set"
    assert server.call("variable", {"name": "PATH"}).text == os.environ["PATH"]


def test_standard_error_of_the_server_goes_to_the_log(server: McpServer, log: Path) -> None:
    assert server.tools
    assert "the server starts" in log.read_text()


def test_calls_of_several_threads_run_side_by_side(server: McpServer) -> None:
    before = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: server.call("sleep", {"seconds": 0.3}), range(8)))
    assert results == [ToolResult("awake", ok=True)] * 8
    assert time.monotonic() - before < 2.2  # one after the other: 2.4


def test_server_killed_in_the_middle_fails_its_calls_at_once_and_is_started_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_tools, "RESTARTS", 1)
    server = McpServer(SERVER, timeout=20)
    try:
        pid = int(server.call("process", {}).text)
        before = time.monotonic()
        with ThreadPoolExecutor(2) as pool, caplog.at_level(logging.WARNING, "agent_r1.mcp"):
            flying = [pool.submit(server.call, "sleep", {"seconds": 15}) for _ in range(2)]
            time.sleep(0.2)
            os.kill(pid, signal.SIGKILL)
            assert [each.result() for each in flying] == [ToolResult("error: the MCP server ended", ok=False)] * 2
            assert time.monotonic() - before < 5
            second = server.call("process", {})
        assert second.ok
        assert [record.getMessage() for record in caplog.records] == [
            f"MCP server {sys.executable!r} ended; it is started again (1 of 1)"
        ]
        os.kill(int(second.text), signal.SIGKILL)
        assert gone(int(second.text))
        deadline = time.monotonic() + 10
        while (last := server.call("process", {})).text.endswith("ended") and time.monotonic() < deadline:
            time.sleep(0.05)  # the death is being noticed
        assert last == ToolResult(
            "error: the MCP server cannot be used: it ended 2 times and is not started again", ok=False
        )
    finally:
        server.close()


def test_call_that_takes_too_long_is_given_up_and_the_server_goes_on(bare: Callable[..., McpServer]) -> None:
    server = bare(timeout=0.3)
    before = time.monotonic()
    assert server.call("mute", {}) == ToolResult("error: no answer within 0.3 seconds", ok=False)
    assert time.monotonic() - before < 3
    assert server.call("pids", {}).ok


def test_answers_of_every_kind_have_a_text(bare: Callable[..., McpServer]) -> None:
    server = bare("noisy")
    assert server.call("structured", {}) == ToolResult('{"Zürich": 1}', ok=True)
    assert server.call("resource", {}) == ToolResult("[resource file:///a.txt]", ok=True)
    assert server.call("nothing", {}) == ToolResult("error: the tool failed and said nothing", ok=False)
    malformed = server.call("malformed", {})
    assert not malformed.ok
    assert malformed.text.startswith("error: the MCP server's answer is not of the protocol: ")
    assert server.call("pids", {}).ok


def test_parameters_that_cannot_be_written_cost_the_call_and_not_the_server(bare: Callable[..., McpServer]) -> None:
    server = bare()
    pids = server.call("pids", {})
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    for arguments in (None, "Bern", {"city": "\ud800"}, {"city": deep}, {"city": object()}):
        result = server.tools[0].call(cast(JsonObject, arguments))
        assert not result.ok
        assert result.text.startswith("error: the parameters cannot be sent: ")
    assert server.call("pids", {}) == pids


def test_close_ends_a_stubborn_server_with_its_children(bare: Callable[..., McpServer]) -> None:
    server = bare("stubborn")
    pids = json.loads(server.call("pids", {}).text)
    assert len(pids) == 2
    before = time.monotonic()
    server.close()
    assert time.monotonic() - before < 6
    assert all(gone(pid) for pid in pids)
    assert server.call("pids", {}) == ToolResult("error: the MCP server is closed", ok=False)
    server.close()


def test_close_fails_the_calls_in_flight(bare: Callable[..., McpServer]) -> None:
    server = bare(timeout=20)
    with ThreadPoolExecutor(1) as pool:
        flying = pool.submit(server.call, "mute", {})
        time.sleep(0.2)
        server.close()
        assert not flying.result(timeout=2).ok


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a server that ignores the end of its input stays")
def test_nothing_outlives_a_run_that_is_killed() -> None:
    script = (
        "import os, signal, sys; from agent_r1.tools.mcp import McpServer\n"
        "server = McpServer(sys.argv[1:]); print(server.call('pids', {}).text, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", script, *BARE, "stubborn"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=30, cwd=Path(__file__).parents[2])
    pids = json.loads(run.stdout)
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((), "command is empty"),
        (("no-such-program", "x"), "MCP server 'no-such-program x': there is no program 'no-such-program'"),
        ((sys.executable, "-c", "exit('no API key')"), ": the MCP server ended; its last words: no API key"),
        (
            (sys.executable, "-c", "import sys; print('wait', file=sys.stderr, flush=True); sys.stdin.read()"),
            ": no answer within 1.5 seconds of its start; its last words: wait",
        ),
    ],
)
def test_server_that_does_not_start_is_an_error_with_its_last_words(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        McpServer(command, start_timeout=1.5)
    assert said in str(raised.value)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.client.stdio", None)
    with pytest.raises(ConfigError, match=r"pip install 'agent-r1\[mcp\]'"):
        McpServer(BARE)
