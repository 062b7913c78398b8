"""DuckDB in a cage: a read-only file, locked settings, one SELECT that names nothing forbidden, and a clock.

DuckDB has no authorizer: it reads the query itself into a tree (`json_serialize_sql`), and that is looked through here
before the query runs. Imported by the worker process alone, which adds the limits of the operating system.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from agent_r1.tools.sql_messages import ONE_SELECT, TOO_SLOW, Refused, Table

SETTINGS: dict[str, str | bool | int | float | list[str]] = {
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
}
TABLE_FUNCTIONS = {
    *("range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"),
    *("duckdb_tables", "duckdb_columns", "duckdb_views", "duckdb_constraints", "duckdb_indexes", "pragma_table_info"),
}
"""All others read files, memory or settings, or run a text as a query."""
VIEWS = {"duckdb_tables", "duckdb_columns", "duckdb_views", "duckdb_constraints", "duckdb_indexes"}
HIDDEN_VIEW = re.compile(r"(duckdb|pragma)_|pg_(settings|prepared_statements)$", re.IGNORECASE)
"""The engine's own views, which show paths and settings, unless they are VIEWS."""
FUNCTIONS = {
    *("current_setting", "getenv", "getvariable", "which_secret", "write_log"),  # settings, environment, log
    *("json_serialize_plan", "finalize", "combine", "to_aggregate_state", "index_key", "invoke"),  # engine's inside
    *("sleep_ms", "pg_sleep"),
    *("random", "setseed", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "reservoir_quantile"),  # same rows again
    *("current_connection_id", "current_query_id", "current_transaction_id", "txid_current"),
    *("nextval", "currval", "setval"),
}
"""Scalar and aggregate functions that are refused, as are all whose names begin with two underscores."""
_TYPES = "SELECT now(), 1.5::DECIMAL(5, 2), INTERVAL 1 DAY, '00000000-0000-0000-0000-000000000000'::UUID, TIME '10:00'"
"""Values for which duckdb imports modules, which it cannot do any more once the worker may open no file."""
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(?=[a-z(])", re.IGNORECASE)


class DuckDatabase:
    """One open file. An interrupt ends a query after the time limit."""

    def __init__(self, path: str, seconds: float) -> None:
        self._seconds = seconds
        self._connection = duckdb.connect(path, read_only=True, config=SETTINGS)
        self._reader = duckdb.connect(config=SETTINGS)  # the file's own macros have no say in how a query is read
        for connection in (self._connection, self._reader):
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET lock_configuration = true")
            connection.execute(_TYPES).fetchall()

    def query(self, sql: str, rows: int) -> Table:
        with self._clock() as is_late:
            try:
                self._refuse_unless_harmless(sql)
                cursor = self._connection.execute(sql)
                return Table([str(column[0]) for column in cursor.description or ()], cursor.fetchmany(rows))
            except duckdb.InterruptException:
                raise Refused(TOO_SLOW.format(self._seconds)) from None
            except duckdb.Error:
                if is_late():
                    raise Refused(TOO_SLOW.format(self._seconds)) from None
                raise

    def _refuse_unless_harmless(self, sql: str) -> None:
        statements = self._reader.extract_statements(sql)
        if len(statements) != 1 or statements[0].type.name not in ("SELECT", "EXPLAIN"):
            raise Refused(ONE_SELECT)
        select = _EXPLAIN.sub("", sql, count=1) if statements[0].type.name == "EXPLAIN" else sql
        found = self._reader.execute("SELECT json_serialize_sql(?)", [select]).fetchone()
        assert found is not None
        try:
            tree = json.loads(found[0])
        except RecursionError:
            raise Refused("error: the query is nested too deeply") from None
        if tree["error"]:
            raise Refused(ONE_SELECT)
        for node in _nodes(tree):
            _refuse_unless_allowed(node)

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


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Every object of a JSON document."""
    waiting = [tree]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)


def _refuse_unless_allowed(node: dict[str, Any]) -> None:
    """One node of the tree: Refused for a function, table, sample or statement that the cage keeps out."""
    kind = node.get("type")
    if node.get("repeatable") is False:
        raise Refused("a sample is allowed with REPEATABLE (a number) only")
    if kind == "TABLE_FUNCTION":
        name = node["function"]["function_name"].lower()
        if name not in TABLE_FUNCTIONS:
            raise Refused(f"the table function {name[:50]!r} is not allowed")
    elif "function_name" in node:
        name = node["function_name"].lower()
        if name in FUNCTIONS or name.startswith("__"):
            raise Refused(f"the function {name[:50]!r} is not allowed")
    elif kind in ("BASE_TABLE", "SHOW_REF"):
        name = node["table_name"].strip('"').lower()
        if HIDDEN_VIEW.match(name) and name not in VIEWS:
            raise Refused(f"the table {name[:50]!r} is not allowed")
    elif isinstance(kind, str) and kind.endswith("_QUERY_NODE"):  # DELETE and the like inside of WITH
        raise Refused(ONE_SELECT)
