"""How runs begin and go on, on fresh homes."""

from __future__ import annotations

import logging
import shutil
import socket
from pathlib import Path

import pytest
import yaml
from fakes import Fakes, config

from agent_r1.errors import CheckpointError, ConfigError, RunError, StoreError
from flows import start
from flows.home import check_home, check_run_name, find_home, find_row, stored_context, stored_row
from flows.start import begin, resume, rewind
from storage import checkpoints, runs, stages
from tasks.context import RunContext


def computed(home: Path, run: str, iterations: int = 2) -> RunContext:
    """A run whose checkpoints 0 to `iterations` are made."""
    begun = begin(home, run, config())
    fakes = Fakes()
    receipt = fakes.warm_start(begun.context, {}, None)
    for iteration in range(1, iterations + 1):
        receipt = fakes.update(begun.context, iteration, receipt, {})
        fakes.publish(begun.context, iteration, {}, receipt, None)
    return begun.context


def done(context: RunContext) -> list[tuple[int, str]]:
    with context.store.read() as con:
        return [(row.iteration, row.stage) for row in stages.of_run(con, context.run)]


def test_a_new_run_is_stored_with_its_configuration(tmp_path: Path) -> None:
    begun = begin(tmp_path, "a", config(seed=7))
    row = stored_row(tmp_path, "a")
    assert (row.status, row.seed, row.identity) == ("running", 7, config(seed=7).identity)
    assert stored_context(tmp_path, "a") == begun.context
    written = yaml.safe_load((tmp_path / "runs" / "a" / "config.yaml").read_text())
    assert written == config(seed=7).model_dump(mode="json")


def test_the_same_identity_goes_on_and_operational_changes_are_noted(tmp_path: Path) -> None:
    begin(tmp_path, "a", config())
    begun = begin(tmp_path, "a", config(iterations=5, ppo={"micro_batch": 8}))
    assert begun.lines == ["run a: goes on", "iterations: 2 -> 5", "ppo.micro_batch: 64 -> 8"]
    row = stored_row(tmp_path, "a")
    assert row.config["iterations"] == 5
    assert [(note["what"], note["before"], note["after"]) for note in row.notes] == [
        ("iterations", 2, 5),
        ("ppo.micro_batch", 64, 8),
    ]


def test_another_identity_is_refused_naming_the_keys_with_both_values(tmp_path: Path) -> None:
    computed(tmp_path, "a")
    with pytest.raises(RunError, match=r"seed is 0 there and 1 here; rewards.turn is -0.02 there and 0.0 here"):
        begin(tmp_path, "a", config(seed=1, rewards={"turn": 0.0}, iterations=9))
    assert stored_row(tmp_path, "a").config["iterations"] == 2


def test_other_versions_are_a_warning_and_a_note_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, "a", config())
    before = stored_row(tmp_path, "a").code_version
    monkeypatch.setattr(start, "code_version", lambda: "9.9")
    assert resume(tmp_path, "a").lines == [
        "run a: goes on",
        f"warning: code is 9.9 now and was {before}: results may differ",
    ]
    assert resume(tmp_path, "a").lines == ["run a: goes on"]
    assert [note["what"] for note in stored_row(tmp_path, "a").notes] == ["code"]


def test_a_run_that_is_not_there_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run 'b'"):
        resume(tmp_path, "b")
    begin(tmp_path, "a", config())
    with pytest.raises(RunError, match="runs are: a"):
        resume(tmp_path, "b")


def test_from_iteration_forgets_it_and_all_after_it(tmp_path: Path) -> None:
    context = computed(tmp_path, "a", 3)
    resume(tmp_path, "a", from_iteration=2)
    assert done(context) == [(0, "warm_start"), (1, "update"), (1, "publish")]


def test_from_iteration_needs_the_checkpoint_before_it(tmp_path: Path) -> None:
    context = computed(tmp_path, "a", 3)
    shutil.rmtree(context.checkpoint(1))
    with context.store.write() as con:
        runs.set_status(con, "a", "stopped")
    with pytest.raises(RunError, match=r"needs checkpoint 1, .*00001.*kept are: 0, 2, 3.*--from-iteration 1$"):
        resume(tmp_path, "a", from_iteration=2)
    with pytest.raises(ConfigError, match="0 or more"):
        resume(tmp_path, "a", from_iteration=-1)
    assert len(done(context)) == 7
    assert stored_row(tmp_path, "a").status == "stopped"


