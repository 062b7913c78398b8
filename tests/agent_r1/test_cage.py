"""The cage of docs/cage.md: every attack of its tables is stopped as it says, and a thousand more leave no trace."""

import hashlib
import os
import random
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import attacks
import duckdb
import pytest
from attacks import ARITHMETIC, ATTACKS, Arithmetic, Attack

from agent_r1.tools.calculator import Calculator
from agent_r1.tools.sql import SqlTool

KINDS = ("sqlite", "duckdb")
PAGE = Path(__file__).parents[2] / "docs" / "cage.md"
CLOCKS = {"hasty": 0.3, "patient": 20.0}
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@dataclass(frozen=True)
class Caged:
    """A tool on a database of its own in a folder of its own."""

    tool: SqlTool
    path: Path
    digest: str

    def assert_untouched(self) -> None:
        assert [path.name for path in self.path.parent.iterdir()] == [self.path.name]
        assert hashlib.sha256(self.path.read_bytes()).hexdigest() == self.digest

    @property
    def pid(self) -> int:
        self.tool.call({"query": "SELECT 1"})
        assert self.tool._worker is not None
        return self.tool._worker.pid


def make(kind: str, folder: Path, seconds: float) -> Caged:
    folder /= kind
    folder.mkdir(parents=True)
    path = folder / f"world.{kind}"
    connection = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))
    connection.execute("CREATE TABLE city (name VARCHAR, millions DOUBLE, capital BOOLEAN)")
    connection.execute("INSERT INTO city VALUES ('Rome', 2.8, true), ('Zürich', NULL, false)")
    if kind == "sqlite":
        connection.commit()
    connection.close()
    tool = SqlTool(path, max_rows=5, max_characters=400, seconds=seconds, kill_seconds=seconds + 3)
    return Caged(tool, path, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture(scope="module")
def cages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Caged]]:
    folder = tmp_path_factory.mktemp("cages")
    made = {f"{kind} {name}": make(kind, folder / name, seconds) for kind in KINDS for name, seconds in CLOCKS.items()}
    yield made
    for caged in made.values():
        caged.tool.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", ATTACKS, ids=[re.sub(r"\W+", "-", attack.what) for attack in ATTACKS])
def test_attack_is_stopped_as_the_table_says_and_leaves_no_trace(
    cages: dict[str, Caged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, attack: Attack
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal = attack.on(kind)
    caged = cages[f"{kind} {'hasty' if refusal.says == attacks.TIME else 'patient'}"]
    result = caged.tool.call({"query": refusal.query})
    assert result.ok == refusal.ok
    assert refusal.says
    assert refusal.says in result.text
    assert str(caged.path.parent) not in result.text
    assert len(result.text) < 600
    assert caged.tool.call({"query": "SELECT count(*) AS n FROM city"}).text == "n\n2"
    caged.assert_untouched()
    assert not list(tmp_path.iterdir())


def test_page_has_exactly_the_attacks_that_are_tested() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for table in (attacks.sql_table(), attacks.arithmetic_table()):
        assert "\n".join(["", *table, ""]) in page
    assert len(re.findall(r"^\| \d+ \|", page, re.MULTILINE)) == len(ATTACKS) + len(ARITHMETIC)
    assert len(ATTACKS) >= 40


@LINUX
@pytest.mark.parametrize("kind", KINDS)
def test_worker_sees_no_environment_and_can_open_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "open-sesame")
    caged = make(kind, tmp_path, seconds=1)
    process = Path("/proc") / str(caged.pid)
    assert b"open-sesame" not in (process / "environ").read_bytes()
    assert os.readlink(process / "cwd") == "/"
    limits = (process / "limits").read_text()
    for name in ("Max open files", "Max file size", "Max core file size"):
        assert re.search(rf"{name} +0 +0 ", limits), limits
    open_files = {os.readlink(file) for file in (process / "fd").iterdir()}
    assert {name for name in open_files if name.startswith("/")} <= {"/dev/null", str(caged.path)}
    caged.tool.close()


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("sqlite", "SELECT datetime('2020-06-01 12:00:00', 'localtime') AS t"),
        ("duckdb", "SELECT '2020-06-01 12:00:00+00'::TIMESTAMPTZ::VARCHAR AS t"),
    ],
)
def test_local_time_is_utc_wherever_the_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, query: str
) -> None:
    monkeypatch.setenv("TZ", "XYZ-9")
    caged = make(kind, tmp_path, seconds=5)
    assert caged.tool.call({"query": query}).text.removesuffix("+00") == "t\n2020-06-01 12:00:00"
    caged.tool.close()


