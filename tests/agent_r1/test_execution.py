"""Scoring by execution: when results are equal, which queries order, and what an answer is worth."""

import csv
import math
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd import mutated, texts

from agent_r1.errors import DataError
from agent_r1.execution import execution_match, is_ordered, query_of, same_result
from agent_r1.tools.sql import SqlTool
from agent_r1.tools.sql_messages import QueryResult, Scalar

SLICES = Path(os.environ.get("AGENT_R1_TEST_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data")
KINDS = ("sqlite", "duckdb")
Rows = Sequence[Sequence[Scalar]]


def result(rows: Rows, columns: int | None = None) -> QueryResult:
    width = len(rows[0]) if columns is None else columns
    return QueryResult(tuple(f"c{number}" for number in range(width)), tuple(tuple(row) for row in rows))


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SqlTool]]:
    folder = tmp_path_factory.mktemp("execution")
    tools: dict[str, SqlTool] = {}
    for kind in KINDS:
        path = folder / f"shop.{kind}"
        connection = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))
        connection.execute("CREATE TABLE sale (shop VARCHAR, item VARCHAR, price DOUBLE, sold BOOLEAN)")
        connection.execute(
            "INSERT INTO sale VALUES ('A', 'pen', 1.5, true), ('B', 'ink', 3.0, false), ('A', 'ink', 2.5, true)"
        )
        if kind == "sqlite":
            connection.commit()
        connection.close()
        tools[kind] = SqlTool(path)
    yield tools
    for tool in tools.values():
        tool.close()


@pytest.mark.parametrize(
    ("found", "gold"),
    [
        ([(1,), (2,), (2,)], [(2,), (1,), (2,)]),
        ([(1, "a"), (2, "b")], [("b", 2), ("a", 1)]),
        ([(1, 2), (2, 1)], [(2, 1), (1, 2)]),
        ([(1.0,)], [(1,)]),
        ([(True,)], [(1,)]),
        ([(0.1 + 0.2,)], [(0.3,)]),
        ([(1e9 / 3,)], [(333333333.33,)]),
        ([(5.5e-17,)], [(0,)]),
        ([(2.9999999999,)], [(3,)]),
        ([(None, 1)], [(1, None)]),
        ([(math.nan, math.inf)], [(math.inf, math.nan)]),
        ([(10**400, math.inf)], [(math.inf, 10**400)]),
        ([("",)], [("",)]),
        # Three columns with the same values, told apart by the rows alone.
        ([(1, 2, 3), (2, 3, 1), (3, 1, 2)], [(3, 2, 1), (1, 3, 2), (2, 1, 3)]),
        ([(1, 1, 2), (2, 2, 1)], [(1, 2, 1), (2, 1, 2)]),
    ],
)
def test_rows_are_a_multiset_and_columns_are_in_any_order(found: Rows, gold: Rows) -> None:
    assert same_result(result(found), result(gold), ordered=False)
    assert same_result(result(gold), result(found), ordered=False)


