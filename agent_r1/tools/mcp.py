"""The tools of an MCP server that is started as a process and spoken to over its standard input and output.

The protocol is the official client's (the extra `mcp`), that nothing outlives the run is mcp_keeper.py's; here a server
becomes tools, and whatever goes wrong with one a failed call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from agent_r1.errors import ConfigError
from agent_r1.tools.mcp_answers import describe, read_answer, unsendable
from agent_r1.tools.protocol import JsonObject, Tool, ToolResult

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import Tool as Listed

RESTARTS = 3
_KEEPER = Path(__file__).with_name("mcp_keeper.py")
_END_SECONDS = 10.0  # the client takes 4 at most to end a server that does not want to
_PAGES = 100  # of a list of tools; a server that always has another would be asked forever
_ERROR_CHARACTERS = 300
_WORDS_BYTES = 500

_log = logging.getLogger("agent_r1.mcp")
logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it logs a traceback for every line that is not of the protocol


class McpServer:
    """A running MCP server. ConfigError names the command where it cannot be started or does not introduce itself.

    `tools` is as the server listed them when it was started. A call takes `timeout` seconds at most, a start
    `start_timeout`. Beside `env` the server sees of the environment what the client holds safe (PATH, HOME and the
    like). What it writes to standard error is added to the file `log`, or lost. A server that dies fails the calls in
    flight and is started again by the next one, 3 times in all.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        start_timeout: float = 30.0,
        log: Path | None = None,
    ) -> None:
        self._command = tuple(command)
        self._env = dict(env or {})
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._restarts = 0
        self._shut = False
        self._lock = threading.Lock()  # of what calls and close must not do at the same time
        self._check()
        self._log = self._open(log)
        begun: concurrent.futures.Future[list[Listed]] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=[begun], name="mcp", daemon=True)
        self._thread.start()
        try:
            listed = begun.result()
        except ConfigError:
            self._thread.join(_END_SECONDS)
            raise
        self.tools: tuple[Tool, ...] = tuple(_McpTool(self, tool) for tool in listed)

    def call(self, name: str, arguments: JsonObject) -> ToolResult:
        """Call a tool of the server. Never raises: whatever goes wrong is a result with ok False and a reason."""
        if problem := unsendable(name, arguments):
            return ToolResult(f"error: the parameters cannot be sent: {problem}"[:_ERROR_CHARACTERS], ok=False)
        with self._lock:
            if self._shut or not self._thread.is_alive():
                return ToolResult("error: the MCP server is closed", ok=False)
            answer = asyncio.run_coroutine_threadsafe(self._answer(name, arguments), self._loop)
        try:
            return answer.result(self._timeout)
        except TimeoutError:
            answer.cancel()  # the client tells the server
            return ToolResult(f"error: no answer within {self._timeout:g} seconds", ok=False)
        except concurrent.futures.CancelledError:
            return ToolResult("error: the MCP server is closed", ok=False)

    def close(self) -> None:
        """End the server and all that it started, within a few seconds; calls in flight fail."""
        with self._lock:
            if not self._shut and self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._closing.set)
            self._shut = True
        self._thread.join(_END_SECONDS)

    def _check(self) -> None:
        """What can be said without starting anything."""
        try:
            from mcp.client.stdio import get_default_environment
        except ImportError as error:
            raise ConfigError(f"MCP servers need an extra: pip install 'agent-r1[mcp]' ({error})") from error
        if not self._command:
            raise ConfigError("an MCP server's command is empty: expected a program and its arguments")
        path = {**get_default_environment(), **self._env}.get("PATH")
        if shutil.which(self._command[0], path=path) is None:
            raise self._error(f"there is no program {self._command[0]!r} that can be run")

    def _open(self, log: Path | None) -> TextIO:
        try:
            return TextIOWrapper(tempfile.TemporaryFile()) if log is None else log.open("a+")
        except OSError as error:
            raise self._error(f"the log {log} cannot be written: {error.strerror}") from error

    def _error(self, reason: str) -> ConfigError:
        return ConfigError(f"MCP server {' '.join(self._command)!r}: {reason}")

    # What follows runs in the thread of the event loop.

    def _run(self, begun: concurrent.futures.Future[list[Listed]]) -> None:
        try:
            with self._log:
                asyncio.run(self._main(begun))
        finally:
            if not begun.done():  # not even an event loop could be had
                begun.set_exception(self._error("its thread ended before it was started"))

    async def _main(self, begun: concurrent.futures.Future[list[Listed]]) -> None:
        """Start the server, and end it when it is time."""
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self._lives: list[_Life] = []
        life = self._begin()
        client = await life.client
        if isinstance(client, str):
            begun.set_exception(self._error(client))
        else:
            begun.set_result(life.tools)
            await self._closing.wait()
        for life in self._lives:
            life.over.set()
        await asyncio.wait([life.task for life in self._lives], timeout=_END_SECONDS)

    def _begin(self) -> _Life:
        life = _Life(self._loop.create_future())
        life.task = self._loop.create_task(self._live(life))
        self._lives.append(life)
        return life

    async def _live(self, life: _Life) -> None:
        """One life of the server, from its start until `life.over`, which is also set when it dies."""
        from mcp import Client

        written = os.fstat(self._log.fileno()).st_size
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._start_timeout):
                    client = await stack.enter_async_context(Client(self._connect(life)))
                    life.tools = await _list(client)
                life.client.set_result(client)
                await life.over.wait()
        except TimeoutError:
            reason = f"no answer within {self._start_timeout:g} seconds of its start"
            life.failed(f"{reason}{self._last_words(written)}")
        except Exception as error:  # the border to the client, which lets out many kinds, in groups too
            life.failed(f"{describe(error)}{self._last_words(written)}")
        finally:
            life.over.set()
            life.failed("it is closed")

    @asynccontextmanager
    async def _connect(self, life: _Life) -> AsyncIterator[Any]:
        """The client's transport, but for an end that is seen at once: the client itself looks only when it sends."""
        import anyio
        from mcp import StdioServerParameters, stdio_client

        arguments = ["-I", "-S", str(_KEEPER), *self._command]
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=self._env)
        async with stdio_client(parameters, errlog=self._log) as (incoming, outgoing):
            send, receive = anyio.create_memory_object_stream[Any](0)

            async def pass_on() -> None:
                async with send:
                    async for message in incoming:
                        await send.send(message)
                life.over.set()

            async with anyio.create_task_group() as group:
                group.start_soon(pass_on)
                yield receive, outgoing
                group.cancel_scope.cancel()

    async def _answer(self, name: str, arguments: JsonObject) -> ToolResult:
        try:
            client = await self._living()
            if isinstance(client, str):
                return ToolResult(f"error: the MCP server cannot be used: {client}"[:_ERROR_CHARACTERS], ok=False)
            return read_answer(await client.call_tool(name, dict(arguments)))
        except Exception as error:  # the border to the client
            return ToolResult(f"error: {describe(error)}"[:_ERROR_CHARACTERS], ok=False)

    async def _living(self) -> Client | str:
        """The client of a living server, which is started again if it must be, or why there is none."""
        life = self._lives[-1]
        if life.over.is_set():
            if self._restarts == RESTARTS:
                return f"it ended {RESTARTS + 1} times and is not started again"
            self._restarts += 1
            _log.warning(
                "MCP server %r ended; it is started again (%d of %d)", self._command[0], self._restarts, RESTARTS
            )
            life = self._begin()
        return await asyncio.shield(life.client)  # a call that is given up leaves the start to others

    def _last_words(self, start: int) -> str:
        """The end of what the server wrote to standard error in this life."""
        log = self._log.fileno()
        start = max(start, os.fstat(log).st_size - _WORDS_BYTES)
        words = os.pread(log, _WORDS_BYTES, start).decode(errors="replace").strip()
        return f"; its last words: {words}" if words else ""


@dataclass
class _Life:
    """A server from its start to its end. `client` becomes the client, or what went wrong at the start."""

    client: asyncio.Future[Client | str]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    tools: list[Listed] = field(default_factory=list)
    task: asyncio.Task[None] = field(init=False)

    def failed(self, reason: str) -> None:
        if not self.client.done():
            self.client.set_result(reason)


class _McpTool:
    """One tool of a server. Closing it does nothing: the server is closed as a whole."""

    def __init__(self, server: McpServer, listed: Listed) -> None:
        self.name = listed.name
        self._server = server
        self._schema: JsonObject = {
            "type": "function",
            "function": {
                "name": listed.name,
                "description": listed.description or listed.title or listed.name,
                "parameters": {"properties": {}, **listed.input_schema},
            },
        }

    @property
    def schema(self) -> JsonObject:
        """What the model sees, in OpenAI form."""
        return self._schema

    def call(self, arguments: JsonObject) -> ToolResult:
        """See McpServer.call."""
        return self._server.call(self.name, arguments)

    def close(self) -> None:
        """Nothing to free."""


async def _list(client: Client) -> list[Listed]:
    tools: list[Listed] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools.extend(page.tools)
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools
