"""The rule of resuming, on a fresh store with scripted work."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prefect.states import Failed

from agent_r1.config import parse
from agent_r1.errors import EngineError, EngineLostError, RunError
from agent_r1.questions.records import Json
from storage import checkpoints, metrics, stages
from storage.metrics import MetricRow
from storage.stages import StageRow
from tasks.annotate import annotate
from tasks.context import RunContext
from tasks.evaluate import evaluate
from tasks.prepare import prepare
from tasks.publish import publish
from tasks.rollout import rollout
from tasks.stage import Connection, Receipt, Work, intact, run_stage, server_lost
from tasks.test import test as sampled_test
from tasks.update import update
from tasks.warm_start import warm_start


class Script:
    """Work that counts how often it is done."""

    def __init__(self, receipt: dict[str, Json] | None = None, scores: dict[str, float] | None = None) -> None:
        self.times = 0
        self.receipt = receipt or {"rows": 3}
        self.scores = scores or {}

    def __call__(self) -> Work:
        self.times += 1
        return Work(self.receipt, metrics=self.scores)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], RunContext]:
    """A new process's view of the same run, each time."""
    return lambda: RunContext(tmp_path, "r", parse({"store": {"lock_wait": 2.0}}, "test"))


def rows(context: RunContext) -> list[StageRow]:
    with context.store.read() as con:
        return stages.of_run(con, context.run)


def values(context: RunContext) -> list[MetricRow]:
    with context.store.read() as con:
        return metrics.load(con, context.run)


def test_a_finished_stage_is_not_done_again(fresh: Callable[[], RunContext]) -> None:
    work = Script()
    first = run_stage(fresh(), "annotate", 1, {"a": 1}, work)
    assert run_stage(fresh(), "annotate", 1, {"a": 1}, work) == first == {"rows": 3}
    assert work.times == 1


def test_a_finished_stage_is_not_done_again_in_the_same_process(fresh: Callable[[], RunContext]) -> None:
    context, work = fresh(), Script()
    run_stage(context, "annotate", 1, {}, work)
    run_stage(context, "annotate", 1, {}, work)
    assert work.times == 1


def test_other_inputs_are_refused_and_nothing_is_touched(fresh: Callable[[], RunContext]) -> None:
    work = Script()
    run_stage(fresh(), "annotate", 1, {"a": 1}, work)
    before = rows(fresh())
    with pytest.raises(RunError, match=r"annotate 1 was done from other inputs .*resume r --from-iteration 1`"):
        run_stage(fresh(), "annotate", 1, {"a": 2}, work)
    assert work.times == 1
    assert rows(fresh()) == before


def test_a_stage_done_again_must_come_out_as_what_later_stages_were_made_from(
    fresh: Callable[[], RunContext], tmp_path: Path
) -> None:
    path = tmp_path / "questions.txt"

    def prepare(content: str) -> Receipt:
        def work() -> Work:
            path.write_text(content)
            return Work({"files": {path.name: hashlib.sha256(content.encode()).hexdigest()}})

        return run_stage(fresh(), "prepare", 0, {}, work)

    prepare("a")
    path.unlink()
    prepare("b")  # nothing was made from it yet
    run_stage(fresh(), "warm_start", 0, {}, Script())
    before = rows(fresh())
    path.unlink()
    with pytest.raises(RunError, match=r"prepare 0 was done again.*--from-iteration 0"):
        prepare("c")
    assert rows(fresh()) == before
    assert prepare("b") == {"files": {path.name: hashlib.sha256(b"b").hexdigest()}}
    assert [row.attempt for row in rows(fresh()) if row.stage == "prepare"] == [3]


def test_another_identity_is_refused_but_not_an_operational_key(fresh: Callable[[], RunContext]) -> None:
    work = Script()
    context = fresh()
    run_stage(context, "annotate", 1, {}, work)
    operational = parse({"iterations": 9, "device": "cpu", "ppo": {"micro_batch": 1}}, "test")
    run_stage(replace(context, config=operational), "annotate", 1, {}, work)
    assert work.times == 1
    with pytest.raises(RunError):
        run_stage(replace(context, config=parse({"seed": 1}, "test")), "annotate", 1, {}, work)


def test_work_that_fails_leaves_nothing_and_the_next_try_is_attempt_one(fresh: Callable[[], RunContext]) -> None:
    def fails() -> Work:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run_stage(fresh(), "update", 1, {}, fails)
    run_stage(fresh(), "update", 1, {}, Script())
    assert [row.attempt for row in rows(fresh())] == [1]


def test_rows_and_receipt_are_stored_together_or_not_at_all(fresh: Callable[[], RunContext]) -> None:
    def save(con: Connection) -> None:
        con.execute("INSERT INTO metrics VALUES ('r', 1, 'annotate', 'half', 1.0, now()::TIMESTAMP)")
        raise RuntimeError("killed while saving")

    with pytest.raises(RuntimeError, match="while saving"):
        run_stage(fresh(), "annotate", 1, {}, lambda: Work({}, save))
    assert values(fresh()) == []
    assert rows(fresh()) == []