@pytest.mark.parametrize("kind", KINDS)
def test_same_query_has_the_same_answer_in_another_worker(cages: dict[str, Caged], kind: str) -> None:
    """What would differ is refused; see the page for what the clock says."""
    queries = {
        "sqlite": "SELECT name, count(*) OVER (), date('2020-01-01', 'localtime') FROM city",
        "duckdb": "SELECT name, hash(name), timezone('UTC', TIMESTAMP '2020-01-01') FROM city"
        " TABLESAMPLE 90% (bernoulli, 7)",
    }
    tool = cages[f"{kind} patient"].tool
    first = tool.call({"query": queries[kind]})
    tool.close()
    assert first.ok
    assert tool.call({"query": queries[kind]}) == first


@pytest.mark.parametrize("attack", ARITHMETIC, ids=[re.sub(r"\W+", "-", attack.what) for attack in ARITHMETIC])
def test_arithmetic_attack_is_stopped_as_the_table_says_and_at_once(attack: Arithmetic) -> None:
    started = time.perf_counter()
    result = Calculator().call({"expression": attack.expression})
    assert time.perf_counter() - started < 0.5
    assert result.ok == attack.ok
    assert attack.says in result.text
    assert len(result.text) < 200


def test_calculator_answers_whatever_it_is_given() -> None:
    """Pieces of arithmetic and of Python in any order: an answer at once, never an exception."""
    draw = random.Random(0)
    pieces = [
        *("1", "9", "0", ".", "e9", "0x", "1_0", "1,234", "**", "*", "-", "+", "/", "//", "%", "(", ")", ",", "sqrt("),
        *("round(", "abs(", "min(", "max(", "x", "_", "'", '"', "[", "]", "{", "}", ":", ":=", " if ", " for ", "j"),
        *("lambda", "\\", "\n", "٣", "²", "f'{1}'", "True", "None", "...", "@", "~", "<<", "not ", "\x00", "\ud800"),
    ]
    calculator = Calculator()
    for _ in range(3000):
        expression = "".join(draw.choices(pieces, k=draw.randint(1, 30)))
        started = time.perf_counter()
        result = calculator.call({"expression": expression})
        assert time.perf_counter() - started < 0.5, expression
        assert len(result.text) < 200


SCARS = ("'", '"', "(", ")", ";", "--", "/*", "*/", "\x00", "é", "\n", "$$")


def hostile(kind: str, draw: random.Random) -> str:
    """An attack, or several, cut, doubled, joined or put into another query."""
    known = [attack.on(kind).query for attack in ATTACKS]
    query = draw.choice(known)
    for _ in range(draw.randint(0, 3)):
        other, cut = draw.choice(known), draw.randrange(len(query) + 1)
        query = draw.choice(
            [
                query[:cut] + other[draw.randrange(len(other) + 1) :],
                query[:cut] + draw.choice(SCARS) + query[cut:],
                f"{query}; {other}",
                f"SELECT * FROM ({query}) a, ({other}) b",
                f"WITH a AS ({query}) SELECT * FROM a",
                f"EXPLAIN {query}",
                f"{query} UNION ALL {other}",
                f"/* {other} */ {query}",
                query.replace(" ", draw.choice(["\t", "\n", "/**/", "  "])),
                draw.choice([str.upper, str.lower, str.swapcase])(query),
                query[cut:],
            ]
        )[:20_000]
    return query


def memory(pid: int) -> int:
    """Kilobytes that a process holds."""
    return int(subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout)


def soak(caged: Caged, kind: str, inputs: int) -> None:
    """Hostile inputs one after the other: nothing changes, nothing is written, and memory stays where it was."""
    draw = random.Random(f"soak {kind}")
    caged.tool.call({"query": "SELECT 1"})
    caged.tool.close()  # a first worker may have written Python's own cache of compiled modules
    root = sorted(os.listdir("/"))
    before: tuple[int, int] | None = None
    for number in range(inputs):
        query = hostile(kind, draw)
        result = caged.tool.call({"query": query})
        assert len(result.text) < 1000, query
        assert str(caged.path.parent) not in result.text, query
        if number == inputs // 5:
            before = memory(os.getpid()), memory(caged.pid)
    assert caged.tool.call({"query": "SELECT count(*) AS n FROM city"}).text == "n\n2"
    caged.assert_untouched()
    assert sorted(os.listdir("/")) == root
    written = Path("/proc") / str(caged.pid) / "io"
    if written.exists():
        assert "\nwrite_bytes: 0\n" in written.read_text()
    assert before is not None
    assert memory(os.getpid()) - before[0] < 30_000
    assert memory(caged.pid) - before[1] < 150_000


@pytest.mark.parametrize("kind", KINDS)
def test_hundred_hostile_inputs_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    _soak_in(tmp_path, monkeypatch, kind, 100)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousand_hostile_inputs_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    _soak_in(tmp_path, monkeypatch, kind, 1000)


def _soak_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, inputs: int) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    caged = make(kind, tmp_path, seconds=0.1)
    soak(caged, kind, inputs)
    caged.tool.close()
    assert not list((tmp_path / "here").iterdir())
