"""The DuckDB file that holds every row: opened briefly, one transaction a write, its schema made and kept up to date.

What the rows mean is left to the files beside this one, each of which takes the connection that is opened here.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from agent_r1.errors import StoreError, StoreLockedError
from storage.files import fsync_folder

SCHEMA_VERSION = 2
MIGRATIONS: dict[int, Callable[[DuckDBPyConnection], object]] = {
    1: lambda con: con.execute("ALTER TABLE turns ADD COLUMN reward DOUBLE DEFAULT 0"),
}
"""For each older version the step that leads to the next one. schema.sql always describes the newest."""

SCHEMA = Path(__file__).with_name("schema.sql")
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # a table name never means a Python variable
}
BROKEN_STORAGE = (duckdb.IOException, duckdb.FatalException)  # a full disk, a failed write and what follows from it
LOCK_MESSAGE = "Could not set lock on file"
DAMAGE = re.compile("not a valid DuckDB|could not read enough bytes|corrupt|checksum|replaying WAL", re.IGNORECASE)

log = logging.getLogger("agent_r1.store")

_GATES: dict[Path, threading.RLock] = {}  # DuckDB refuses two kinds of connection to one file in one process


class _Engine:
    """DuckDB itself, with no file: starting it takes longer than what is done to a store, attaching a file does not."""

    def __init__(self) -> None:
        self._con: DuckDBPyConnection | None = None
        self._lock = threading.Lock()
        self._attached = itertools.count()

    def attach(self, path: Path, read_only: bool) -> tuple[DuckDBPyConnection, str]:
        """A connection whose tables are the file's, and the name for `detach`."""
        with self._lock:
            if self._con is None:
                self._con = duckdb.connect(":memory:", config=SETTINGS)
            con, name = self._con.cursor(), f"store_{next(self._attached)}"
        try:
            quoted = str(path).replace("'", "''")
            con.execute(f"ATTACH '{quoted}' AS {name} (TYPE duckdb{', READ_ONLY' if read_only else ''})")
            con.execute(f"USE {name}")
        except BaseException as error:
            con.close()
            if LOCK_MESSAGE not in str(error):  # a damaged file makes the engine useless for sound ones, too
                with self._lock:
                    self._con = None
            raise
        return con, name

    def detach(self, con: DuckDBPyConnection, name: str) -> None:
        """Close the connection and the file, which unlocks it."""
        con.close()
        with self._lock:
            if self._con is not None:
                try:
                    self._con.execute(f"DETACH {name}")
                except duckdb.Error:  # it failed in the middle of something
                    self._con.close()
                    self._con = None

    def forget(self) -> None:
        """In a forked child: the threads behind the connection are the parent's, so that it cannot even be closed."""
        _ABANDONED.append(self._con)
        self._con, self._lock = None, threading.Lock()


_ENGINE, _ABANDONED = _Engine(), list[DuckDBPyConnection | None]()
os.register_at_fork(after_in_child=_GATES.clear)
os.register_at_fork(after_in_child=_ENGINE.forget)


@dataclass(frozen=True, slots=True)
class Store:
    """The store at `path`. Who meets another process's lock waits up to `lock_wait` seconds.

    StoreError, in one line, says what is wrong: locked for too long, no store, no DuckDB file, made by a newer
    version, or a disk that fails.
    """

    path: Path
    lock_wait: float = 600.0

    @contextmanager
    def read(self) -> Iterator[DuckDBPyConnection]:
        """A read-only connection, closed at the end."""
        with _gate(self.path, self.lock_wait):
            if not self.path.exists():
                raise StoreError(f"{self.path}: there is no store here (nothing was run in this home yet)")
            try:
                if stored_version(self.path, self.lock_wait) < SCHEMA_VERSION:
                    with _open_for_writing(self.path, self.lock_wait):
                        pass
                with _open(self.path, read_only=True, wait=self.lock_wait) as con:
                    yield con
            except BROKEN_STORAGE as error:
                raise StoreError(_said(self.path, error)) from error

    @contextmanager
    def write(self) -> Iterator[DuckDBPyConnection]:
        """A connection inside one transaction: committed at the end, rolled back when the block raises."""
        with _gate(self.path, self.lock_wait):
            if not self.path.exists():
                _create(self.path)
            try:
                with _open_for_writing(self.path, self.lock_wait) as con, _transaction(con):
                    yield con
            except BROKEN_STORAGE as error:
                raise StoreError(_said(self.path, error)) from error


def stored_version(path: Path, wait: float) -> int:
    """The schema version of a store as it is, without leading an older one to the newest."""
    try:
        with _gate(path, wait), _open(path, read_only=True, wait=wait) as con:
            return _version(con, path)
    except BROKEN_STORAGE as error:
        raise StoreError(_said(path, error)) from error


@contextmanager
def _transaction(con: DuckDBPyConnection) -> Iterator[None]:
    con.execute("BEGIN")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):  # after a failed COMMIT there is nothing to roll back
            con.execute("ROLLBACK")
        raise