def test_no_connection_is_open_while_a_stage_works(fresh: Callable[[], RunContext]) -> None:
    context = fresh()

    def work() -> Work:
        with context.store.write() as con:  # would wait for ever on an open connection of ours
            con.execute("SELECT 1")
        return Work({})

    run_stage(context, "rollout", 1, {}, work)


def test_a_promised_file_that_is_gone_or_changed_is_made_again(fresh: Callable[[], RunContext], tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    times = []

    def work() -> Work:
        times.append(1)
        path.write_text("world")
        return Work({"files": {"world.db": hashlib.sha256(b"world").hexdigest()}})

    for spoil in (lambda: None, path.unlink, lambda: path.write_text("other")):
        spoil() if path.exists() else None
        run_stage(fresh(), "prepare", 0, {}, work)
        run_stage(fresh(), "prepare", 0, {}, work)
    assert len(times) == 3


def make_checkpoint(context: RunContext, iteration: int) -> Work:
    def write(folder: Path) -> None:
        (folder / "weights").write_bytes(b"w" * 10)

    digest = checkpoints.publish(context.checkpoint(iteration), write).digest
    return Work({"files": {context.name(context.checkpoint(iteration)): digest}})


def test_a_checkpoint_counts_only_whole(fresh: Callable[[], RunContext]) -> None:
    context = fresh()
    receipt: Receipt = make_checkpoint(context, 1).receipt
    assert intact(context.home, receipt)
    (context.checkpoint(1) / "weights").write_bytes(b"w" * 9)
    assert not intact(context.home, receipt)
    (context.checkpoint(1) / "weights").write_bytes(b"w" * 10)
    (context.checkpoint(1) / "manifest.json").unlink()
    assert not intact(context.home, receipt)


def test_an_older_checkpoint_that_was_dropped_is_not_made_again(fresh: Callable[[], RunContext]) -> None:
    for iteration in (1, 2):
        run_stage(fresh(), "update", iteration, {}, lambda i=iteration: make_checkpoint(fresh(), i))
    shutil.rmtree(fresh().checkpoint(1))
    work = Script()
    run_stage(fresh(), "update", 1, {}, work)
    assert work.times == 0
    shutil.rmtree(fresh().checkpoint(2))
    run_stage(fresh(), "update", 2, {}, work)
    assert work.times == 1


def test_shards_are_finished_one_by_one_and_their_seconds_add_up(fresh: Callable[[], RunContext]) -> None:
    shards = [Script(), Script(), Script()]
    for shard in (0, 1):
        run_stage(fresh(), "rollout", 1, {}, shards[shard], shard)
    for shard in (0, 1, 2):
        run_stage(fresh(), "rollout", 1, {}, shards[shard], shard)
    assert [shard.times for shard in shards] == [1, 1, 1]
    seconds = sum((row.finished_at - row.started_at).total_seconds() for row in rows(fresh()))
    assert [(row.key, row.value) for row in values(fresh())] == [("time/rollout_seconds", pytest.approx(seconds))]


def test_metrics_are_stored_with_the_stage(fresh: Callable[[], RunContext]) -> None:
    run_stage(fresh(), "evaluate", 4, {}, Script(scores={"eval/greedy/f1": 0.25}))
    found = {row.key: row for row in values(fresh())}
    assert (found["eval/greedy/f1"].value, found["eval/greedy/f1"].iteration) == (0.25, 4)
    assert found["eval/greedy/f1"].at == rows(fresh())[0].finished_at


def test_a_receipt_says_who_computed_it(fresh: Callable[[], RunContext]) -> None:
    run_stage(fresh(), "prepare", 0, {}, Script())
    (row,) = rows(fresh())
    assert row.code_version
    assert {"python", "torch", "transformers"} <= set(row.library_versions)


def test_the_hash_does_not_depend_on_the_order_of_keys(fresh: Callable[[], RunContext]) -> None:
    work = Script()
    run_stage(fresh(), "prepare", 0, {"a": 1, "b": {"x": 1, "y": 2}}, work)
    run_stage(fresh(), "prepare", 0, {"b": {"y": 2, "x": 1}, "a": 1}, work)
    assert work.times == 1


@pytest.mark.parametrize(
    ("error", "again"),
    [(EngineLostError("gone"), True), (EngineError("refused"), False), (RunError("no"), False), (KeyError("x"), False)],
)
def test_only_a_stage_that_lost_a_server_is_tried_again(error: Exception, again: bool) -> None:
    assert server_lost(None, None, Failed(data=error)) is again


def test_only_stages_that_sample_are_tried_again() -> None:
    every = (prepare, warm_start, rollout, annotate, update, evaluate, sampled_test, publish)
    assert [each.name for each in every if each.retries] == ["rollout", "evaluate", "test"]
    assert all(each.retry_condition_fn is server_lost for each in every if each.retries)
