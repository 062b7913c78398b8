"""The schema tool: which tables a database has, and one table's columns, keys and number of rows.

Asked of the database in the same cage as the model's own queries, which `sql.py` runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_r1.tools.protocol import JsonObject, ToolResult
from agent_r1.tools.sql import SqlTool
from agent_r1.tools.sql_messages import QueryResult, Scalar

_CHARACTERS = 4000
_NAMES_CHARACTERS = 1000
_MAIN = "main"
_SHOWN = "type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
_NAMES = f"SELECT '{_MAIN}', m.name FROM sqlite_master m WHERE {_SHOWN} ORDER BY m.name"
_COLUMNS = {
    "sqlite": f"SELECT '{_MAIN}', m.name, c.name, c.type FROM sqlite_master m JOIN pragma_table_xinfo(m.name) c"
    f" WHERE m.{_SHOWN} AND c.hidden <> 1 ORDER BY m.name, c.cid",
    "duckdb": "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
    " ORDER BY schema_name, table_name, column_index",
}
SCHEMA: JsonObject = {
    "type": "function",
    "function": {
        "name": "schema",
        "description": "See the tables of the database with their columns, or one table with its keys.",
        "parameters": {
            "type": "object",
            "properties": {"table": {"type": "string", "description": "A table; without it, all are shown."}},
            "required": [],
        },
    },
}
_KEYS = {
    "sqlite": (
        "SELECT 'PRIMARY KEY (' || group_concat(name, ', ') || ')' FROM"
        " (SELECT name FROM pragma_table_info({table}) WHERE pk > 0 ORDER BY pk) HAVING count(*) > 0",
        "SELECT 'FOREIGN KEY (' || group_concat(\"from\", ', ') || ') REFERENCES ' || \"table\""
        " || coalesce(' (' || group_concat(\"to\", ', ') || ')', '')"
        ' FROM (SELECT * FROM pragma_foreign_key_list({table}) ORDER BY id, seq) GROUP BY id, "table" ORDER BY id',
    ),
    "duckdb": (
        "SELECT constraint_text FROM duckdb_constraints() WHERE constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')"
        " AND schema_name = {schema} AND table_name = {table} ORDER BY constraint_index",
    ),
}


@dataclass(frozen=True, slots=True)
class _Table:
    schema: str
    name: str
    columns: tuple[str, ...]  # each with its type

    @property
    def shown(self) -> str:
        return self.name if self.schema == _MAIN else f"{self.schema}.{self.name}"


class SchemaTool:
    """Shows the tables of the database that `database` asks. Closing it leaves `database` as it is."""

    name = "schema"

    def __init__(self, database: SqlTool) -> None:
        self._database = database

    @property
    def schema(self) -> JsonObject:
        """What the model sees, in OpenAI form; the same for every database."""
        return SCHEMA

    def call(self, arguments: JsonObject) -> ToolResult:
        """Show all tables, or arguments["table"]. Never raises: an unknown table is a result with ok False."""
        if not isinstance(arguments, Mapping):
            return ToolResult("error: schema takes no parameter but 'table', the name of a table", ok=False)
        if unknown := sorted(str(key) for key in arguments if key != "table"):
            return ToolResult(f"error: schema has no parameter {unknown[0][:50]!r}, only 'table'", ok=False)
        wanted = arguments.get("table")
        if wanted is not None and not isinstance(wanted, str):
            return ToolResult("error: 'table' must be a string, the name of a table", ok=False)
        found = self._database.result(_COLUMNS[self._database.kind])
        if found.error is not None and found.error.startswith("error: no such "):
            found = self._one_by_one()
        if found.error is not None:
            return ToolResult(found.error, ok=False)
        tables = _tables(found.rows)
        if wanted is None or not wanted.strip():
            return ToolResult(_overview(tables), ok=True)
        name = wanted.strip()
        for table in tables:
            if table.shown.lower() == name.lower():
                return ToolResult(self._details(table), ok=True)
        return ToolResult(f"error: there is no table {name[:50]!r}; tables: {_names(tables)}", ok=False)

    def close(self) -> None:
        """Nothing to free."""

    def _one_by_one(self) -> QueryResult:
        """The columns where SQLite cannot tell those of a view whose table is gone: that one is shown with none."""
        names = self._database.result(_NAMES)
        rows: list[tuple[Scalar, ...]] = []
        for schema, name in names.rows:
            table = _quoted(str(name), "'")
            asked = self._database.result(f"SELECT name, type FROM pragma_table_xinfo({table}) WHERE hidden <> 1")
            columns = asked.rows or ((None, None),)
            rows += [(schema, name, column, kind) for column, kind in columns]
        return QueryResult((), tuple(rows), names.error)

    def _details(self, table: _Table) -> str:
        """A line with the number of rows, where it can be counted in time, then a line a column and a line a key."""
        source = ".".join(_quoted(name, '"') for name in (table.schema, table.name))
        count = self._database.result(f"SELECT count(*) FROM {source}")
        rows = "" if count.error is not None else f" ({count.rows[0][0]} rows)"
        named = {"schema": _quoted(table.schema, "'"), "table": _quoted(table.name, "'")}
        keys = [self._database.result(query.format(**named)).rows for query in _KEYS[self._database.kind]]
        text = "\n".join([f"{table.shown}{rows}", *table.columns, *(str(row[0]) for found in keys for row in found)])
        return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…\n(cut at {_CHARACTERS} characters)"


def _tables(rows: Sequence[Sequence[object]]) -> list[_Table]:
    columns: dict[tuple[str, str], list[str]] = {}
    for schema, table, name, kind in rows:
        known = columns.setdefault((str(schema), str(table)), [])
        if name is not None:
            known.append(f"{name} {kind}".strip())
    return [_Table(schema, table, tuple(found)) for (schema, table), found in columns.items()]


def _overview(tables: Sequence[_Table]) -> str:
    """A line a table; where that is too long, as many as there is room for, and the names of the others."""
    shown = ""
    for number, table in enumerate(tables):
        line = f"{table.shown}({', '.join(table.columns)})\n"
        if len(shown) + len(line) > _CHARACTERS:
            return f"{shown}({len(tables) - number} more tables; see each with 'table': {_names(tables[number:])})"
        shown += line
    return shown.rstrip("\n") or "(the database has no tables)"


def _names(tables: Sequence[_Table]) -> str:
    names = ", ".join(table.shown for table in tables) or "none"
    return names if len(names) <= _NAMES_CHARACTERS else names[:_NAMES_CHARACTERS] + "…"


def _quoted(name: str, mark: str) -> str:
    return mark + name.replace(mark, mark * 2) + mark
