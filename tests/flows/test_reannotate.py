"""Another run's trajectories at other prices: a real store, hand-made trajectories, an MLflow that only remembers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import config
from rich.console import Console

from agent_r1.errors import AgentR1Error, ConfigError, RunError
from agent_r1.questions.records import Evidence, Json, Question
from agent_r1.tools.protocol import Source
from agent_r1.trajectory import CallRecord, Trajectory, Turn
from flows import reports
from flows.cli import main
from flows.home import stored_context, stored_row
from flows.locks import run_lock
from flows.reannotate import reannotate
from flows.start import begin, resume
from storage import annotations, metrics, questions, runs, stages, trajectories
from storage.metrics import MetricRow
from tasks import annotate, publish
from tasks.context import RunContext
from tasks.stage import Work, run_stage

DEAR = ["rewards.turn=-0.25", "rewards.evidence=0.5"]
TABLES = ("runs", "stages", "questions", "trajectories", "turns", "annotations", "credits", "metrics")
CLOCK = ("started_at", "finished_at", "created_at", "at", "notes", "pid")


class Shown:
    """A tracker that remembers the tags and metrics of each run."""

    def __init__(self) -> None:
        self.tags: dict[str, Mapping[str, str]] = {}
        self.points: set[tuple[str, int, str]] = set()
        self.statuses: list[str] = []

    def ensure_run(
        self, run: str, _identity: str, _params: Mapping[str, Json], tags: Mapping[str, str], _known_id: str | None
    ) -> str:
        self.tags[run] = tags
        return f"mlflow-{run}"

    def set_status(self, _run_id: str, status: str) -> None:
        self.statuses.append(status)

    def log_metrics(self, run_id: str, rows: Iterable[MetricRow]) -> int:
        self.points |= {(run_id, row.iteration, row.key) for row in rows}
        return 0

    def shown(self, _run_id: str) -> int:
        return -1

    def log_text(self, *_: object) -> None: ...

    def log_table(self, *_: object) -> None: ...

    def log_traces(self, *_: object) -> None: ...

    def log_file(self, *_: object) -> None: ...

    def register(self, *_: object) -> None: ...

    def set_shown(self, *_: object) -> None: ...


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What MLflow would show."""
    tracker = Shown()
    monkeypatch.setattr(publish, "_tracker", lambda _context: tracker)
    return tracker


def trajectory(iteration: int, question: str, attempt: int) -> Trajectory:
    """A call that finds one of two pieces of evidence, then a right answer."""
    call = CallRecord("lookup", {"entity": "x"}, ok=True, text="found", sources=(Source("p", 1, 0, 1),))
    turns = (
        Turn(0, 0, (1, 2), (3, 4), (-0.5, -0.25), "call", (call,), "found"),
        Turn(1, 0, (5,), (6,), (-1.0,), "<answer>Ann</answer>"),
    )
    return Trajectory("a", iteration, "train", question, attempt, iteration - 1, "answered", "Ann", 1.0, 1.0, turns)


def sample(context: RunContext, iteration: int, annotated: bool = True, answer: str = "Ann") -> None:
    """What the run's rollout, of two shards, and annotate leave."""
    for shard in (0, 1):
        alike = [trajectory(iteration, f"q{shard}", attempt) for attempt in (0, 1)]
        made = [replace(each, run=context.run, answer=answer) for each in alike]

        def save(made: list[Trajectory] = made, shard: int = shard) -> Work:
            receipt: dict[str, Json] = {"trajectories": len(made), "action_tokens": 6}
            return Work(receipt, lambda con: trajectories.save(con, context.run, iteration, "train", shard, made))

        run_stage(context, "rollout", iteration, {}, save, shard)
    if annotated:
        run_stage(context, "annotate", iteration, {}, lambda: annotate.annotated(context, iteration, context.run))


@pytest.fixture
def source(tmp_path: Path) -> RunContext:
    """Run a: iterations 1 and 2 are annotated, 3 is only sampled."""
    prices = {"evidence": 0.3, "turn": -0.05}
    settings = {"rollout": {"questions": 2, "attempts": 2, "shard_size": 2}, "rewards": prices, "seed": 3}
    context = begin(tmp_path, "a", config(**settings)).context
    with context.store.write() as con:
        asked = [Question(f"q{shard}", "Who?", ("Ann",), (Evidence("p", 1), Evidence("r", 1))) for shard in (0, 1)]
        questions.save(con, "train", asked)
    for iteration in (1, 2):
        sample(context, iteration)
    sample(context, 3, annotated=False)
    return context


