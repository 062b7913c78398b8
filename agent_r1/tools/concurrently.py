"""Tool calls side by side, each with a time limit of its own, in threads that can be given up.

Python cannot stop a thread: a call that hangs is left behind as a daemon thread and its place is given to the next one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from agent_r1.tools.protocol import JsonObject, Tool, ToolResult

SLOTS = 8

_Ended = SimpleQueue[tuple[int, ToolResult]]


def run(calls: Sequence[tuple[Tool, JsonObject]], timeout: float) -> list[ToolResult]:
    """Results in the order of the calls; a call that raises or takes longer than `timeout` seconds has ok False."""
    results: dict[int, ToolResult] = {}
    waiting = deque(enumerate(calls))
    deadlines: dict[int, float] = {}  # of the calls that hold a slot
    ended: _Ended = SimpleQueue()
    while waiting or deadlines:
        while waiting and len(deadlines) < SLOTS:
            number, (tool, arguments) = waiting.popleft()
            deadlines[number] = time.monotonic() + timeout
            threading.Thread(target=_call, args=(number, tool, arguments, ended), daemon=True).start()
        try:
            number, result = ended.get(timeout=max(min(deadlines.values()) - time.monotonic(), 0.0))
        except Empty:
            number = min(deadlines, key=lambda held: deadlines[held])
            result = ToolResult(f"error: no answer within {timeout:g} seconds", ok=False)
        if deadlines.pop(number, None) is not None:  # else it was given up before
            results[number] = result
    return [results[number] for number in range(len(calls))]


def _call(number: int, tool: Tool, arguments: JsonObject, ended: _Ended) -> None:
    try:
        result = tool.call(arguments)
    except Exception as error:  # the border to other people's code: a failing tool is an observation
        result = ToolResult(f"error: {type(error).__name__}: {error}"[:300], ok=False)
    ended.put((number, result))
