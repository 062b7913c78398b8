"""The store's file: made whole, opened briefly, waited for, never of another version, never half written."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from duckdb import DuckDBPyConnection

from agent_r1.errors import StoreError
from storage import database
from storage.database import SCHEMA_VERSION, Store

ROOT = Path(__file__).parents[2]


def count(con: DuckDBPyConnection, table: str = "metrics") -> int:
    row = con.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return row[0]


def add(con: DuckDBPyConnection, key: str = "a") -> None:
    con.execute("INSERT INTO metrics VALUES ('r', 1, 's', ?, 1.0, TIMESTAMP '2026-01-01')", [key])


def add_twice(con: DuckDBPyConnection, key: str) -> None:
    add(con, key)
    add(con, key)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "store.duckdb", lock_wait=0.0)


@contextmanager
def held_by_another_process(path: Path, seconds: float = 60.0) -> Iterator[int]:
    code = f"import duckdb, time; c = duckdb.connect({str(path)!r}); print('held', flush=True); time.sleep({seconds})"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


def test_first_write_makes_folders_file_and_tables(store: Store) -> None:
    with store.write() as con:
        add(con)
    with store.read() as con:
        assert count(con) == 1
    assert [path.name for path in store.path.parent.iterdir()] == ["store.duckdb"]


def test_an_exception_rolls_everything_back(store: Store) -> None:
    with store.write() as con:
        add(con, "kept")
    with pytest.raises(duckdb.ConstraintException), store.write() as con:
        add_twice(con, "lost")
    with store.read() as con:
        assert con.execute("SELECT key FROM metrics").fetchall() == [("kept",)]


def test_a_reader_cannot_write(store: Store) -> None:
    with store.write():
        pass
    with pytest.raises(duckdb.InvalidInputException, match="read-only"), store.read() as con:
        add(con)


def test_reading_where_nothing_was_run_is_one_clear_line_and_makes_no_file(store: Store) -> None:
    with pytest.raises(StoreError, match=r"store.duckdb: there is no store here"), store.read():
        pass
    assert not store.path.parent.exists()


def test_a_store_made_by_a_newer_version_is_refused_naming_both(store: Store) -> None:
    with store.write() as con:
        con.execute("UPDATE store SET schema_version = 99")
    for opened in (store.read(), store.write()):
        with pytest.raises(StoreError, match=rf"schema version 99 is newer than version {SCHEMA_VERSION}"), opened:
            pass


def pretend_newer(monkeypatch: pytest.MonkeyPatch, second_step_fails: bool = False) -> None:
    """Make the program two versions newer than its stores."""

    def add_column(con: DuckDBPyConnection) -> None:
        con.execute("ALTER TABLE runs ADD COLUMN owner VARCHAR DEFAULT 'me'")

    def add_table(con: DuckDBPyConnection) -> None:
        con.execute("CREATE TABLE later (i INTEGER)")
        if second_step_fails:
            raise RuntimeError("killed")

    monkeypatch.setattr(database, "SCHEMA_VERSION", SCHEMA_VERSION + 2)
    monkeypatch.setattr(database, "MIGRATIONS", {SCHEMA_VERSION: add_column, SCHEMA_VERSION + 1: add_table})


@pytest.mark.parametrize("mode", ["read", "write"])
def test_an_older_store_is_migrated_step_by_step_once(store: Store, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    with store.write() as con:
        con.execute("INSERT INTO runs VALUES ('r','{}','i',0,'c','{}',NULL,'s',1,TIMESTAMP '2026-01-01','[]')")
    pretend_newer(monkeypatch)
    for _ in range(2):
        with store.read() if mode == "read" else store.write() as con:
            assert con.execute("SELECT schema_version, owner FROM runs").fetchall() == [(SCHEMA_VERSION + 2, "me")]
            assert count(con, "later") == 0


def test_a_migration_that_fails_leaves_the_old_version(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.write():
        pass
    with monkeypatch.context() as newer:
        pretend_newer(newer, second_step_fails=True)
        with pytest.raises(RuntimeError, match="killed"), store.write():
            pass
    with store.read() as con:
        assert con.execute("SELECT schema_version FROM store").fetchall() == [(SCHEMA_VERSION,)]
        with pytest.raises(duckdb.CatalogException):
            con.execute("SELECT * FROM later")


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_lock_held_too_long_ends_naming_the_process(store: Store, mode: str) -> None:
    with store.write():
        pass
    with held_by_another_process(store.path) as pid:
        opened = Store(store.path, lock_wait=0.3).read() if mode == "read" else store.write()
        started = time.monotonic()
        with pytest.raises(StoreError, match=rf"locked by process {pid}\b") as caught, opened:
            pass
        assert time.monotonic() - started < 2
        assert "\n" not in str(caught.value)


def test_who_meets_a_lock_waits_and_says_so_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with store.write():
        pass
    patient = Store(store.path, lock_wait=30)
    with held_by_another_process(store.path, seconds=1.8) as pid, caplog.at_level(logging.WARNING):
        with patient.write() as con:
            add(con)
        warnings = [record.getMessage() for record in caplog.records if record.name == "agent_r1.store"]
        assert len(warnings) == 1
        assert f"locked by process {pid}" in warnings[0]


def test_a_process_that_was_killed_holds_no_lock_and_loses_no_committed_row(store: Store) -> None:
    code = f"""
