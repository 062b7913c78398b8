"""Runs from begin to end, resumed after failures: fake stages, a real store, no Prefect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Fakes, config

from agent_r1.errors import RunError
from flows.home import stored_row
from flows.locks import run_lock
from flows.progress import Progress
from flows.screens import Quiet
from flows.session import run_training
from flows.start import begin, resume
from flows.training import iterate
from storage import metrics, stages
from tasks.context import RunContext

WHOLE = [
    "prepare", "warm_start", "evaluate 0", "publish 0",
    "rollout 1.0", "rollout 1.1", "annotate 1", "update 1", "evaluate 1", "publish 1",
    "rollout 2.0", "rollout 2.1", "annotate 2", "update 2", "evaluate 2", "publish 2",
]  # fmt: skip
Install = Callable[[str], Fakes]


def train(home: Path, said: list[str] | None = None, **changes: object) -> RunContext:
    return run_training(home, "a", lambda: begin(home, "a", config(**changes)), ([] if said is None else said).append)


def rows(context: RunContext) -> list[tuple[object, ...]]:
    """The rows that a killed and resumed run has in common with one that was never disturbed."""
    with context.store.read() as con:
        ledger = [
            (row.iteration, row.stage, row.shard, row.receipt, row.input_hash, row.attempt)
            for row in stages.of_run(con, context.run)
        ]
        values = [
            (row.iteration, row.key, row.value, row.stage)
            for row in metrics.load(con, context.run)
            if not row.key.startswith("time/")
        ]
    return sorted([*ledger, *values], key=str)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    """The rows of a run that never failed."""
    context = begin(tmp_path_factory.mktemp("undisturbed"), "a", config()).context
    with pytest.MonkeyPatch.context() as patch:
        Fakes().install(patch.setattr)
        iterate(context, None, Progress(context, Quiet()))
    return rows(context)


def test_stages_run_in_the_order_of_the_dag(tmp_path: Path, fakes: Install) -> None:
    made = fakes("")
    train(tmp_path)
    assert made.begun == WHOLE
    assert made.closed == ["finished"]
    assert stored_row(tmp_path, "a").status == "finished"


@pytest.mark.parametrize(
    "fail_at", ["prepare", "warm_start", "rollout 1.1", "annotate 1", "update 1", "evaluate 2", "publish 2"]
)
def test_a_run_that_failed_anywhere_goes_on_to_the_same_rows(
    tmp_path: Path, fakes: Install, fail_at: str, undisturbed: list[tuple[object, ...]]
) -> None:
    broken = fakes(fail_at)
    with pytest.raises(RuntimeError, match=f"{fail_at} fails"):
        train(tmp_path)
    assert stored_row(tmp_path, "a").status == "failed"
    assert broken.closed == ["failed"]
    again = fakes("")
    context = run_training(tmp_path, "a", lambda: resume(tmp_path, "a"), lambda _: None)
    assert again.begun == WHOLE[WHOLE.index(fail_at) :]
    assert rows(context) == undisturbed


def test_more_iterations_go_on_where_the_run_ended(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    train(tmp_path, iterations=1)
    made = fakes("")
    train(tmp_path, iterations=2)
    assert made.begun == WHOLE[10:]


def test_the_last_iteration_is_always_evaluated(tmp_path: Path, fakes: Install) -> None:
    made = fakes("")
    train(tmp_path, iterations=3, evaluation={"every": 2})
    assert [name for name in made.begun if name.startswith("evaluate")] == ["evaluate 0", "evaluate 2", "evaluate 3"]


def test_the_test_split_is_asked_after_the_last_iteration_before_it_is_published(
    tmp_path: Path, fakes: Install
) -> None:
    made = fakes("")
    train(tmp_path, evaluation={"test": True})
    assert made.begun == [*WHOLE[:-1], "test 2", "publish 2"]


def test_a_test_that_is_asked_for_later_is_done_then_and_again_after_more_iterations(
    tmp_path: Path, fakes: Install
) -> None:
    fakes("")
    train(tmp_path, iterations=1)
    made = fakes("")
    train(tmp_path, iterations=1, evaluation={"test": True})
    assert made.begun == ["test 1"]
    context = train(tmp_path, iterations=2, evaluation={"test": True})
    assert made.begun == ["test 1", *WHOLE[10:-1], "test 2", "publish 2"]
    with context.store.read() as con:
        tested = {row.iteration: row.value for row in metrics.load(con, "a") if row.key.startswith("test/")}
    assert tested == {1: 0.2, 2: 0.4}


def test_ctrl_c_leaves_a_stopped_run(tmp_path: Path, fakes: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fakes("")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.annotate.annotate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path)
    assert stored_row(tmp_path, "a").status == "stopped"
    assert made.closed == ["stopped"]


def test_a_run_in_use_is_refused_before_anything_is_stored(tmp_path: Path, fakes: Install) -> None:
    made = fakes("")
    with run_lock(tmp_path / "runs" / "a"), pytest.raises(RunError, match="in use by process"):
        train(tmp_path)
    assert made.begun == []
    assert not (tmp_path / "store.duckdb").exists()


def test_a_resumed_run_says_what_it_skips_once(
    tmp_path: Path, fakes: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes("rollout 2.1")
    with pytest.raises(RuntimeError):
        train(tmp_path)
    capsys.readouterr()
    fakes("")
    train(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "skipping what is done: iterations 0 to 1, 1 of 2 shards of iteration 2"
    assert [line.partition("  ")[0] for line in lines[1:]] == ["iteration 2/2"]
