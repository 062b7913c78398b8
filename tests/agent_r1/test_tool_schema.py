"""The schema tool: all tables on a line each, one table with its keys, and what it says of an unknown one."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import duckdb
import pytest

from agent_r1.tools.protocol import JsonObject, Tool
from agent_r1.tools.schema import SchemaTool
from agent_r1.tools.sql import SqlTool

KINDS = ("sqlite", "duckdb")
STATEMENTS = (
    'CREATE TABLE "it\'s "" odd" (a INTEGER)',
    "CREATE TABLE shop (town VARCHAR, street VARCHAR, PRIMARY KEY (street, town))",
    "CREATE TABLE sale (item VARCHAR PRIMARY KEY, price DOUBLE, town VARCHAR, street VARCHAR,"
    " FOREIGN KEY (street, town) REFERENCES shop (street, town))",
    "CREATE VIEW dear AS SELECT item FROM sale WHERE price > 100",
    "INSERT INTO shop VALUES ('Rome', 'Via Appia'), ('Bern', 'Gasse')",
)


def make(kind: str, path: Path, *statements: str) -> SqlTool:
    connection = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))
    for statement in statements:
        connection.execute(statement)
    if kind == "sqlite":
        connection.commit()
    connection.close()
    return SqlTool(path)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SchemaTool]]:
    folder = tmp_path_factory.mktemp("schemas")
    databases = {kind: make(kind, folder / f"town.{kind}", *STATEMENTS) for kind in KINDS}
    yield {kind: SchemaTool(database) for kind, database in databases.items()}
    for database in databases.values():
        database.close()


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_and_view_is_a_line_with_its_columns_and_types(tools: dict[str, SchemaTool], kind: str) -> None:
    result = tools[kind].call({})
    assert result.ok
    assert result.text.splitlines() == [
        "dear(item VARCHAR)",
        "it's \" odd(a INTEGER)",
        "sale(item VARCHAR, price DOUBLE, town VARCHAR, street VARCHAR)",
        "shop(town VARCHAR, street VARCHAR)",
    ]
    assert tools[kind].call({"table": ""}) == tools[kind].call({"table": None}) == result


@pytest.mark.parametrize("kind", KINDS)
def test_one_table_has_its_rows_counted_and_its_keys_shown(tools: dict[str, SchemaTool], kind: str) -> None:
    shop = tools[kind].call({"table": " SHOP "})
    assert shop.ok
    assert shop.text.replace("KEY(", "KEY (").splitlines() == [
        "shop (2 rows)",
        "town VARCHAR",
        "street VARCHAR",
        "PRIMARY KEY (street, town)",
    ]
    sale = tools[kind].call({"table": "sale"}).text.splitlines()
    assert [line.replace("(", " (").replace("  ", " ") for line in sale[-2:]] == [
        "PRIMARY KEY (item)",
        "FOREIGN KEY (street, town) REFERENCES shop (street, town)",
    ]
    assert tools[kind].call({"table": "dear"}).text == "dear (0 rows)\nitem VARCHAR"
    assert tools[kind].call({"table": "it's \" odd"}).text == "it's \" odd (0 rows)\na INTEGER"


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_table_is_a_failure_that_names_those_there_are(tools: dict[str, SchemaTool], kind: str) -> None:
    result = tools[kind].call({"table": "shops'; --"})
    assert not result.ok
    assert '"shops\'; --"' in result.text
    assert "dear" in result.text
    assert "sale, shop" in result.text


def test_view_of_a_table_that_is_gone_hides_no_other_table(tmp_path: Path) -> None:
    """SQLite then tells no columns at all where it is asked for all of them at once."""
    views = "CREATE VIEW lost AS SELECT a FROM gone", "CREATE VIEW kept AS SELECT name FROM cat"
    database = make("sqlite", tmp_path / "a.db", "CREATE TABLE cat (name VARCHAR, age INTEGER)", *views)
    schema = SchemaTool(database)
    assert schema.call({}).text == "cat(name VARCHAR, age INTEGER)\nkept(name VARCHAR)\nlost()"
    assert schema.call({"table": "cat"}).text == "cat (0 rows)\nname VARCHAR\nage INTEGER"
    database.close()


def test_tables_of_other_duckdb_schemas_are_named_with_theirs(tmp_path: Path) -> None:
    database = make("duckdb", tmp_path / "a.duckdb", "CREATE SCHEMA s", "CREATE TABLE s.t AS SELECT 1 AS a")
    tool = SchemaTool(database)
    assert tool.call({}).text == "s.t(a INTEGER)"
    assert tool.call({"table": "s.t"}).text == "s.t (1 rows)\na INTEGER"
    database.close()


@pytest.mark.parametrize("kind", KINDS)
def test_huge_schema_is_cut_and_the_other_tables_are_named(tmp_path: Path, kind: str) -> None:
    columns = ", ".join(f"a_rather_long_name_{number} INTEGER" for number in range(30))
    wide = ", ".join(f"column_{number} INTEGER" for number in range(400))
    tables = [f"CREATE TABLE t{number} ({columns})" for number in range(9)]
    database = make(kind, tmp_path / "a", *tables, f"CREATE TABLE wide ({wide})")
    tool = SchemaTool(database)
    shown = tool.call({}).text
    assert len(shown) < 4200
    assert shown.splitlines()[-1] == "(6 more tables; see each with 'table': t4, t5, t6, t7, t8, wide)"
    assert tool.call({"table": "wide"}).text.endswith("…\n(cut at 4000 characters)")
    database.close()


@pytest.mark.parametrize("kind", KINDS)
def test_database_without_tables_says_so(tmp_path: Path, kind: str) -> None:
    database = make(kind, tmp_path / "a", "CREATE TABLE t (a INTEGER)", "DROP TABLE t")
    assert SchemaTool(database).call({}).text == "(the database has no tables)"
    database.close()


@pytest.mark.parametrize("arguments", [None, [], {"table": 3}, {"table": ["shop"]}, {"tables": "shop"}])
def test_wrong_arguments_are_failures_that_name_the_parameter(tools: dict[str, SchemaTool], arguments: object) -> None:
    result = tools["sqlite"].call(cast(JsonObject, arguments))
    assert not result.ok
    assert "'table'" in result.text


def test_database_that_cannot_be_asked_is_a_failure(tmp_path: Path) -> None:
    database = make("sqlite", tmp_path / "a.db", "CREATE TABLE t AS SELECT 7 AS a")
    path = tmp_path / "a.db"
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4000)
    tool: Tool = SchemaTool(database)
    assert not tool.call({}).ok
    tool.close()
    database.close()
