"""The process that runs model-written SQL in a cage: one query a line from stdin, one answer a line to stdout.

It ends when stdin does. What a query may do is the engine's file's (`sql_sqlite.py`, `sql_duckdb.py`); this one adds
the limits of the operating system and makes text or typed values of rows. Killing it when a query cannot be interrupted
is left to the parent, `sql.py`. It imports only the standard library, the messages and one engine, to start fast.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import fields
from decimal import Decimal
from typing import Any, TextIO

from agent_r1.tools.sql_messages import TOO_MUCH_MEMORY, Answer, Database, Refused, Request, Scalar, Settings, Table

MEMORY_BYTES = 2 << 30
RESULT_CHARACTERS = 4_000_000
ERROR_CHARACTERS = 500


def answer(database: Database, settings: Settings, request: Request) -> Answer:
    """Run one query. Whatever goes wrong is an answer: this is the boundary where exceptions end."""
    limit = settings.max_rows if request.max_rows is None else request.max_rows
    try:
        table = database.query(request.query, limit + 1)
        if request.max_rows is None:
            return Answer(render(table, limit, settings.max_characters), ok=True)
        return Answer("", ok=True, columns=table.columns, rows=typed(table, limit))
    except Refused as error:
        return Answer(str(error), ok=False)
    except MemoryError:
        return Answer(TOO_MUCH_MEMORY, ok=False, broken=True)
    except Exception as error:
        return Answer(
            describe(error, settings.path),
            ok=False,
            broken=type(error).__name__ in ("FatalException", "InternalException"),
        )


def describe(error: BaseException, path: str) -> str:
    """The message of an error: without where the file lies, and not longer than the model needs."""
    text = str(error).strip() or type(error).__name__
    for form in (path, os.path.realpath(path)):
        text = text.replace(form, os.path.basename(path)).replace(os.path.dirname(form) + os.sep, "")
    return f"error: {text[:ERROR_CHARACTERS]}"


def render(table: Table, max_rows: int, max_characters: int) -> str:
    """A line of column names, then a line a row; cut at the caps, with a note that says so."""
    lines = [" | ".join(show(name) for name in table.columns)]
    length = len(lines[0])
    note = "(no rows)" if not table.rows else ""
    for number, row in enumerate(table.rows):
        line = " | ".join(show(value) for value in row)
        if number == max_rows:
            note = f"(only the first {max_rows} rows are shown)"
            break
        if length + 1 + len(line) > max_characters:
            room = max_characters - length - 1
            if room > 0:
                lines.append(line[:room] + "…")
            note = f"(cut at {max_characters} characters; there is more)"
            break
        lines.append(line)
        length += 1 + len(line)
    if len(lines[0]) > max_characters:
        lines = [lines[0][:max_characters] + "…"]
    return "\n".join([*lines, note] if note else lines)


def show(value: object) -> str:
    """One value on one line."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes: {value[:16].hex()}{'…' if len(value) > 16 else ''}>"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    return str(value).replace("\r", "\\r").replace("\n", "\\n") if value != "" else "''"


def typed(table: Table, max_rows: int) -> list[list[Scalar]]:
    """The rows with values that JSON has. Refused where there are too many rows or characters."""
    if len(table.rows) > max_rows:
        raise Refused(f"error: the result has more than {max_rows} rows")
    rows = [[scalar(value) for value in row] for row in table.rows]
    if sum(len(value) if isinstance(value, str) else 8 for row in rows for value in row) > RESULT_CHARACTERS:
        raise Refused(f"error: the result has more than {RESULT_CHARACTERS} characters")
    return rows


def scalar(value: object) -> Scalar:
    """A value as a QueryResult holds it. A decimal is a whole number where it can be, so that no digit is lost."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def cage() -> None:
    """Limits of the operating system, where it has them."""
    _limit(("RLIMIT_AS", MEMORY_BYTES), ("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0))


def close_the_door() -> None:
    """No file, pipe or connection can be opened any more, not even by a query that finds a hole in the engine."""
    _limit(("RLIMIT_NOFILE", 0))


def _limit(*limits: tuple[str, int]) -> None:
    try:
        resource: Any = importlib.import_module("resource")
    except ImportError:
        return
    for name, limit in limits:
        try:
            resource.setrlimit(getattr(resource, name), (limit, limit))
        except (AttributeError, ValueError, OSError):  # macOS refuses some
            continue


def connect(settings: Settings) -> Database:
    if settings.kind == "sqlite":
        return importlib.import_module("agent_r1.tools.sql_sqlite").SqliteDatabase(settings.path, settings.seconds)
    return importlib.import_module("agent_r1.tools.sql_duckdb").DuckDatabase(settings.path, settings.seconds)


def _take_stdout() -> TextIO:
    """The way to the parent, which nothing but this file can write to: file descriptor 1 leads nowhere from here on."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return replies


def main(settings_json: str) -> None:
    settings = Settings(**json.loads(settings_json))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business; it closes stdin
    os.environ.clear()  # of the process too, so that a library's getenv finds nothing
    os.environ["TZ"] = "UTC0"  # local time is the same on every machine
    time.tzset()
    replies = _take_stdout()
    requests: queue.Queue[Request] = queue.Queue()

    def read() -> None:
        """Apart from the queries, so that the worker ends with its parent even in the middle of one."""
        for line in sys.stdin:
            requests.put(Request(**json.loads(line)))
        os._exit(0)

    def reply(message: Answer) -> None:
        replies.write(json.dumps({field.name: getattr(message, field.name) for field in fields(message)}) + "\n")
        replies.flush()

    cage()
    threading.Thread(target=read, daemon=True).start()
    try:
        database = connect(settings)
    except Exception as error:
        reply(Answer(describe(error, settings.path), ok=False, broken=True))
        return
    close_the_door()
    reply(Answer("ready", ok=True))
    while True:
        reply(answer(database, settings, requests.get()))
