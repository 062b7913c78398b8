"""Databases by name: where the file is looked for, and how many workers live."""

import sqlite3
import threading
from pathlib import Path

import duckdb
import pytest

from agent_r1.errors import DataError
from agent_r1.tools.databases import Databases
from agent_r1.tools.sql import SqlTool


def make(path: Path) -> Path:
    """A database with one table that holds its own name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    statement = f"CREATE TABLE own AS SELECT '{path.stem}' AS name"
    if path.suffix == ".duckdb":
        duckdb.connect(str(path)).execute(statement).close()
    else:
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.close()
    return path


def is_alive(tool: SqlTool) -> bool:
    return tool._worker is not None and tool._worker.poll() is None


def ask(tool: SqlTool) -> str:
    return tool.call({"query": "SELECT name FROM own"}).text


@pytest.mark.parametrize("place", ["a.sqlite", "a.sqlite3", "a.db", "a.duckdb", "a/a.sqlite", "a/a.duckdb"])
def test_file_is_found_beside_the_others_or_in_a_folder_of_its_name(tmp_path: Path, place: str) -> None:
    path = make(tmp_path / place)
    make(tmp_path / "other" / "other.db")
    databases = Databases(tmp_path)
    assert databases.path("a") == path
    assert ask(databases.tool("a")) == "name\na"
    assert databases.tool("a") is databases.tool("a")
    databases.close()


def test_name_without_a_file_or_with_two_is_refused_with_the_folder(tmp_path: Path) -> None:
    make(tmp_path / "a.sqlite")
    make(tmp_path / "a" / "a.db")
    databases = Databases(tmp_path)
    with pytest.raises(DataError, match=rf"{tmp_path}: no file for the database 'b'.*\.duckdb"):
        databases.tool("b")
    with pytest.raises(DataError, match=rf"{tmp_path}: several files for the database 'a'.*a\.sqlite.*a/a\.db"):
        databases.tool("a")


@pytest.mark.parametrize("name", ["../a", "b/../a", "/a", "..", ".", "", "a/", "..\\a", "a\0"])
def test_name_that_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    make(tmp_path / "a.sqlite")
    make(tmp_path / "inner" / "b.sqlite")
    with pytest.raises(DataError, match="is not the name of a database"):
        Databases(tmp_path / "inner").path(name)


def test_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"^{tmp_path}: the database '{'a' * 50}' cannot be read: File name too long$"):
        Databases(tmp_path).path("a" * 300)


def test_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("name,age\n")
    with pytest.raises(DataError, match=r"a\.db"):
        Databases(tmp_path).tool("a")


def test_worker_that_was_not_used_for_the_longest_ends_and_starts_again_when_asked(tmp_path: Path) -> None:
    for name in "abc":
        make(tmp_path / f"{name}.db")
    databases = Databases(tmp_path, limit=2)
    a, b, c = (databases.tool(name) for name in "abc")
    for tool in (a, b, a, c):
        ask(tool)
    assert [is_alive(tool) for tool in (a, b, c)] == [True, False, True]
    assert ask(b) == "name\nb"
    assert [is_alive(tool) for tool in (a, b, c)] == [False, True, True]
    assert a.result("SELECT name FROM own").rows == (("a",),)
    assert [is_alive(tool) for tool in (a, b, c)] == [True, True, False]
    databases.close()
    assert not any(is_alive(tool) for tool in (a, b, c))
    assert ask(c) == "name\nc"
    databases.close()
    assert not is_alive(c)


def test_no_more_workers_live_than_allowed_whichever_threads_ask(tmp_path: Path) -> None:
    names = "abcde"
    for name in names:
        make(tmp_path / f"{name}.db")
    databases = Databases(tmp_path, limit=2)
    tools = [databases.tool(name) for name in names]
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(4):
            at = (number + turn) % len(names)
            if ask(tools[at]) != f"name\n{names[at]}":
                wrong.append(names[at])
            if sum(map(is_alive, tools)) > 2:
                wrong.append("too many")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    databases.close()
    assert wrong == []


def test_limit_must_allow_one_worker(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Databases(tmp_path, limit=0)