@contextmanager
def _gate(path: Path, wait: float) -> Iterator[None]:
    """One thread of this process at a time."""
    gate = _GATES.setdefault(path.resolve(), threading.RLock())
    if not gate.acquire(timeout=wait):
        raise StoreError(f"{path}: in use by another thread of this process for more than {wait:g} s")
    try:
        yield
    finally:
        gate.release()


@contextmanager
def _open(path: Path, read_only: bool, wait: float) -> Iterator[DuckDBPyConnection]:
    con, name = _attached(path, read_only, wait)
    try:
        yield con
    finally:
        _ENGINE.detach(con, name)


def _attached(path: Path, read_only: bool, wait: float) -> tuple[DuckDBPyConnection, str]:
    started = time.monotonic()
    pause, warned = 0.01, False
    while True:
        try:
            before = _file(path)
            con, name = _ENGINE.attach(path, read_only)
            if _file(path) == before:
                return con, name
            _ENGINE.detach(con, name)  # the file was opened, then compaction put another in its place
            continue
        except duckdb.Error as error:
            if LOCK_MESSAGE not in str(error):
                raise StoreError(_said(path, error)) from error
            found = re.search(r"PID (\d+)", str(error))
            holder = f"process {found.group(1)}" if found else "another process"
            waited = time.monotonic() - started
            if waited >= wait:
                message = f"{path}: locked by {holder}, waited {wait:g} s; end that process or try again later"
                raise StoreLockedError(message, holder) from error
            if waited >= 1 and not warned:
                log.warning("%s is locked by %s; waiting for up to %g s", path, holder, wait)
                warned = True
        time.sleep(min(pause, max(wait - waited, 0.0)))
        pause = min(pause * 1.5, 0.5)


def _file(path: Path) -> int | None:
    """Which file has this name now."""
    return path.stat().st_ino if path.exists() else None


@contextmanager
def _open_for_writing(path: Path, wait: float) -> Iterator[DuckDBPyConnection]:
    with _open(path, read_only=False, wait=wait) as con:
        version = _version(con, path)
        if version < SCHEMA_VERSION:
            migrate(con, version)
        yield con


def _create(path: Path) -> None:
    """Make the file under another name and link it into place, so that no kill leaves half a store."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left_over in path.parent.glob(f".{path.name}.*"):  # of processes that were killed, and our own
            if left_over.name.startswith(draft.name) or not _lives(left_over.name.split(".")[3]):
                left_over.unlink(missing_ok=True)
        with duckdb.connect(str(draft), config=SETTINGS) as con:
            with _transaction(con):
                con.execute(SCHEMA.read_text(encoding="utf-8"))
                con.execute("INSERT INTO store VALUES (?)", [SCHEMA_VERSION])
            con.execute("CHECKPOINT")
        with suppress(FileExistsError):  # another process was first: its store is as good
            os.link(draft, path)
        fsync_folder(path.parent)
    except (OSError, duckdb.IOException) as error:
        raise StoreError(f"{path}: the store cannot be made: {' '.join(str(error).split())}") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # another user's
        pass
    return True


def _version(con: DuckDBPyConnection, path: Path) -> int:
    try:
        row = con.execute("SELECT max(schema_version) FROM store").fetchone()
    except duckdb.CatalogException as error:
        raise StoreError(f"{path}: a DuckDB file, but not a store of Agent-R1") from error
    if row is None or row[0] is None:
        raise StoreError(f"{path}: the store does not say which schema version it has")
    if row[0] > SCHEMA_VERSION:
        raise StoreError(
            f"{path}: its schema version {row[0]} is newer than version {SCHEMA_VERSION}, which this program knows; "
            "update agent-r1"
        )
    return int(row[0])


def migrate(con: DuckDBPyConnection, version: int) -> None:
    """Lead the tables from `version` to SCHEMA_VERSION; the work and its record are one transaction."""
    with _transaction(con):
        for step in range(version, SCHEMA_VERSION):
            MIGRATIONS[step](con)
        con.execute("UPDATE store SET schema_version = ?", [SCHEMA_VERSION])
        con.execute("UPDATE runs SET schema_version = ?", [SCHEMA_VERSION])
    con.execute("CHECKPOINT")


def _said(path: Path, error: Exception) -> str:
    """What DuckDB says, in one line, and how to go on where the file or its log is damaged."""
    said = " ".join(str(error).split())
    if not DAMAGE.search(said):
        return f"{path}: {said}"
    log = path.with_name(f"{path.name}.wal")
    if log.exists() and f'file "{path}"' not in said:
        return (
            f"{log}: damaged, and with it what was committed last: move the file away, then `agent-r1 resume` does "
            f"that again ({said})"
        )
    return (
        f"{path}: damaged: put back a copy of it, or move it away and train the runs anew, under their names, which "
        f"makes the same again ({said})"
    )