import os
from pathlib import Path
from storage.database import Store
store = Store(Path({str(store.path)!r}))
with store.write() as con:
    con.execute("INSERT INTO metrics VALUES ('r', 1, 's', 'kept', 1.0, TIMESTAMP '2026-01-01')")
with store.write() as con:
    con.execute("INSERT INTO metrics VALUES ('r', 1, 's', 'lost', 1.0, TIMESTAMP '2026-01-01')")
    os.kill(os.getpid(), 9)
"""
    assert run_python(code).returncode == -9
    with store.read() as con:
        assert con.execute("SELECT key FROM metrics").fetchall() == [("kept",)]


def test_a_full_disk_is_one_line_and_keeps_what_was_committed(store: Store) -> None:
    with store.write() as con:
        add(con, "kept")
    code = f"""
import resource
from pathlib import Path
from agent_r1.errors import StoreError
from storage.database import Store
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000_000, 20_000_000))
try:
    with Store(Path({str(store.path)!r})).write() as con:
        con.execute("SET memory_limit = '100MB'")
        con.execute("CREATE TABLE big AS SELECT uuid()::VARCHAR || uuid()::VARCHAR AS noise FROM range(1000000)")
except StoreError as error:
    print(error)
"""
    done = run_python(code)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert str(store.path) in done.stdout
    with store.read() as con:
        assert con.execute("SELECT key FROM metrics").fetchall() == [("kept",)]


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("kind", ["text", "empty", "folder"])
def test_what_is_no_duckdb_file_is_refused_at_once_in_one_line(tmp_path: Path, kind: str, mode: str) -> None:
    path = tmp_path / "store.duckdb"
    if kind == "folder":
        path.mkdir()
    else:
        path.write_text("hello" * 1000 if kind == "text" else "")
    opened = Store(path).read() if mode == "read" else Store(path).write()
    with pytest.raises(StoreError, match=r"store\.duckdb") as caught, opened:
        pass
    assert "\n" not in str(caught.value)


def test_a_home_below_a_regular_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"), Store(tmp_path / "file" / "store.duckdb").write():
        pass


def test_another_programs_duckdb_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE theirs (i INTEGER)")
    with pytest.raises(StoreError, match="not a store of Agent-R1"), Store(path).write():
        pass


def test_threads_of_one_process_take_turns(store: Store) -> None:
    patient = Store(store.path, lock_wait=60)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(3):
                with patient.write() as con:
                    add(con, f"{number}/{step}")
                with patient.read() as con:
                    assert count(con) >= 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with store.read() as con:
        assert count(con) == 12


def test_processes_that_make_the_store_at_once_share_one(store: Store) -> None:
    code = f"""
import sys
from pathlib import Path
from storage.database import Store
with Store(Path({str(store.path)!r})).write() as con:
    con.execute("INSERT INTO metrics VALUES ('r', 1, 's', ?, 1.0, TIMESTAMP '2026-01-01')", [sys.argv[1]])
