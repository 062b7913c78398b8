"""An MCP server for the tests of mcp.py, made as users make theirs: a table, and tools that are late or fail."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("cities", log_level="ERROR")


@server.tool()
def population(city: str) -> int:
    """How many people live in a city."""
    return {"Bern": 130_000, "Zürich": 400_000}[city]


@server.tool(structured_output=False)
async def sleep(seconds: float) -> str:
    """Answer late."""
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
def broken() -> str:
    """Fail."""
    raise ValueError("the table is gone")


@server.tool(structured_output=False)
def picture() -> list[str | Image]:
    """Text and an image."""
    return ["a map", Image(data=b"\x89PNG", format="png")]


@server.tool()
async def kill() -> None:
    """Kill the server as kill -9 does, while calls that came before are in flight."""
    await asyncio.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


@server.tool()
def process() -> int:
    """The server's process id."""
    return os.getpid()


@server.tool()
def variable(name: str) -> str:
    """A variable of the environment."""
    return os.environ.get(name, "not set")


if __name__ == "__main__":
    print("the server starts", file=sys.stderr, flush=True)
    server.run("stdio")
