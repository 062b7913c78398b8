"""The SQL tool: what it shows, and how it starts, times and ends its worker. What it refuses is in test_cage.py."""

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import duckdb
import pytest

from agent_r1.errors import DataError
from agent_r1.tools.protocol import JsonObject, Tool
from agent_r1.tools.sql import SqlTool

ENDLESS = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r"
KINDS = ("sqlite", "duckdb")


def make(kind: str, path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))
    for statement in statements:
        connection.execute(statement)
    if kind == "sqlite":
        connection.commit()
    connection.close()
    return path


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("worlds")
    rows = "INSERT INTO city VALUES ('Rome', 2.8, true), ('Zürich', NULL, false)"
    table = "CREATE TABLE city (name VARCHAR, millions DOUBLE, capital BOOLEAN)"
    return {kind: make(kind, folder / f"world.{kind}", table, rows) for kind in KINDS}


@pytest.fixture(scope="module")
def tools(databases: dict[str, Path]) -> Iterator[dict[str, SqlTool]]:
    made = {kind: SqlTool(path, max_rows=5, max_characters=400) for kind, path in databases.items()}
    yield made
    for tool in made.values():
        tool.close()


def pid_of(tool: SqlTool) -> int:
    assert tool._worker is not None
    return tool._worker.pid


def is_running(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


@pytest.mark.parametrize("kind", KINDS)
def test_result_is_a_header_line_and_a_line_a_row(tools: dict[str, SqlTool], kind: str) -> None:
    result = tools[kind].call({"query": "SELECT name, millions FROM city ORDER BY name;"})
    assert (result.text, result.ok) == ("name | millions\nRome | 2.8\nZürich | NULL", True)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_result_is_a_success_that_says_so(tools: dict[str, SqlTool], kind: str) -> None:
    result = tools[kind].call({"query": "SELECT name FROM city WHERE name = 'Bern'"})
    assert (result.text, result.ok) == ("name\n(no rows)", True)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_one_name_are_both_shown(tools: dict[str, SqlTool], kind: str) -> None:
    assert tools[kind].call({"query": "SELECT 1 AS a, 2 AS a"}).text == "a | a\n1 | 2"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("sqlite", "CAST(x'ff41' AS TEXT)", "\ufffdA"),
        ("sqlite", "x'00ff'", "<2 bytes: 00ff>"),
        ("sqlite", "''", "''"),
        ("sqlite", "'a' || char(10) || 'b'", "a\\nb"),
        ("sqlite", "json_extract('[1, 2]', '$[1]')", "2"),
        ("duckdb", "'\\xff'::BLOB", "<1 bytes: ff>"),
        ("duckdb", "DATE '2020-02-29'", "2020-02-29"),
        ("duckdb", "TIMESTAMP '2020-02-29 12:00:00'", "2020-02-29 12:00:00"),
        ("duckdb", "DATE '290000-01-01'", "290000-01-01"),
        ("duckdb", "TIMESTAMPTZ '2020-02-29 12:00:00+00' IS NULL", "false"),
        ("duckdb", "1.50::DECIMAL(5, 2)", "1.50"),
        ("duckdb", "'nan'::DOUBLE", "nan"),
        ("duckdb", "[1, NULL]", "[1, None]"),
        ("duckdb", "'a' || chr(10) || 'b'", "a\\nb"),
    ],
)
def test_value_of_any_type_stands_on_one_line(tools: dict[str, SqlTool], kind: str, value: str, shown: str) -> None:
    result = tools[kind].call({"query": f"SELECT {value} AS v"})
    assert (result.text, result.ok) == (f"v\n{shown}", True)


NUMBERS = {
    "sqlite": "WITH RECURSIVE r(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < 999999) SELECT i FROM r",
    "duckdb": "SELECT i FROM range(1000000) r(i)",
}


@pytest.mark.parametrize("kind", KINDS)
def test_huge_result_is_cut_with_a_note(tools: dict[str, SqlTool], kind: str) -> None:
    result = tools[kind].call({"query": NUMBERS[kind]})
    assert (result.text, result.ok) == ("i\n0\n1\n2\n3\n4\n(only the first 5 rows are shown)", True)