"""
    children = [subprocess.Popen([sys.executable, "-c", code, str(i)], cwd=ROOT) for i in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    with store.read() as con:
        assert count(con) == 3
    assert [path.name for path in store.path.parent.iterdir()] == ["store.duckdb"]


def test_a_store_that_another_process_made_a_moment_earlier_is_kept(store: Store) -> None:
    with store.write() as con:
        add(con)
    database._create(store.path)
    with store.read() as con:
        assert count(con) == 1


def test_a_table_name_is_never_a_python_variable(store: Store) -> None:
    secret = pd.DataFrame({"a": [1]})
    assert len(secret) == 1
    with pytest.raises(duckdb.CatalogException), store.write() as con:
        con.execute("SELECT * FROM secret")


def test_a_store_is_unlocked_after_use_though_a_result_was_not_read_to_its_end(store: Store) -> None:
    with store.write() as con:
        add(con)
    with store.read() as con:
        con.execute("SELECT * FROM range(1000000)").fetchone()
    with duckdb.connect(str(store.path)) as con:
        assert count(con) == 1


def test_two_stores_of_one_process_do_not_meet(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "it's one.duckdb"), Store(tmp_path / "other.duckdb")
    with one.write() as con, other.write() as other_con:
        add(con)
        assert count(other_con) == 0
    with one.read() as con, other.read() as other_con:
        assert (count(con), count(other_con)) == (1, 0)


def test_a_forked_child_reads_the_store_with_an_engine_of_its_own(store: Store) -> None:
    with store.write() as con:
        add(con)
    child = os.fork()
    if child == 0:
        with store.read() as con:
            os._exit(count(con) + 40)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 41
    with store.read() as con:
        assert count(con) == 1


def test_turns_of_a_store_of_version_1_get_no_reward_from_an_environment(store: Store) -> None:
    with store.write() as con:
        con.execute("ALTER TABLE turns DROP COLUMN reward")
        con.execute("INSERT INTO turns VALUES ('r', 1, 't', 0, 0, 'x', '[]', '', [1], [2], [-0.5])")
        con.execute("UPDATE store SET schema_version = 1")
    with store.read() as con:
        assert con.execute("SELECT action_text, reward FROM turns").fetchall() == [("x", 0.0)]
        assert con.execute("SELECT schema_version FROM store").fetchall() == [(SCHEMA_VERSION,)]


def killed_after_its_commit(store: Store) -> Path:
    """The write-ahead log of a process that was killed between its second commit and the closing of the file."""
    code = f"""
import os
from pathlib import Path
from storage import database
store = database.Store(Path({str(store.path)!r}))
for key in ("kept", "last"):
    if key == "last":
        database._Engine.detach = lambda *_: os.kill(os.getpid(), 9)
    with store.write() as con:
        con.execute("INSERT INTO metrics VALUES ('r', 1, 's', ?, 1.0, TIMESTAMP '2026-01-01')", [key])
"""
    assert run_python(code).returncode == -9
    return store.path.with_name("store.duckdb.wal")


def test_a_log_that_lost_its_end_costs_the_last_commit_and_nothing_later(store: Store) -> None:
    log = killed_after_its_commit(store)
    os.truncate(log, log.stat().st_size - 1)
    with store.write() as con:
        assert con.execute("SELECT key FROM metrics").fetchall() == [("kept",)]
        add(con, "later")
    with store.read() as con:
        assert con.execute("SELECT key FROM metrics ORDER BY key").fetchall() == [("kept",), ("later",)]


def test_a_log_that_holds_something_else_is_named_with_how_to_go_on(store: Store) -> None:
    log = killed_after_its_commit(store)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0x10
    log.write_bytes(content)
    with pytest.raises(StoreError, match=r"store.duckdb.wal: damaged.* move the file away") as caught, store.read():
        pass
    assert "\n" not in str(caught.value)
    log.rename(log.with_name("aside"))
    with store.read() as con:
        assert con.execute("SELECT key FROM metrics").fetchall() == [("kept",)]


def test_a_store_that_was_cut_is_named_with_how_to_go_on_and_leaves_others_alone(store: Store, tmp_path: Path) -> None:
    log = killed_after_its_commit(store)
    os.truncate(store.path, store.path.stat().st_size // 2)
    assert log.exists()  # a log that is replayed on half a store breaks the engine that all stores share
    with pytest.raises(StoreError, match=r"store.duckdb: damaged: put back a copy"), store.write():
        pass
    with Store(tmp_path / "other.duckdb").write() as con:
        assert count(con) == 0


def test_drafts_of_killed_processes_go_when_the_store_is_made(store: Store) -> None:
    store.path.parent.mkdir(parents=True, exist_ok=True)
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    ours, gone = (store.path.with_name(f".{store.path.name}.{pid}") for pid in (os.getppid(), int(dead.stdout)))
    for draft in (ours, gone, gone.with_name(f"{gone.name}.wal")):
        draft.touch()
    with store.write():
        pass
    assert sorted(path.name for path in store.path.parent.glob(".*")) == [ours.name]
