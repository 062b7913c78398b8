"""The tools, one a file, all in the shape that protocol.py names. None of them sees a gold answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_r1.tools.function import function_tool

__all__ = ["function_tool"]


def __getattr__(name: str) -> object:
    """`function_tool` when it is asked for: what it imports is not needed by those who want another tool."""
    if name == "function_tool":
        from agent_r1.tools.function import function_tool

        return function_tool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
