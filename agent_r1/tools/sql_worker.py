"""The process that runs model-written SQL in a cage: read-only, no files, bounded time, memory and output.

Run by file path (`python -P sql_worker.py SETTINGS`), it reads one JSON query a line from stdin and writes one JSON
answer a line to stdout, and ends when stdin does. It imports only the standard library and duckdb, to start fast.
Killing it when a query cannot be interrupted is left to the parent, `agent_r1.tools.sql`.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Protocol
from urllib.parse import quote

MEMORY_BYTES = 2 << 30
VALUE_BYTES = 16 << 20
ERROR_CHARACTERS = 500
ONE_SELECT = "only one SELECT (or EXPLAIN) statement at a time is allowed"
TOO_SLOW = "time-out: the query took longer than {} seconds and was stopped"
SQLITE_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
SQLITE_PRAGMAS = {"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info"}
SQLITE_FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
DUCKDB_SETTINGS = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "memory_limit": "512MB",
    "threads": "1",
    "temp_directory": "",
    "max_temp_directory_size": "0B",
    "lock_configuration": "true",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the parent tells the worker, as JSON in its only argument."""

    path: str
    kind: str
    max_rows: int
    max_characters: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What the worker tells the parent. `broken`: the worker is of no further use."""

    text: str
    ok: bool
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The head of a result: at most one row more than may be shown."""

    columns: list[str]
    rows: list[tuple[object, ...]]


class Database(Protocol):
    """An open database that answers one query within the time limit, or raises."""

    def query(self, sql: str, rows: int) -> Table: ...


class Refused(Exception):
    """The query is not allowed, or took too long; the message is for the model."""


class SqliteDatabase:
    """sqlite3 with a read-only file, an authorizer that allows reading alone, and a clock."""

    def __init__(self, path: str, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = 0.0
        with open(path, "rb") as file:
            write_ahead = file.read(20)[18:20] == b"\x02\x02"
        # Opening a write-ahead database makes files beside it, unless SQLite may take it for unchanging.
        unchanging = "&immutable=1" if write_ahead and not os.path.exists(path + "-wal") else ""
        self._connection = sqlite3.connect(f"file:{quote(path)}?mode=ro{unchanging}", uri=True, isolation_level=None)
        self._connection.text_factory = lambda value: value.decode("utf-8", "replace")
        self._connection.execute("PRAGMA query_only = ON")
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute("PRAGMA temp_store = MEMORY")
        self._connection.execute("SELECT name FROM sqlite_master").fetchone()
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._connection.set_authorizer(_authorize)
        self._connection.set_progress_handler(lambda: time.monotonic() > self._deadline, 10_000)

    def query(self, sql: str, rows: int) -> Table:
        self._deadline = time.monotonic() + self._seconds
        try:
            cursor = self._connection.execute(sql)
            if cursor.description is None:
                raise Refused(ONE_SELECT)
            table = Table([str(column[0]) for column in cursor.description], cursor.fetchmany(rows))
            cursor.close()
            return table
        except (sqlite3.Error, sqlite3.Warning) as error:
            if str(error) == "interrupted":
                raise Refused(TOO_SLOW.format(self._seconds)) from None
            if "one statement at a time" in str(error) or str(error) in ("not authorized", "authorization denied"):
                raise Refused(ONE_SELECT) from None
            raise


class DuckDatabase:
    """DuckDB, read-only, with locked settings; an interrupt after the time limit."""

    def __init__(self, path: str, seconds: float) -> None:
        self._seconds = seconds
        self._duckdb = importlib.import_module("duckdb")
        self._connection = self._duckdb.connect(path, read_only=True, config=DUCKDB_SETTINGS)

    def query(self, sql: str, rows: int) -> Table:
        with self._clock() as is_late:
            try:
                statements = self._connection.extract_statements(sql)
                if len(statements) != 1 or statements[0].type.name not in ("SELECT", "EXPLAIN"):
                    raise Refused(ONE_SELECT)
                cursor = self._connection.execute(statements[0])
                return Table([str(column[0]) for column in cursor.description or ()], cursor.fetchmany(rows))
            except self._duckdb.InterruptException:
                raise Refused(TOO_SLOW.format(self._seconds)) from None
            except self._duckdb.Error:
                if is_late():
                    raise Refused(TOO_SLOW.format(self._seconds)) from None
                raise

    @contextmanager
    def _clock(self) -> Iterator[Callable[[], bool]]:
        """Interrupts the query when its time is over, and never the next one."""
        lock = threading.Lock()
        running, late = True, False

        def interrupt() -> None:
            nonlocal late
            with lock:
                if running:
                    late = True
                    self._connection.interrupt()

        timer = threading.Timer(self._seconds, interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield lambda: late
        finally:
            with lock:
                running = False
            timer.cancel()


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """SQLite asks this for all that a statement would do."""
    match action:
        case sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() not in SQLITE_FUNCTIONS
        case sqlite3.SQLITE_PRAGMA:
            allowed = (first or "").lower() in SQLITE_PRAGMAS
        case sqlite3.SQLITE_UPDATE:  # what first use of a virtual table looks like; a real one fails on query_only
            allowed = first == "sqlite_master"
        case _:
            allowed = action in SQLITE_READING
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def answer(database: Database, settings: Settings, sql: str) -> Answer:
    """Run one query. Whatever goes wrong is an answer: this is the boundary where exceptions end."""
    try:
        return Answer(
            render(database.query(sql, settings.max_rows + 1), settings.max_rows, settings.max_characters), True
        )
    except Refused as error:
        return Answer(str(error), False)
    except Exception as error:
        broken = isinstance(error, MemoryError) or type(error).__name__ in ("FatalException", "InternalException")
        return Answer(describe(error, settings.path), False, broken)


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


def cage() -> None:
    """Limits of the operating system, where it has them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business; it closes stdin
    try:
        resource: Any = importlib.import_module("resource")
    except ImportError:
        return
    for name, limit in (("RLIMIT_AS", MEMORY_BYTES), ("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0)):
        try:
            resource.setrlimit(getattr(resource, name), (limit, limit))
        except (AttributeError, ValueError, OSError):  # macOS refuses some
            continue


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    replies = sys.stdout
    requests: queue.Queue[str] = queue.Queue()

    def read() -> None:
        """Apart from the queries, so that the worker ends with its parent even in the middle of one."""
        for line in sys.stdin:
            requests.put(json.loads(line))
        os._exit(0)

    def reply(message: Answer) -> None:
        replies.write(json.dumps(asdict(message)) + "\n")
        replies.flush()

    cage()
    threading.Thread(target=read, daemon=True).start()
    try:
        open_database = SqliteDatabase if settings.kind == "sqlite" else DuckDatabase
        database: Database = open_database(settings.path, settings.seconds)
    except Exception as error:
        reply(Answer(describe(error, settings.path), False, broken=True))
        return
    reply(Answer("ready", True))
    while True:
        reply(answer(database, settings, requests.get()))


if __name__ == "__main__":
    main()