@pytest.mark.parametrize(
    ("found", "gold"),
    [
        ([(1,), (2,)], [(1,), (2,), (2,)]),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)]),
        ([(1, 1)], [(1,)]),
        ([(1, "a"), (2, "b")], [(1, "b"), (2, "a")]),
        ([(1, 2, 5), (2, 1, 6)], [(1, 2, 6), (2, 2, 5)]),
        ([("1",)], [(1,)]),
        ([("a",)], [("A",)]),
        ([("a ",)], [("a",)]),
        ([(None,)], [(0,)]),
        ([(None,)], [("",)]),
        ([(1.001,)], [(1,)]),
        ([(1700000000,)], [(1700000001,)]),
        ([(1700000000.0,)], [(1700000001,)]),
        ([(math.inf,)], [(1e308,)]),
        ([(math.nan,)], [(None,)]),
        # Both columns hold 0, 0, 1, 1, but only in one result do they agree.
        ([(0, 0), (0, 0), (1, 1), (1, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ([(1, 2, 3), (2, 3, 1), (3, 1, 2)], [(1, 2, 3), (2, 1, 3), (3, 3, 2)]),
    ],
)
def test_results_that_differ_are_not_equal(found: Rows, gold: Rows) -> None:
    assert not same_result(result(found), result(gold), ordered=False)
    assert not same_result(result(gold), result(found), ordered=False)


def test_order_of_rows_counts_only_where_the_gold_query_orders() -> None:
    up, down = result([(1, "a"), (2, "b")]), result([("b", 2), ("a", 1)])
    assert same_result(up, down, ordered=False)
    assert not same_result(up, down, ordered=True)
    assert same_result(up, result([("a", 1), ("b", 2)]), ordered=True)


def test_empty_results_are_equal_if_they_have_as_many_columns() -> None:
    assert same_result(result([], 2), result([], 2), ordered=True)
    assert same_result(result([], 2), result([], 2), ordered=False)
    assert not same_result(result([], 2), result([], 1), ordered=False)


def test_failed_query_equals_nothing_not_even_itself() -> None:
    failed = QueryResult((), (), "no such table: x")
    assert not same_result(failed, failed, ordered=False)


def test_many_alike_columns_are_compared_in_a_moment() -> None:
    draw = random.Random(0)
    started = time.monotonic()
    rows = [[draw.randint(0, 1) for _ in range(60)] for _ in range(200)]
    order = draw.sample(range(60), 60)
    moved = [[row[column] for column in order] for row in reversed(rows)]
    assert same_result(result(rows), result(moved), ordered=False)
    alike = [[row % 2] * 100 for row in range(200)]
    assert same_result(result(alike), result(alike), ordered=False)
    # Every column of a Latin square holds the same values: all orders of columns fit for long, and none to the end.
    square = [[(row + column) % 40 for column in range(40)] for row in range(40)]
    other = [[(row - 3 * column) % 40 for column in range(39)] + [row * 39 % 40] for row in range(40)]
    same_result(result(square), result(other), ordered=False)
    wide = [[row] * 1500 for row in range(5)]
    assert same_result(result(wide), result(list(reversed(wide))), ordered=False)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n by a limit 3;", True),
        ("SELECT a FROM t ORDER /* so */ BY a", True),
        ("SELECT a FROM t UNION SELECT b FROM t ORDER BY 1", True),
        ("WITH x AS (SELECT 1) SELECT * FROM x ORDER BY 1", True),
        ("(SELECT a FROM t ORDER BY a)", True),
        ("((SELECT a FROM t) ORDER BY a);", True),
        ("SELECT a FROM t", False),
        ("SELECT * FROM (SELECT a FROM t ORDER BY a)", False),
        ("WITH x AS (SELECT a FROM t ORDER BY a LIMIT 1) SELECT * FROM x", False),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT a FROM t WHERE b = 'x ORDER BY y'", False),
        ("SELECT a FROM t WHERE b = 'it''s ORDER BY y'", False),
        ('SELECT "ORDER BY" FROM t', False),
        ("SELECT `a order by b`, [c order by d] FROM t", False),
        ("SELECT a FROM t -- ORDER BY a", False),
        ("SELECT a FROM t /* ORDER BY a", False),
        ("SELECT border, bypass FROM t", False),
        ("(SELECT a FROM t ORDER BY a) UNION (SELECT 1)", False),
        ("SELECT ')' FROM t ORDER BY 1", True),
        ("", False),
    ],
)
def test_only_the_outermost_order_by_orders(query: str, ordered: bool) -> None:
    assert is_ordered(query) == ordered