def test_a_damaged_last_checkpoint_goes_back_to_the_newest_whole_one(tmp_path: Path) -> None:
    context = computed(tmp_path, "a", 3)
    assert rewind(context) is None
    shutil.rmtree(context.checkpoint(1))
    assert rewind(context) is None
    shutil.rmtree(context.checkpoint(3))
    assert rewind(context) == "checkpoint 3 is missing or damaged: going on from 2"
    assert done(context)[-1] == (2, "publish")
    shutil.rmtree(context.checkpoints)
    assert rewind(context) == "checkpoint 2 is missing or damaged: going on from the beginning"
    assert done(context) == []


def test_a_run_may_start_from_another_and_remembers_it(tmp_path: Path) -> None:
    computed(tmp_path, "a", 2)
    assert begin(tmp_path, "b", config(), "a").start_from == "a@2"
    assert resume(tmp_path, "b").start_from == "a@2"
    assert begin(tmp_path, "b", config(), "a").start_from == "a@2"
    assert begin(tmp_path, "c", config(), "a@1").start_from == "a@1"


@pytest.mark.parametrize(
    ("given", "problem"),
    [("b", "itself"), ("x", "no run 'x'"), ("a@7", "a keeps 0, 1, 2"), ("a@last", "expected RUN or RUN@ITERATION")],
)
def test_a_start_that_is_not_there_is_refused(tmp_path: Path, given: str, problem: str) -> None:
    computed(tmp_path, "a", 2)
    with pytest.raises((RunError, ConfigError), match=problem):
        begin(tmp_path, "b", config(), given)


def test_another_start_than_the_stored_one_is_refused(tmp_path: Path) -> None:
    computed(tmp_path, "a", 2)
    begun = begin(tmp_path, "b", config(), "a@1")
    Fakes().warm_start(begun.context, {}, "a@1")
    with pytest.raises(RunError, match="starts from a@1, not from a@2"):
        begin(tmp_path, "b", config(), "a@2")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "a b", "-a", "a@1", "x" * 101])
def test_run_names_are_names_of_folders(name: str) -> None:
    with pytest.raises(ConfigError):
        check_run_name(name)


def test_a_home_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "file/below"):
        with pytest.raises(ConfigError, match="at or below a regular file"):
            check_home(tmp_path / path)
    assert check_home(tmp_path / "new" / "home").is_dir()
    with pytest.raises(ConfigError, match="cannot be written"):
        check_home(Path("/proc"))


@pytest.mark.parametrize("letter", '?%"')
def test_a_home_whose_path_would_mean_something_else_to_mlflow_is_refused(tmp_path: Path, letter: str) -> None:
    with pytest.raises(ConfigError, match="expected a path without"):
        check_home(tmp_path / f"a{letter}b")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_finished_no_stage_gives_way_to_another_configuration(tmp_path: Path) -> None:
    begin(tmp_path, "a", config())
    assert begin(tmp_path, "a", config(seed=1)).lines == [f"run a: new, in {tmp_path}"]
    assert stored_row(tmp_path, "a").seed == 1
    computed(tmp_path, "origin")
    assert begin(tmp_path, "a", config(seed=1), "origin@1").start_from == "origin@1"
    assert resume(tmp_path, "a").start_from == "origin@1"


@pytest.mark.parametrize("key", ["path", "validation_path"])
def test_a_data_file_that_is_not_there_stores_no_run(tmp_path: Path, key: str) -> None:
    (tmp_path / "there.json").write_text("[]")
    data = {"path": str(tmp_path / "there.json"), key: str(tmp_path / "gone.json")}
    with pytest.raises(ConfigError, match=rf"^data.{key}: .*gone.json: no such file$"):
        begin(tmp_path, "a", config(data=data, tools=["search"]))
    assert find_row(tmp_path, "a") is None


