"""What of MCP's protocol becomes text that a model reads: answers, and what went wrong with a call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent_r1.tools.protocol import JsonObject, ToolResult

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock


def unsendable(name: str, arguments: JsonObject) -> str:
    """What keeps a call from being written, or "". The client would lose its server over it, not only the call."""
    from mcp.types import JSONRPCRequest

    if not isinstance(arguments, Mapping):
        return "expected a JSON object"
    try:
        params = {"name": name, "arguments": dict(arguments)}
        request = JSONRPCRequest(jsonrpc="2.0", id=0, method="tools/call", params=params)
        request.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except (ValueError, TypeError, RecursionError) as error:  # half a surrogate pair, nested 255 deep
        return " ".join(str(error).split())
    return ""


def read_answer(answer: CallToolResult) -> ToolResult:
    """The texts of an answer, with a name for what is no text; structured content where there is nothing else."""
    text = "\n".join(_shown(block) for block in answer.content)
    if not answer.content and answer.structured_content is not None:
        text = json.dumps(answer.structured_content, ensure_ascii=False)
    if answer.is_error:
        return ToolResult(text or "error: the tool failed and said nothing", ok=False)
    return ToolResult(text or "(no content)", ok=True)


def _shown(block: ContentBlock) -> str:
    match block.type:
        case "text":
            return block.text
        case "resource":
            return f"[resource {block.resource.uri}]"
        case "resource_link":
            return f"[resource {block.uri}]"
        case other:
            return f"[{other}]"


def describe(error: BaseException) -> str:
    """One line about an exception of the client."""
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED

    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case MCPError(code=code) if code == CONNECTION_CLOSED:
            return "the MCP server ended"
        case MCPError():
            return f"the MCP server says: {error.message}"
        case ValueError():  # pydantic's
            return f"the MCP server's answer is not of the protocol: {' '.join(str(error).split())}"
        case _:
            return f"{type(error).__name__}: {error}"