@pytest.mark.parametrize("kind", KINDS)
def test_wide_result_is_cut_with_a_note(tools: dict[str, SqlTool], kind: str) -> None:
    result = tools[kind].call({"query": f"SELECT '{'x' * 5000}' AS v"})
    assert result.text == "v\n" + "x" * 398 + "…\n(cut at 400 characters; there is more)"


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("sqlite", "SELECT name FROM sqlite_master"),
        ("sqlite", "SELECT m.name, p.name FROM sqlite_master m JOIN pragma_table_info(m.name) p"),
        ("sqlite", "PRAGMA table_info(city)"),
        ("sqlite", "EXPLAIN QUERY PLAN SELECT * FROM city"),
        ("sqlite", "VALUES (1)"),
        ("duckdb", "SHOW TABLES"),
        ("duckdb", "DESCRIBE city"),
        ("duckdb", "EXPLAIN SELECT * FROM city"),
        ("duckdb", "FROM city"),
    ],
)
def test_looking_at_the_schema_is_allowed(tools: dict[str, SqlTool], kind: str, query: str) -> None:
    assert tools[kind].call({"query": query}).ok


@pytest.mark.parametrize("kind", KINDS)
def test_endless_query_is_interrupted_and_the_worker_lives_on(databases: dict[str, Path], kind: str) -> None:
    tool = SqlTool(databases[kind], seconds=0.2, kill_seconds=10)
    tool.call({"query": "SELECT 1"})
    pid = pid_of(tool)
    result = tool.call({"query": ENDLESS})
    assert not result.ok
    assert "time-out" in result.text
    assert tool.call({"query": "SELECT 1 AS a"}).text == "a\n1"
    assert pid_of(tool) == pid
    tool.close()


STUBBORN = {
    "sqlite": "SELECT length(printf('%.*c', 1000000000, 'x'))",
    "duckdb": "SELECT length(lpad('x', 1000000000, 'y'))",
}


@pytest.mark.parametrize("kind", KINDS)
def test_query_that_ignores_the_interrupt_is_killed_and_the_next_one_works(
    databases: dict[str, Path], kind: str
) -> None:
    tool = SqlTool(databases[kind], seconds=10, kill_seconds=0.3)
    tool.call({"query": "SELECT 1"})
    pid = pid_of(tool)
    result = tool.call({"query": STUBBORN[kind]})
    assert not result.ok
    assert "time-out" in result.text
    assert tool.call({"query": "SELECT 1 AS a"}).text == "a\n1"
    assert pid_of(tool) != pid
    tool.close()


def test_worker_that_died_between_calls_is_replaced(databases: dict[str, Path]) -> None:
    tool = SqlTool(databases["sqlite"])
    tool.call({"query": "SELECT 1"})
    os.kill(pid_of(tool), signal.SIGKILL)
    assert tool._worker is not None
    tool._worker.wait()
    assert tool.call({"query": "SELECT 1 AS a"}).text == "a\n1"
    tool.close()


def test_close_ends_the_worker_and_may_be_repeated(databases: dict[str, Path]) -> None:
    tool: Tool = SqlTool(databases["sqlite"])
    tool.close()
    tool.call({"query": "SELECT 1"})
    pid = pid_of(cast(SqlTool, tool))
    tool.close()
    tool.close()
    assert not is_running(pid)


@pytest.mark.parametrize("kind", KINDS)
def test_worker_ends_with_a_killed_parent_even_during_a_query(databases: dict[str, Path], kind: str) -> None:
    program = (
        "import sys, threading, time\n"
        "from agent_r1.tools.sql import SqlTool\n"
        "tool = SqlTool(sys.argv[1], seconds=60, kill_seconds=60)\n"
        "tool.call({'query': 'SELECT 1'})\n"
        "threading.Thread(target=tool.call, args=({'query': sys.argv[2]},)).start()\n"
        "time.sleep(0.2)\n"
        "print(tool._worker.pid, flush=True)\n"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", program, str(databases[kind]), ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert is_running(worker)
        parent.kill()
    deadline = time.monotonic() + 5
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(worker)


@pytest.mark.parametrize("kind", KINDS)
def test_threads_get_the_answers_to_their_own_queries(tools: dict[str, SqlTool], kind: str) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        for _ in range(5):
            answers[number] = tools[kind].call({"query": f"SELECT {number} AS n"}).text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: f"n\n{number}" for number in range(6)}