def test_a_corpus_that_is_not_there_and_a_search_server_that_does_not_answer_stop_a_run_before_any_work(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"^search\.corpus: .*gone\.jsonl: no such file$"):
        begin(tmp_path, "a", config(tools=["search"], search={"corpus": str(tmp_path / "gone.jsonl")}))
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/retrieve"
        with pytest.raises(ConfigError, match=rf"^search\.url: {url} does not answer .*refused"):
            begin(tmp_path, "a", config(tools=["search"], search={"url": url}))
    assert find_row(tmp_path, "a") is None


def test_a_device_that_is_not_there_stores_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: cuda"):
        begin(tmp_path, "a", config(device="cuda"))
    assert find_row(tmp_path, "a") is None


def test_a_run_begins_with_a_warning_where_mlflow_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr(logging.getLogger("agent_r1"), "propagate", True)
    with caplog.at_level("WARNING", "agent_r1.surroundings"):
        begin(tmp_path, "a", config())
    assert "MLFLOW_TRACKING_URI) does not answer" in caplog.text
    assert find_row(tmp_path, "a") is not None


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(bytes(data))


def weights(context: RunContext, iteration: int) -> Path:
    return context.checkpoint(iteration) / "policy" / "model.safetensors"


def test_a_flipped_byte_in_the_last_checkpoint_goes_back_and_removes_it(tmp_path: Path) -> None:
    context = computed(tmp_path, "a", 3)
    flip(weights(context, 3))
    assert rewind(context) == "checkpoint 3 is missing or damaged: going on from 2"
    assert done(context)[-1] == (2, "publish")
    assert checkpoints.finished(context.checkpoints) == [0, 1, 2]


def test_what_a_kill_left_between_the_checkpoints_goes(tmp_path: Path) -> None:
    context = computed(tmp_path, "a", 1)
    for name in (".tmp-00000", ".old-00001"):
        (context.checkpoints / name / "policy").mkdir(parents=True)
    assert rewind(context) is None
    assert sorted(path.name for path in context.checkpoints.iterdir()) == ["00000", "00001"]


def test_a_flipped_byte_in_the_reference_says_what_to_do(tmp_path: Path) -> None:
    context = computed(tmp_path, "a", 2)
    flip(weights(context, 0))
    with pytest.raises(CheckpointError, match=r"restore .*00000, or do .*agent-r1 resume a --from-iteration 0"):
        rewind(context)
    resume(tmp_path, "a", from_iteration=0)
    assert rewind(context) is None
    assert checkpoints.finished(context.checkpoints) == []


def test_iterations_that_are_forgotten_leave_no_checkpoint_to_start_from(tmp_path: Path) -> None:
    computed(tmp_path, "a", 3)
    resume(tmp_path, "a", from_iteration=2)
    with pytest.raises(RunError, match="a keeps 0, 1"):
        begin(tmp_path, "b", config(), "a@3")


def test_iterations_that_are_forgotten_are_discarded_in_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = computed(tmp_path, "a", 2)
    discarded: list[str] = []

    class Broken:
        def __init__(self, *_: object) -> None: ...

        def discard(self, run_id: str) -> None:
            discarded.append(run_id)
            raise StoreError("MLflow is broken")

    monkeypatch.setattr("storage.tracking.Tracker", Broken)
    for forget in (lambda: resume(tmp_path, "a", from_iteration=2), lambda: rewind(context)):
        with context.store.write() as con:
            runs.set_mlflow_run_id(con, "a", "shown")
        forget()
        assert stored_row(tmp_path, "a").mlflow_run_id is None
        flip(weights(context, max(checkpoints.finished(context.checkpoints))))
    assert discarded == ["shown", "shown"]


def test_fewer_iterations_than_are_done_change_nothing(tmp_path: Path) -> None:
    computed(tmp_path, "a", 2)
    begun = begin(tmp_path, "a", config(iterations=1))
    assert begun.lines == ["run a: goes on", "run a: 2 iterations are done already, 1 are asked for"]
    assert begun.context.config.iterations == stored_row(tmp_path, "a").config["iterations"] == 2


def test_reading_commands_make_no_home(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        find_home(tmp_path / "none")
    assert not (tmp_path / "none").exists()