def reprice(source: RunContext, settings: list[str] = DEAR, name: str = "b", run: str = "a") -> list[str]:
    said: list[str] = []
    reannotate(source.home, run, name, settings, said.append)
    return said


def rows(source: RunContext, run: str, clocked: bool = False) -> dict[str, list[tuple[object, ...]]]:
    """Every row of a run, by table, with or without what a clock decides."""
    found: dict[str, list[tuple[object, ...]]] = {}
    with source.store.read() as con:
        for table in TABLES:
            names = [row[0] for row in con.execute(f"SELECT column_name FROM (DESCRIBE {table})").fetchall()]
            kept = [name for name in names if clocked or name not in CLOCK]
            where = "WHERE run = ?" if "run" in names else "WHERE ? <> ''"
            timeless = " AND key NOT LIKE 'time/%'" if table == "metrics" and not clocked else ""
            columns = ", ".join(f'"{name}"::VARCHAR' for name in kept)
            query = f"SELECT {columns} FROM {table} {where}{timeless} ORDER BY ALL"
            found[table] = con.execute(query, [run]).fetchall()
    return found


def test_trajectories_are_the_same_under_another_name_and_priced_anew(source: RunContext) -> None:
    """Before: .3 / 2 - .05, then 1. After: .5 / 2 - .25, then 1."""
    said = reprice(source)
    assert said == [
        f"run b: new, trajectories of a, in {source.home}",
        "iteration 1  reward  1.100 ->  1.000",
        "iteration 2  reward  1.100 ->  1.000",
    ]
    with source.store.read() as con:
        made = trajectories.load(con, "b", 2, "train")
        priced = annotations.load(con, "b", 2)
        assert trajectories.load(con, "b", 3, "train") == []
    assert [one.trajectory_id for one in made] == [f"b/2/train/q{q}/{n}" for q in (0, 1) for n in (0, 1)]
    assert [one.turns for one in made] == [trajectory(2, "q0", 0).turns] * 4
    assert {one.checkpoint for one in made} == {1}
    assert [row.trajectory_id for row in priced] == [one.trajectory_id for one in made]
    assert priced[0].reward_parts == {0: {"evidence": 0.25, "turn": -0.25}, 1: {"outcome": 1.0}}
    assert priced[0].rewards == (0, 0, 0, 0, 0, 1.0)
    row = stored_row(source.home, "b")
    assert (row.status, row.seed, stored_context(source.home, "b").config.rewards.turn) == ("finished", 3, -0.25)
    assert [(note["what"], note["after"]) for note in row.notes] == [("trajectories of", "a")]
    assert (source.home / "runs" / "b" / "config.yaml").is_file()


def test_metrics_are_those_of_the_new_prices_and_of_the_old_sampling(source: RunContext) -> None:
    reprice(source)
    with source.store.read() as con:
        before, after = ({(row.iteration, row.key): row.value for row in metrics.load(con, run)} for run in "ab")
    assert after[1, "rollout/reward_mean"] == pytest.approx(1.0)
    assert after[1, "reward/turn"] == -0.25
    assert after[1, "rollout/group_zero_variance"] == 1.0
    assert after[1, "rollout/tokens_per_second"] == before[1, "rollout/tokens_per_second"]
    assert {key for iteration, key in after if iteration == 1} >= {key for iteration, key in before if iteration == 1}


def test_the_run_itself_is_not_changed(source: RunContext) -> None:
    before = rows(source, "a", clocked=True)
    reprice(source)
    assert rows(source, "a", clocked=True) == before


def test_it_is_shown_in_mlflow_by_iteration_and_says_whose_trajectories_it_has(
    source: RunContext, shown: Shown
) -> None:
    reprice(source)
    assert shown.tags["b"]["agent_r1.trajectories_of"] == "a"
    assert shown.tags["b"]["mlflow.source.name"] == "agent-r1 reannotate"
    assert {("mlflow-b", iteration, "reward/turn") for iteration in (1, 2)} <= shown.points
    assert shown.statuses[-1] == "FINISHED"


