"""SQLite in a cage: a read-only file, an authorizer that allows reading alone, limits, and a clock.

Imported by the worker process alone, which adds the limits of the operating system.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from urllib.parse import quote

from agent_r1.tools.sql_messages import ONE_SELECT, TOO_SLOW, Refused, Table

VALUE_BYTES = 16 << 20
HEAP_BYTES = 256 << 20
PATTERN_BYTES = 1000
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
PRAGMAS = {
    *("table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info"),
    "data_version",  # text search asks it whether its table has changed
}
MODULES = {"json_each", "json_tree", "generate_series", "fts3", "fts4", "fts5", "rtree", "rtree_i32"}
"""Virtual tables that only compute, or that are of the database's own. Others look into the engine, as dbstat does."""
INNOCUOUS = 0x200000
FUNCTIONS = {
    *("json", "json_array", "json_array_length", "json_extract", "json_group_array", "json_group_object"),
    *("json_insert", "json_object", "json_patch", "json_quote", "json_remove", "json_replace", "json_set"),
    *("json_type", "json_valid", "->", "->>", "match", "snippet", "highlight", "bm25", "offsets", "matchinfo"),
}
"""Allowed beside those that SQLite marks as innocuous: JSON's, which older releases do not mark, and text search's."""
REFUSED = {"random", "randomblob", "sqlite_log", "sqlite_compileoption_get", "sqlite_compileoption_used"}
"""Innocuous to SQLite; but a run that is done again shall see the same rows, and the engine's inside is nobody's."""


class SqliteDatabase:
    """One open file. Opening it makes no file, not even for a write-ahead database."""

    def __init__(self, path: str, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = 0.0
        with open(path, "rb") as file:
            write_ahead = file.read(20)[18:20] == b"\x02\x02"
        log, has_index = path + "-wal", os.path.exists(path + "-shm")
        if write_ahead and not has_index and os.path.exists(log) and os.path.getsize(log) > 0:
            raise ValueError(
                f"{log} holds changes that no program has merged: open the database once with a program that may write"
            )
        # Opening a write-ahead database makes an index of its log beside it, unless SQLite may take it for unchanging;
        # and it brings one that is there up to date, unless it may not.
        how = "" if not write_ahead else "&readonly_shm=1" if has_index else "&immutable=1"
        self._connection = sqlite3.connect(f"file:{quote(path)}?mode=ro{how}", uri=True, isolation_level=None)
        self._connection.text_factory = lambda value: value.decode("utf-8", "replace")
        for setting in ("query_only = ON", "trusted_schema = OFF", "temp_store = MEMORY", "cell_size_check = ON"):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES}").fetchone()
        self._wake_virtual_tables()
        functions = self._connection.execute("SELECT name, flags FROM pragma_function_list").fetchall()
        self._functions = FUNCTIONS | {name for name, flags in functions if flags & INNOCUOUS} - REFUSED
        self._hidden = {name for (name,) in self._connection.execute("SELECT name FROM pragma_module_list")} - MODULES
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._connection.set_authorizer(self._authorize)
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

    def _wake_virtual_tables(self) -> None:
        """First use of a search index prepares statements that write, which the authorizer would not have."""
        made = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"
        for (name,) in self._connection.execute(made).fetchall():
            with suppress(sqlite3.Error):  # of a module that this SQLite lacks: a query will say so
                self._connection.execute('SELECT 1 FROM "{}" LIMIT 0'.format(name.replace('"', '""')))

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """SQLite asks this for all that a statement would do."""
        match action:
            case sqlite3.SQLITE_FUNCTION:
                allowed = (second or "").lower() in self._functions
            case sqlite3.SQLITE_PRAGMA:
                allowed = (first or "").lower() in PRAGMAS
            case sqlite3.SQLITE_UPDATE:  # what first use of a virtual table looks like; a real one fails on query_only
                allowed = first == "sqlite_master"
            case sqlite3.SQLITE_READ:
                allowed = not self._is_hidden((first or "").lower())
            case _:
                allowed = action in READING
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    def _is_hidden(self, table: str) -> bool:
        return table in self._hidden and table.removeprefix("pragma_") not in PRAGMAS
