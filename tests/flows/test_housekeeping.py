"""gc: what it drops, what it leaves, and that a killed one can be given again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes import Fakes, config

from agent_r1.errors import ConfigError, RunError
from flows import housekeeping
from flows.cli import main
from flows.home import TRAJECTORIES_OF, all_rows
from flows.housekeeping import gc
from flows.locks import run_lock
from flows.session import run_training
from flows.start import begin
from storage import checkpoints, compaction, questions, runs
from storage.database import Store

Captured = pytest.CaptureFixture[str]
Install = Callable[[str], Fakes]


def train(home: Path, run: str, start_from: str | None = None, **changes: object) -> None:
    run_training(home, run, lambda: begin(home, run, config(**changes), start_from), lambda _line: None)


def files(home: Path) -> set[str]:
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}


def kept(home: Path, run: str) -> list[int]:
    return checkpoints.finished(home / "runs" / run / "checkpoints")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made") / "home"


@pytest.fixture
def home(made: Path, tmp_path: Path, fakes: Install) -> Path:
    """Two runs of two iterations, whose checkpoints nobody has retained."""
    fakes("")
    if not made.exists():
        train(made, "one", keep_checkpoints=["last"])
        train(made, "two", "one@1", keep_checkpoints=["all"])
    return Path(shutil.copytree(made, tmp_path / "home"))


def test_a_checkpoint_that_keep_checkpoints_does_not_name_goes(home: Path) -> None:
    assert kept(home, "one") == kept(home, "two") == [0, 1, 2]
    gc(home, [], dry=False)
    assert kept(home, "one") == [0, 2]
    assert kept(home, "two") == [0, 1, 2]


def test_a_checkpoint_after_the_last_publish_stays(home: Path) -> None:
    with Store(home / "store.duckdb").write() as con:
        con.execute("DELETE FROM stages WHERE run = 'one' AND stage = 'publish' AND iteration = 2")
    gc(home, [], dry=False)
    assert kept(home, "one") == [0, 1, 2]


def test_left_overs_and_folders_without_a_row_go_and_a_dry_run_touches_nothing(home: Path) -> None:
    left = [
        ".tmp-store.duckdb", ".store.duckdb.99999999", "runs/one/.tmp-config.yaml", "runs/one/checkpoints/.old-00001/x",
        "runs/one/data/train/.tmp-world.duckdb", "runs/nobody/config.yaml", "indexes/a/.tmp-index/x",
        "experiments/e/results/.tmp-r.json", "runs/.tmp-gone/x",
    ]  # fmt: skip
    for name in left:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    before = files(home)
    seen = gc(home, [], dry=True).json
    assert files(home) == before
    gc(home, [], dry=False)
    gone = before - files(home)
    assert gone >= set(left)
    assert all(name in left or name.startswith("runs/one/checkpoints/00001/") for name in gone), gone
    assert isinstance(seen, dict)
    assert seen["dry_run"]


def test_a_run_that_a_process_works_on_is_left_alone(home: Path, capsys: Captured) -> None:
    with run_lock(home / "runs" / "one"):
        assert main(["gc", "--delete", "one", "--home", str(home)]) == 1
        assert "run 'one' is in use by process" in capsys.readouterr().err
        gc(home, [], dry=False)
    assert kept(home, "one") == [0, 1, 2]


def test_a_deleted_run_leaves_nothing_and_the_others_are_as_they_were(home: Path, capsys: Captured) -> None:
    store = Store(home / "store.duckdb")

    def of_two() -> list[list[tuple]]:
        with store.read() as con:
            tables = ("stages", "metrics", "runs")
            return [con.execute(f"SELECT * FROM {t} WHERE run = 'two' ORDER BY ALL").fetchall() for t in tables]

    before, others = of_two(), {name for name in files(home) if name.startswith("runs/two/")}
    assert main(["gc", "--delete", "one", "--json", "--home", str(home)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["notes"] == ["run two started from one: it has its own copy of that checkpoint and stays whole"]
    assert of_two() == before
    assert {name for name in files(home) if name.startswith("runs/")} == others
    with store.read() as con:
        assert compaction.count_rows(con, "one") == 0
        assert con.execute("SELECT run FROM runs").fetchall() == [("two",)]
    assert main(["gc", "--delete", "one", "--home", str(home)]) == 1
    assert "there is no run 'one'" in capsys.readouterr().err


def test_a_question_of_another_run_stays(home: Path) -> None:
    from agent_r1.questions.records import Question

    for run, ids in (("one", "a\nb\n"), ("two", "b\n")):
        folder = home / "runs" / run / "data" / "train"
        folder.mkdir(parents=True)
        (folder / "questions.txt").write_text(ids)
    with Store(home / "store.duckdb").write() as con:
        questions.save(con, "train", [Question(each, each) for each in "abc"])
    gc(home, ["one"], dry=False)
    with Store(home / "store.duckdb").read() as con:
        assert con.execute("SELECT question_id FROM questions ORDER BY 1").fetchall() == [("b",), ("c",)]


@pytest.mark.parametrize("at", ["rows", "folder", "compact"])
def test_a_killed_deletion_is_ended_by_the_same_command_or_any_gc(
    home: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    place = {"rows": (compaction, "remove_run"), "folder": (shutil, "rmtree"), "compact": (compaction, "_copy")}[at]
    with monkeypatch.context() as patched:
        patched.setattr(*place, die)
        with pytest.raises(Killed):
            gc(home, ["one"], dry=False)
    again = ["one"] if at == "rows" else []
    gc(home, again, dry=False)
    assert not [name for name in files(home) if name.startswith("runs/one") or ".tmp-" in name]
    assert kept(home, "two") == [0, 1, 2]


def test_a_run_that_another_is_about_to_start_from_is_not_deleted(home: Path, fakes: Install) -> None:
    fakes("prepare")
    with pytest.raises(RuntimeError):
        train(home, "three", "one@2")
    with pytest.raises(Exception, match="run 'three' starts from one@2 and has not begun: it needs it"):
        gc(home, ["one"], dry=False)
    assert kept(home, "one") == [0, 1, 2]


def test_a_run_whose_trajectories_another_holds_goes_only_with_it(home: Path) -> None:
    with Store(home / "store.duckdb").write() as con:
        runs.add_note(con, "two", TRAJECTORIES_OF, None, "one", datetime(2026, 12, 1, tzinfo=UTC))
    with pytest.raises(RunError, match="'two' holds trajectories of 'one'"):
        gc(home, ["one"], dry=False)
    gc(home, ["one", "two"], dry=False)
    assert all_rows(home) == []


def test_an_index_goes_that_no_run_uses_and_none_while_a_run_is_trained(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("used", "unused"):
        (home / "indexes" / name / "index").mkdir(parents=True)
        (home / "indexes" / name / "index" / "data").write_text("x")
    monkeypatch.setattr(housekeeping, "_indexes", lambda context: {"used"} if context.run == "two" else set())
    with run_lock(home / "runs" / "one"):
        gc(home, [], dry=False)
    assert sorted(path.name for path in (home / "indexes").iterdir()) == ["unused", "used"]
    gc(home, [], dry=False)
    assert [path.name for path in (home / "indexes").iterdir()] == ["used"]


def test_checkpoints_without_rows_are_never_swept(home: Path) -> None:
    (home / "store.duckdb").rename(home / "elsewhere.duckdb")
    before = files(home)
    with pytest.raises(ConfigError, match="has no store"):
        gc(home, [], dry=False)
    train(home, "three")  # which makes a new store
    (home / "runs" / "data").mkdir()
    (home / "runs" / "data" / "mine.csv").write_text("x")
    view = gc(home, [], dry=False)
    assert files(home) >= {name for name in before if "checkpoints" in name} | {"runs/data/mine.csv"}
    assert isinstance(view.json, dict)
    notes = view.json["notes"]
    assert isinstance(notes, list)
    assert len([note for note in notes if "has checkpoints and no rows" in str(note)]) == 2
    assert len([note for note in notes if "is no run's" in str(note)]) == 1


def test_a_run_without_a_folder_is_named_and_can_be_deleted(home: Path) -> None:
    shutil.rmtree(home / "runs" / "one")
    swept = gc(home, [], dry=False).json
    assert isinstance(swept, dict)
    assert swept["notes"] == ["run one has rows and no folder: agent-r1 gc --delete one removes them"]
    gc(home, ["one"], dry=False)
    assert [row.run for row in housekeeping.all_rows(home)] == ["two"]