@pytest.mark.parametrize("fail_at", [("rollout", 1, 1), ("annotate", 1, 0), ("rollout", 2, 0), ("publish", 2, 0)])
def test_stopped_anywhere_and_called_again_it_ends_as_if_nothing_had_happened(
    source: RunContext, fail_at: tuple[str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reprice(source, name="whole")
    wanted = {table: str(found).replace("whole", "b") for table, found in rows(source, "whole").items()}

    def stopping(context: RunContext, stage: str, iteration: int, *rest: object) -> object:
        if (stage, iteration, rest[2] if len(rest) > 2 else 0) == fail_at:
            raise KeyboardInterrupt
        return run_stage(context, stage, iteration, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("tasks.reannotate.run_stage", stopping)
    with pytest.raises(KeyboardInterrupt):
        reprice(source)
    assert stored_row(source.home, "b").status == "stopped"
    with source.store.read() as con:
        before = stages.of_run(con, "b")
    monkeypatch.setattr("tasks.reannotate.run_stage", run_stage)
    assert reprice(source)[0].startswith("run b: goes on, trajectories of a")
    with source.store.read() as con:
        after = stages.of_run(con, "b")
    assert [row for row in after if row in before] == before, "a finished stage was done again"
    assert {table: str(found) for table, found in rows(source, "b").items()} == wanted


def test_called_again_when_finished_it_says_so_and_changes_nothing(source: RunContext) -> None:
    reprice(source)
    before = rows(source, "b", clocked=True)
    assert reprice(source) == ["run b: has all 2 annotated iterations of a already; nothing to do"]
    assert rows(source, "b", clocked=True) == before


def test_iterations_that_the_run_has_finished_since_are_taken_too(source: RunContext) -> None:
    reprice(source)
    fresh = stored_context(source.home, "a")
    sample(fresh, 3)
    assert reprice(source)[1:] == ["iteration 3  reward  1.100 ->  1.000"]


@pytest.mark.parametrize(
    ("settings", "name", "run", "error", "says"),
    [
        (["ppo.epochs=3"], "c", "a", ConfigError, "--set ppo.epochs=3: would not change .* train --run c --from a@0"),
        (["rewards=3"], "c", "a", ConfigError, "only rewards"),
        (["rewards.bonus=1"], "c", "a", ConfigError, "unknown key 'rewards.bonus'"),
        (["rewards.turn=1"], "c", "a", ConfigError, "rewards.turn"),
        (["rewards.evidence=2"], "c", "a", ConfigError, "rewards.evidence 2.0 is above rewards.outcome"),
        ([], "c/d", "a", ConfigError, "run name 'c/d'"),
        ([], "a", "a", ConfigError, "--name a"),
        ([], "c", "nope", RunError, "no run 'nope'"),
        ([], "c", "empty", RunError, "'empty' has no iteration whose trajectories are annotated"),
        ([], "c", "b", RunError, "'b' holds the trajectories of run 'a'"),
        ([], "empty", "a", RunError, "'empty' exists and samples its own trajectories"),
        (
            ["rewards.turn=-0.5"],
            "b",
            "a",
            RunError,
            "rewards.evidence is 0.5 there and 0.3 here; rewards.turn is -0.25",
        ),
        ([], "b", "other", RunError, "'b' exists and holds the trajectories of run 'a'"),
    ],
)
def test_what_cannot_be_is_refused_and_stores_nothing(
    source: RunContext, settings: list[str], name: str, run: str, error: type[AgentR1Error], says: str
) -> None:
    reprice(source)
    begin(source.home, "empty", config())
    sample(begin(source.home, "other", source.config).context, 1)
    with source.store.read() as con:
        before = runs.all_runs(con)
    with pytest.raises(error, match=says):
        reprice(source, settings, name, run)
    with source.store.read() as con:
        assert runs.all_runs(con) == before


def test_a_name_in_use_is_refused(source: RunContext) -> None:
    with run_lock(source.home / "runs" / "b"), pytest.raises(RunError, match="in use by process"):
        reprice(source)


def test_an_iteration_that_is_being_done_again_is_not_taken_in_part(
    source: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run forgets it between the reading of its stages and that of its trajectories."""

    def forgetting(context: RunContext, _run: str) -> None:
        with context.store.write() as con:
            stages.forget_from(con, "a", 2)

    monkeypatch.setattr("flows.reannotate.check_tracking", lambda context: forgetting(context, "a"))
    with pytest.raises(RunError, match="run 'a' is doing iteration 2 again"):
        reprice(source)
    assert stored_row(source.home, "b").status == "failed"


def stop_at(source: RunContext, stage: str, shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reannotate that is stopped before that stage of iteration 2."""

    def stopping(context: RunContext, name: str, iteration: int, *rest: object) -> object:
        if (name, iteration, rest[2] if len(rest) > 2 else 0) == (stage, 2, shard):
            raise KeyboardInterrupt
        return run_stage(context, name, iteration, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("tasks.reannotate.run_stage", stopping)
        with pytest.raises(KeyboardInterrupt):
            reprice(source)


def sample_again(source: RunContext, answer: str) -> None:
    """The other run does iteration 2 again: as many trajectories, of as many tokens."""
    with source.store.write() as con:
        stages.forget_from(con, "a", 2)
    sample(stored_context(source.home, "a"), 2, answer=answer)


def answers(source: RunContext, iteration: int) -> list[str | None]:
    with source.store.read() as con:
        return [one.answer for one in trajectories.load(con, "b", iteration, "train")]


@pytest.mark.parametrize(("stage", "shard"), [("rollout", 1), ("annotate", 0)])
def test_an_iteration_copied_in_part_is_copied_again_where_it_was_sampled_anew_since(
    source: RunContext, stage: str, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(source, stage, shard, monkeypatch)
    with source.store.read() as con:
        before = [row for row in stages.of_run(con, "b") if row.iteration == 1]
    sample_again(source, "Bob")
    assert reprice(source)[1:] == [
        "iteration 2  was copied in part, but a has sampled it anew since: copying it again",
        "iteration 2  reward  1.100 ->  1.000",
    ]
    assert answers(source, 2) == ["Bob"] * 4
    with source.store.read() as con:
        assert [row for row in stages.of_run(con, "b") if row.iteration == 1] == before


def test_the_same_trajectories_sampled_anew_are_not_copied_again(
    source: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(source, "rollout", 1, monkeypatch)
    sample_again(source, "Ann")
    assert reprice(source)[1:] == ["iteration 2  reward  1.100 ->  1.000"]


def test_an_iteration_that_is_priced_stays_as_it_is(source: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(source, "publish", 0, monkeypatch)
    sample_again(source, "Bob")
    assert reprice(source)[1:] == ["iteration 2  reward  1.100 ->  1.000"]
    assert answers(source, 2) == ["Ann"] * 4


def test_it_is_not_trained(source: RunContext) -> None:
    reprice(source)
    before = rows(source, "b", clocked=True)
    for attempt in (
        lambda: resume(source.home, "b"),
        lambda: resume(source.home, "b", from_iteration=1),
        lambda: begin(source.home, "b", stored_context(source.home, "b").config),
        lambda: begin(source.home, "b", config()),
    ):
        with pytest.raises(RunError, match=r"off-policy. Use: agent-r1 train --run NEW --from a@0 --set rewards"):
            attempt()
    assert rows(source, "b", clocked=True) == before


def test_a_trajectory_is_decoded_by_the_tokenizer_of_the_run_that_sampled_it(
    source: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    reprice(source)
    asked: list[str] = []

    def decoder(context: RunContext, *_: object) -> object:
        asked.append(context.run)
        return lambda ids: str(list(ids))

    monkeypatch.setattr(reports, "decoder", decoder)
    console = Console(record=True, width=200)
    reports.trajectory(source.home, "b", "b/1/train/q1/1").draw(console)
    assert asked == ["a"]
    assert "reward +0 (evidence +0.25, turn -0.25)" in console.export_text()


def test_the_command_prints_rewards_before_and_after(source: RunContext, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reannotate", "a", "--name", "b", "--home", str(source.home), *(f"--set={each}" for each in DEAR)]
    assert main(arguments) == 0
    assert "a -> b: mean rewards" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    found = {row["reward"]: row for row in json.loads(capsys.readouterr().out)["rewards"]}
    assert found["turn"] == {"reward": "turn", "before": -0.05, "after": -0.25, "change": pytest.approx(-0.2)}
    assert found["all"]["change"] == pytest.approx(-0.1)


def test_ctrl_c_is_130_and_says_how_to_go_on(
    source: RunContext, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.reannotate.copy_and_price", interrupt)
    assert main(["reannotate", "a", "--name", "b", "--home", str(source.home)]) == 130
    assert capsys.readouterr().err == "stopped; go on with: the same command\n"
