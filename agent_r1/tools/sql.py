"""The SQL tool: one SELECT on a DuckDB or SQLite file, run by a worker process that can be killed.

What a query may do is `sql_sqlite.py`'s and `sql_duckdb.py`'s, how its rows become text `sql_worker.py`'s; this file
starts, times and ends the worker. docs/cage.md says what stops what.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from agent_r1.errors import DataError
from agent_r1.tools.protocol import JsonObject, ToolResult
from agent_r1.tools.sql_messages import TOO_MUCH_MEMORY, TOO_SLOW, Answer, QueryResult, Request, Settings

_ROOT = Path(__file__).parents[2]
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from agent_r1.tools.sql_worker import main; main(sys.argv[2])"
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH")
"""All that the worker's interpreter may need to start; it drops them before the first query."""
_START_SECONDS = 60.0
_QUERY_CHARACTERS = 20_000


class SqlTool:
    """Questions to a database file, read-only, in SQL. DataError names a file that is neither DuckDB's nor SQLite's.

    A query is interrupted after `seconds`, and its worker killed after `kill_seconds`. The worker starts with the first
    call. Calls from several threads take turns.
    """

    name = "sql"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_rows: int = 50,
        max_characters: int = 4000,
        seconds: float = 2.0,
        kill_seconds: float = 4.0,
    ) -> None:
        resolved = Path(path).resolve()
        self._settings = Settings(str(resolved), _kind(resolved), max_rows, max_characters, seconds)
        self._kill_seconds = kill_seconds
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[str] | None = None

    @property
    def path(self) -> Path:
        """The file, with symbolic links followed."""
        return Path(self._settings.path)

    @property
    def kind(self) -> str:
        """ "sqlite" or "duckdb"."""
        return self._settings.kind

    @property
    def schema(self) -> JsonObject:
        """What the model sees, in OpenAI form."""
        dialect, tables = {
            "sqlite": ("SQLite", "SELECT name, sql FROM sqlite_master"),
            "duckdb": ("DuckDB", "DESCRIBE, SHOW TABLES"),
        }[self._settings.kind]
        return sql_schema(f"Run one read-only {dialect} query and see its rows. To see the tables: {tables}.")

    def call(self, arguments: JsonObject) -> ToolResult:
        """Run arguments["query"]. Never raises: errors, refusals and time-outs are results with ok False."""
        query = arguments.get("query") if isinstance(arguments, Mapping) else None
        if not isinstance(query, str) or not query.strip():
            return ToolResult("error: sql needs the parameter 'query', a string that holds one SELECT", ok=False)
        if unknown := sorted(str(key) for key in arguments if key != "query"):
            return ToolResult(f"error: sql has no parameter {unknown[0][:50]!r}, only 'query'", ok=False)
        answer = self._run(Request(query))
        return ToolResult(answer.text, answer.ok)

    def result(self, query: str, max_rows: int = 10_000) -> QueryResult:
        """All rows of a query with their values, run in the same cage; for scoring, not for the model.

        Never raises: `error` says what was wrong, more than `max_rows` rows among it.
        """
        answer = self._run(Request(query, max_rows))
        if not answer.ok:
            return QueryResult((), (), answer.text)
        return QueryResult(tuple(answer.columns), tuple(tuple(row) for row in answer.rows))

    def close(self) -> None:
        """End the worker. A later call starts another one."""
        with self._lock:
            self._stop()

    def _run(self, request: Request) -> Answer:
        if len(request.query) > _QUERY_CHARACTERS or not _is_text(request.query):
            return Answer(f"error: 'query' must be text of at most {_QUERY_CHARACTERS} characters", ok=False)
        with self._lock:
            try:
                answer = self._ask(request)
            except OSError as error:
                answer = Answer(f"error: the database cannot be asked: {error.strerror}", ok=False, broken=True)
            except BaseException:  # Ctrl-C: the answer on its way must not become the next query's
                self._stop()
                raise
            if answer.broken:
                self._stop()
        return answer

    def _ask(self, request: Request) -> Answer:
        if self._worker is not None and self._worker.poll() is not None:
            self._stop()  # it died between two calls
        if self._worker is None:
            self._worker = self._start()
            started = self._receive(self._worker, _START_SECONDS)
            if not started.ok:
                return started
        assert self._worker.stdin is not None
        self._worker.stdin.write(json.dumps(asdict(request)) + "\n")
        self._worker.stdin.flush()
        return self._receive(self._worker, self._kill_seconds)

    def _start(self) -> subprocess.Popen[str]:
        """A worker that knows nothing of where and by whom it was started."""
        return subprocess.Popen(
            [sys.executable, "-B", "-P", "-c", _PROGRAM, str(_ROOT), json.dumps(asdict(self._settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=os.path.abspath(os.sep),
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )

    def _receive(self, worker: subprocess.Popen[str], seconds: float) -> Answer:
        """The worker's next line; a worker that has none in time is killed."""
        late = threading.Event()

        def kill() -> None:
            late.set()
            worker.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        assert worker.stdout is not None
        line = worker.stdout.readline()
        timer.cancel()
        if line.endswith("\n"):
            return Answer(**json.loads(line))
        if late.is_set():
            return Answer(TOO_SLOW.format(seconds), ok=False, broken=True)
        return Answer(TOO_MUCH_MEMORY, ok=False, broken=True)

    def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.kill()
        worker.communicate()


def sql_schema(description: str) -> JsonObject:
    """The schema of a tool that runs one query."""
    return {
        "type": "function",
        "function": {
            "name": SqlTool.name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "One SELECT statement."}},
                "required": ["query"],
            },
        },
    }


def _is_text(query: str) -> bool:
    """False for half a surrogate pair, which no database takes."""
    return query.encode(errors="replace").decode() == query


def _kind(path: Path) -> str:
    try:
        with path.open("rb") as file:
            header = file.read(16)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if header == b"SQLite format 3\0":
        return "sqlite"
    if header[8:12] == b"DUCK":
        return "duckdb"
    raise DataError(f"{path}: neither a DuckDB nor a SQLite database (its first bytes are {header!r})")
