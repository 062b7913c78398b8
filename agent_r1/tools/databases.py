"""A database a question: SQL tools for the files of a folder, a few of whose workers live at a time.

Which question belongs to which database is the questions' to say; how a file is asked is `sql.py`'s.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_r1.errors import DataError
from agent_r1.tools.sql import SqlTool
from agent_r1.tools.sql_messages import Answer, Request

ENDINGS = (".sqlite", ".sqlite3", ".db", ".duckdb")


class Databases:
    """The databases of `folder`: FOLDER/NAME.sqlite or FOLDER/NAME/NAME.sqlite, or with another of ENDINGS.

    At most `limit` worker processes live at a time: a call to another database ends the one that was idle for the
    longest, or waits until one is idle. A tool whose worker was ended starts a new one with its next call.
    """

    def __init__(self, folder: str | os.PathLike[str], limit: int = 8) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        self._folder = Path(folder)
        self._limit = limit
        self._tools: dict[str, SqlTool] = {}
        self._alive: OrderedDict[SqlTool, None] = OrderedDict()  # the most recently used last
        self._busy: Counter[SqlTool] = Counter()
        self._changed = threading.Condition()

    def path(self, name: str) -> Path:
        """The file of a database. DataError where there is none, or more than one, or the name is not a plain one."""
        if not name or name != Path(name).name or name == ".." or "\0" in name or "\\" in name:
            raise DataError(f"{self._folder}: {name!r} is not the name of a database; a name without a path is")
        places = [self._folder / f"{name}{ending}" for ending in ENDINGS]
        places += [self._folder / name / f"{name}{ending}" for ending in ENDINGS]
        try:
            found = [place for place in places if place.is_file()]
        except OSError as error:  # a name that is too long, a folder that may not be looked into
            raise DataError(f"{self._folder}: the database {name[:50]!r} cannot be read: {error.strerror}") from None
        if len(found) == 1:
            return found[0]
        if found:
            raise DataError(f"{self._folder}: several files for the database {name!r}: {', '.join(map(str, found))}")
        raise DataError(
            f"{self._folder}: no file for the database {name!r}; expected {name} or {name}/{name} with one of the "
            f"endings {', '.join(ENDINGS)}"
        )

    def tool(self, name: str) -> SqlTool:
        """The tool of a database, always the same one for a name. DataError as `path`, or if it is no database."""
        with self._changed:
            if name not in self._tools:
                self._tools[name] = _Counted(self.path(name), self)
            return self._tools[name]

    def close(self) -> None:
        """End all workers. The tools may still be called, and start them again."""
        with self._changed:
            for tool in self._alive:
                tool.close()
            self._alive.clear()

    @contextmanager
    def _place(self, tool: SqlTool) -> Iterator[None]:
        """One of the `limit` places for a worker, for as long as a call takes."""
        with self._changed:
            while tool not in self._alive and len(self._alive) >= self._limit:
                idle = next((other for other in self._alive if not self._busy[other]), None)
                if idle is None:
                    self._changed.wait()
                else:
                    del self._alive[idle]
                    idle.close()
            self._alive[tool] = None
            self._alive.move_to_end(tool)
            self._busy[tool] += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy[tool] -= 1
                self._changed.notify_all()


class _Counted(SqlTool):
    """A tool that takes a place for its worker before it asks it."""

    def __init__(self, path: Path, databases: Databases) -> None:
        super().__init__(path)
        self._databases = databases

    def _run(self, request: Request) -> Answer:
        with self._databases._place(self):
            return super()._run(request)
