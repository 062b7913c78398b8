"""Tool calls and other people's code side by side, each with its own time limit, in threads that can be given up.

Python cannot stop a thread: one that hangs is left behind as a daemon thread and its place is given to the next one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from agent_r1.tools.protocol import JsonObject, Tool, ToolResult, checked_result

SLOTS = 8
_REASON = 293  # characters
T = TypeVar("T")
F = TypeVar("F")


def run(calls: Sequence[tuple[Tool, JsonObject]], timeout: float) -> list[ToolResult]:
    """Results in the order of the calls. A call has ok False if it raises, takes longer than `timeout` seconds, or
    returns what is no result."""
    jobs = [partial(_called, tool, arguments) for tool, arguments in calls]
    return side_by_side(jobs, timeout, lambda reason: ToolResult(f"error: {reason}", ok=False))


def _called(tool: Tool, arguments: JsonObject) -> ToolResult:
    return checked_result(tool.call(arguments))


def side_by_side(jobs: Sequence[Callable[[], T]], timeout: float, failed: Callable[[str], F]) -> list[T | F]:
    """What the jobs return, in their order; what `failed` makes of the reason where one raises or takes too long."""
    results: dict[int, T | F] = {}
    waiting = deque(enumerate(jobs))
    deadlines: dict[int, float] = {}  # of the jobs that hold a slot
    ended: SimpleQueue[tuple[int, T | F]] = SimpleQueue()

    def work(number: int, job: Callable[[], T]) -> None:
        try:
            ended.put((number, job()))
        except (Exception, SystemExit) as error:  # the border to other people's code: a failure is an observation
            ended.put((number, failed(f"{type(error).__name__}: {error}"[:_REASON])))

    while waiting or deadlines:
        while waiting and len(deadlines) < SLOTS:
            number, job = waiting.popleft()
            deadlines[number] = time.monotonic() + timeout
            threading.Thread(target=work, args=(number, job), daemon=True).start()
        try:
            number, result = ended.get(timeout=max(min(deadlines.values()) - time.monotonic(), 0.0))
        except Empty:
            number = min(deadlines, key=lambda held: deadlines[held])
            result = failed(f"no answer within {timeout:g} seconds")
        if deadlines.pop(number, None) is not None:  # else it was given up before
            results[number] = result
    return [results[number] for number in range(len(jobs))]
