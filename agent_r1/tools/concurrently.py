"""Tool calls side by side, each with a time limit of its own, in threads that can be given up.

Python cannot stop a thread: a call that hangs is left behind as a daemon thread and its place is given to the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from agent_r1.tools.protocol import JsonObject, Tool, ToolResult

SLOTS = 8


class _Call:
    """A call in its own thread. `begun` is when it got a slot; it holds one until it ends or is given up."""

    def __init__(self, tool: Tool, arguments: JsonObject, slots: threading.Semaphore) -> None:
        self._tool, self._arguments, self._slots = tool, arguments, slots
        self._begun = threading.Event()
        self._done = threading.Event()
        self._result = ToolResult("error: no result", ok=False)
        threading.Thread(target=self._run, daemon=True, name=f"tool {tool.name}").start()

    def _run(self) -> None:
        with self._slots:
            self._begun.set()
            try:
                self._result = self._tool.call(self._arguments)
            except Exception as error:  # the border to other people's code: a failing tool is an observation
                self._result = ToolResult(f"error: {type(error).__name__}: {error}"[:300], ok=False)
            self._done.set()

    def result(self, timeout: float) -> ToolResult:
        """Wait for the slot, then at most `timeout` seconds for the result."""
        self._begun.wait()
        if self._done.wait(timeout):
            return self._result
        self._slots.release()
        return ToolResult(f"error: no answer within {timeout:g} seconds", ok=False)


def run(calls: Sequence[tuple[Tool, JsonObject]], timeout: float) -> list[ToolResult]:
    """Results in the order of the calls; a call that raises or takes longer than `timeout` seconds has ok False."""
    slots = threading.Semaphore(SLOTS)
    started = [_Call(tool, arguments, slots) for tool, arguments in calls]
    return [call.result(timeout) for call in started]