@pytest.mark.parametrize(
    ("answer", "query"),
    [
        ("SELECT 1", "SELECT 1"),
        (" SELECT 1 ; \n", "SELECT 1"),
        ("```sql\nSELECT 1;\n```", "SELECT 1"),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("```SQL SELECT 1```", "SELECT 1"),
        ("Here it is:\n```sql\nSELECT 1\n``` or better\n```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("", ""),
        (None, ""),
    ],
)
def test_query_is_taken_out_of_its_fence(answer: str | None, query: str) -> None:
    assert query_of(answer) == query


GOLDS = ("SELECT shop, SUM(price) FROM sale GROUP BY shop", "SELECT SUM(price) FROM sale GROUP BY shop")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("SELECT SUM(price) AS total, shop FROM sale GROUP BY shop ORDER BY 1 DESC", 1.0),
        ("SELECT 4 UNION ALL SELECT 3", 1.0),
        ("```sql\nSELECT shop, SUM(price) FROM sale GROUP BY 1;\n```", 1.0),
        ("SELECT shop, COUNT(*) FROM sale GROUP BY shop", 0.0),
        ("SELECT shop, SUM(price), 1 FROM sale GROUP BY shop", 0.0),
        ("SELECT nothing FROM sale", 0.0),
        ("SELECT 1; DROP TABLE sale", 0.0),
        ("the shop A", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_answer_is_right_if_it_equals_any_gold_query(
    databases: dict[str, SqlTool], kind: str, answer: str | None, score: float
) -> None:
    assert execution_match(answer, GOLDS, databases[kind]) == score


@pytest.mark.parametrize("kind", KINDS)
def test_order_counts_where_the_gold_query_orders(databases: dict[str, SqlTool], kind: str) -> None:
    gold = ["SELECT item FROM sale ORDER BY price"]
    assert execution_match("SELECT item FROM sale ORDER BY price ASC", gold, databases[kind]) == 1.0
    assert execution_match("SELECT item FROM sale ORDER BY price DESC", gold, databases[kind]) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_gold_query_that_fails_is_passed_over_unless_all_do(databases: dict[str, SqlTool], kind: str) -> None:
    assert execution_match("SELECT 3", ["SELECT x FROM nope", "SELECT COUNT(*) FROM sale"], databases[kind]) == 1.0
    with pytest.raises(DataError, match=rf"shop\.{kind}.*'SELECT x FROM nope'.*nope.*'SELECT FROM': "):
        execution_match(None, ["SELECT x FROM nope", "SELECT FROM"], databases[kind])
    with pytest.raises(DataError, match="there is none"):
        execution_match("SELECT 1", [], databases[kind])


def test_gold_query_runs_once_for_many_attempts(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sqlite3.connect(path).execute("CREATE TABLE t AS SELECT 1 AS a").connection.close()
    asked: list[str] = []

    class Counting(SqlTool):
        def result(self, query: str, max_rows: int = 10_000) -> QueryResult:
            asked.append(query)
            return super().result(query, max_rows)

    tool = Counting(path)
    for _ in range(5):
        assert execution_match("SELECT 1", ["SELECT a FROM t"], tool) == 1.0
    tool.close()
    assert asked.count("SELECT a FROM t") == 1


@pytest.mark.parametrize("name", ["academic", "geography", "restaurants", "yelp"])
def test_published_gold_queries_run_and_equal_themselves(name: str) -> None:
    file, database = SLICES / "sql" / "questions_gen_sqlite.csv", SLICES / "sql" / "sqlite" / f"{name}.sqlite"
    if not database.is_file():
        pytest.skip("needs the slices of the published data sets")
    with file.open(newline="", encoding="utf-8") as lines:
        rows = [row["query"] for row in csv.DictReader(lines) if row["db_name"] == name]
    assert rows
    tool = SqlTool(database)
    for row in rows:
        golds = [gold for part in row.split(";") if (gold := part.strip())]
        for gold in golds:
            assert execution_match(gold, [gold], tool) == 1.0, gold
            assert execution_match(f"SELECT * FROM ({gold})", golds, tool) == 1.0, gold
            assert execution_match("SELECT 'wrong' FROM (SELECT 1) WHERE 1 = 1", golds, tool) == 0.0, gold
    tool.close()


OF_SALES = ("SELECT shop, price FROM sale ORDER BY price", "SELECT count(*) FROM sale")
QUERIES = st.one_of(
    st.sampled_from(
        (*OF_SALES, "SELECT * FROM sale", "SELECT NULL, 1e999", "SELECT 'a' UNION SELECT 2", "PRAGMA table_info(sale)")
    ),
    st.builds("SELECT {} FROM sale {}".format, texts, texts),
    st.builds("SELECT '{}', {}".format, texts, st.one_of(st.integers(), st.floats())),
    texts,
)


@pytest.mark.parametrize("kind", KINDS)
@given(st.one_of(st.none(), QUERIES, mutated(QUERIES), mutated(QUERIES).map("```sql\n{}\n```".format)))
@settings(max_examples=150)
def test_whatever_is_answered_is_right_or_wrong(databases: dict[str, SqlTool], kind: str, answer: str | None) -> None:
    matched = execution_match(answer, OF_SALES, databases[kind])
    assert matched in (0.0, 1.0)
    assert answer not in OF_SALES or matched == 1.0


class Stutters:
    """A database whose first two answers to a query are a time-out, as on a machine that is busy."""

    path = Path("shop.sqlite")

    def __init__(self) -> None:
        self.asked = 0

    def result(self, query: str, max_rows: int = 10_000) -> QueryResult:
        """See SqlTool."""
        del query, max_rows
        self.asked += 1
        return QueryResult((), (), "time-out") if self.asked < 3 else result([(1,)])


def test_a_gold_query_that_takes_too_long_once_ends_no_run() -> None:
    database = Stutters()
    assert execution_match(None, ["SELECT 1"], cast(SqlTool, database)) == 0.0
    assert database.asked == 3
    assert execution_match("SELECT 1", ["SELECT 1"], cast(SqlTool, database)) == 1.0