@pytest.mark.parametrize("kind", KINDS)
def test_time_limit_works_outside_the_main_thread(databases: dict[str, Path], kind: str) -> None:
    tool = SqlTool(databases[kind], seconds=0.1)
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(tool.call({"query": ENDLESS}).text))
    thread.start()
    thread.join()
    tool.close()
    assert texts == ["time-out: the query took longer than 0.1 seconds and was stopped"]


def test_write_ahead_database_is_read_without_making_files(tmp_path: Path) -> None:
    path = make("sqlite", tmp_path / "a ?#%.db", "PRAGMA journal_mode = WAL", "CREATE TABLE t AS SELECT 7 AS a")
    tool = SqlTool(path)
    assert tool.call({"query": "SELECT a FROM t"}).text == "a\n7"
    assert list(tmp_path.iterdir()) == [path]
    tool.close()


def left_behind(folder: Path, *endings: str) -> Path:
    """What a killed program leaves of a write-ahead database that it had open."""
    path, copy = make("sqlite", folder / "a.db", "PRAGMA journal_mode = WAL"), folder / "copy"
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE t AS SELECT 7 AS a")
    copy.mkdir()
    for ending in ("", *endings):
        shutil.copy(f"{path}{ending}", copy)
    writer.close()
    return copy / "a.db"


def test_write_ahead_log_that_a_killed_program_left_is_read_and_stays_as_it_is(tmp_path: Path) -> None:
    path = left_behind(tmp_path, "-wal", "-shm")
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    tool = SqlTool(path)
    assert [tool.call({"query": "SELECT a FROM t"}).text for _ in range(2)] == ["a\n7", "a\n7"]
    tool.close()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_write_ahead_log_without_its_index_is_a_failure_that_makes_no_file(tmp_path: Path) -> None:
    path = left_behind(tmp_path, "-wal")
    tool = SqlTool(path)
    result = tool.call({"query": "SELECT a FROM t"})
    tool.close()
    assert not result.ok
    assert result.text.startswith("error: a.db-wal holds changes that no program has merged: open the database once")
    assert sorted(file.name for file in path.parent.iterdir()) == ["a.db", "a.db-wal"]


def test_database_that_another_process_writes_is_a_failure_without_its_path(tmp_path: Path) -> None:
    path = make("duckdb", tmp_path / "world.duckdb", "CREATE TABLE t AS SELECT 7 AS a")
    tool = SqlTool(path)
    with duckdb.connect(str(path)):
        result = tool.call({"query": "SELECT a FROM t"})
    assert not result.ok
    assert str(tmp_path) not in result.text
    assert tool.call({"query": "SELECT a FROM t"}).text == "a\n7"
    tool.close()


def test_result_has_the_values_with_their_types(tmp_path: Path) -> None:
    path = make("sqlite", tmp_path / "a.db", "CREATE TABLE t AS SELECT 1 AS a")
    tool = SqlTool(path)
    found = tool.result("SELECT 1 AS a, 2.5, 'x', NULL, x'00ff' UNION ALL SELECT 2, 1e999, '', 0, 1")
    tool.close()
    assert found.columns == ("a", "2.5", "'x'", "NULL", "x'00ff'")
    assert found.rows == ((1, 2.5, "x", None, "00ff"), (2, float("inf"), "", 0, 1))
    assert found.error is None


def test_search_indexes_of_the_database_can_be_read(tmp_path: Path) -> None:
    path = make(
        "sqlite",
        tmp_path / "a.db",
        "CREATE VIRTUAL TABLE page USING fts5(words)",
        "INSERT INTO page VALUES ('hello world'), ('good bye')",
        "CREATE VIRTUAL TABLE box USING rtree(id, low, high)",
        "INSERT INTO box VALUES (1, 0, 1), (2, 5, 6)",
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    tool = SqlTool(path)
    query = "SELECT highlight(page, 0, '[', ']') AS h, bm25(page) < 0 AS b FROM page('hello')"
    assert tool.call({"query": query}).text == "h | b\n[hello] world | 1"
    assert tool.call({"query": "SELECT id FROM box WHERE high < 2"}).text == "id\n1"
    assert not tool.call({"query": "INSERT INTO page(page) VALUES ('optimize')"}).ok
    tool.close()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", True),
        ("1.00::DECIMAL(5, 2)", 1),
        ("1.50::DECIMAL(5, 2)", 1.5),
        ("170141183460469231731687303715884105727", 170141183460469231731687303715884105727),
        ("DATE '2020-02-29'", "2020-02-29"),
        ("TIMESTAMP '2020-02-29 12:00:00'", "2020-02-29 12:00:00"),
        ("TIMESTAMPTZ '2020-02-29 12:00:00+00'", "2020-02-29 12:00:00+00:00"),
        ("TIME '12:00:00'", "12:00:00"),
        ("INTERVAL 1 DAY", "1 day, 0:00:00"),
        ("'\\xff'::BLOB", "ff"),
        ("[1, NULL]", "[1, None]"),
        ("'00000000-0000-0000-0000-000000000001'::UUID", "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_result_holds_duckdb_s_types_as_what_json_has(tools: dict[str, SqlTool], value: str, expected: object) -> None:
    found = tools["duckdb"].result(f"SELECT {value} AS v")
    assert (found.error, found.rows) == (None, ((expected,),))
    assert type(found.rows[0][0]) is type(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_result_with_more_rows_than_allowed_is_an_error_and_exactly_as_many_is_none(
    tools: dict[str, SqlTool], kind: str
) -> None:
    found = tools[kind].result("SELECT name FROM city", max_rows=1)
    assert (found.columns, found.rows) == ((), ())
    assert found.error is not None
    assert "more than 1 rows" in found.error
    assert len(tools[kind].result("SELECT name FROM city", max_rows=2).rows) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_result_is_of_the_same_cage(tools: dict[str, SqlTool], kind: str) -> None:
    for query in ("DELETE FROM city", "SELECT 1; SELECT 2", "SELECT nope", "SELECT random()", "", "x" * 30_000):
        assert tools[kind].result(query).error, query
    huge = {"sqlite": "SELECT hex(zeroblob(3000000))", "duckdb": "SELECT repeat('x', 6000000)"}[kind]
    error = tools[kind].result(huge).error
    assert error is not None
    assert "characters" in error


@pytest.mark.parametrize(
    "arguments", [{}, None, [], {"query": None}, {"query": 3}, {"query": " "}, {"sql": "SELECT 1"}]
)
def test_wrong_arguments_are_failures_that_name_the_parameter(tools: dict[str, SqlTool], arguments: object) -> None:
    result = tools["sqlite"].call(cast(JsonObject, arguments))
    assert not result.ok
    assert "'query'" in result.text


def test_extra_parameter_is_named(tools: dict[str, SqlTool]) -> None:
    result = tools["sqlite"].call({"query": "SELECT 1", "limit": 3})
    assert not result.ok
    assert "'limit'" in result.text


@pytest.mark.parametrize("content", [None, b"", b"name,age\n", b"SQLite format 3"])
def test_file_that_is_no_database_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "world.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"world\.db"):
        SqlTool(path)


def test_damaged_database_is_a_failure(tmp_path: Path) -> None:
    for kind in KINDS:
        path = make(kind, tmp_path / kind, "CREATE TABLE t AS SELECT 7 AS a")
        path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4000)
        tool = SqlTool(path)
        assert not tool.call({"query": "SELECT a FROM t"}).ok
        tool.close()
