"""Wrong uses of the command line, one a row: the exit code, and the one line that names the cause and the next step."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from agent_r1.config import parse
from agent_r1.questions.records import Json
from flows import installation
from flows.cli import main
from flows.home import EVALUATES, TRAJECTORIES_OF
from flows.locks import run_lock
from storage import checkpoints, runs, stages
from storage.database import Store
from storage.runs import RunRow
from storage.stages import StageRow
from tasks.context import RunContext

NOW = datetime(2026, 12, 1, tzinfo=UTC)
TINY: dict[str, Json] = {
    "iterations": 1,
    "model": {"path": "tiny"},
    "rollout": {"attempts": 1},
    "store": {"lock_wait": 0.0},
}


@dataclass(frozen=True)
class Wrong:
    """What is typed, and what comes of it. Words of `says` have to be in the line, in that order."""

    typed: str
    code: int
    says: tuple[str, ...]


def wrong(typed: str, code: int, *says: str) -> Wrong:
    return Wrong(typed, code, says)


TABLE = [
    # What is typed
    wrong("trian", 2, "No such command 'trian'", "Did you mean 'train'"),
    wrong("train --iteratons 3", 2, "No such option: --iteratons", "--iterations"),
    wrong("train --iterations many", 2, "--iterations", "valid integer"),
    wrong("resume", 2, "Missing argument 'RUN'", "--help"),
    wrong("train small.yaml extra", 2, "unexpected extra argument", "extra"),
    wrong("train --quiet --json-lines", 2, "--quiet and --json-lines", "one of them"),
    wrong("doctor done --data q.jsonl", 2, "a run or --data, not both"),
    wrong("doctor --format csv", 2, "--format", "--data"),
    # Configurations
    wrong("train quikstart", 2, "quikstart", "those are", "did you mean 'quickstart'"),
    wrong("train broken.yaml", 2, "broken.yaml", "not YAML", "line 3"),
    wrong("train typo.yaml", 2, "typo.yaml", "unknown key 'ppo.epochz'", "did you mean 'ppo.epochs'"),
    wrong("train twice.yaml", 2, "twice.yaml", "'seed' stands twice", "line 2"),
    wrong("train list.yaml", 2, "list.yaml", "expected keys and values, found list"),
    wrong("train empty-folder", 2, "empty-folder", "no such file"),
    wrong("train small.yaml --set ppo.epochs=two", 2, "ppo.epochs", "integer", "'two'"),
    wrong("train small.yaml --set ppo.epochs", 2, "--set 'ppo.epochs'", "expected key.sub=value"),
    wrong("train small.yaml --set seed.x=1", 2, "seed", "valid integer"),
    wrong("train small.yaml --iterations -1", 2, "iterations", "greater than or equal to 0", "-1"),
    wrong("train small.yaml --set threads=0", 2, "threads", "greater than or equal to 1"),
    wrong(
        "train small.yaml --set advantages.estimator=grpo --set rollout.attempts=1",
        2,
        "advantages.estimator",
        "rollout.attempts is 1",
    ),
    wrong("train small.yaml --set tools=[serch]", 2, "unknown tool 'serch'", "search", "module:name"),
    wrong("train small.yaml --set tools=[lookup,my_tools:price]", 2, "my_tools:price", "my_tools"),
    wrong("train small.yaml --set tools=[lookup,raises:price]", 2, "raises:price", "price of nothing"),
    # Surroundings
    wrong("train hotpotqa-smollm2", 2, "data.path"),
    wrong("train hotpotqa-smollm2 --set data.path=gone.json", 2, "data.path: gone.json", "no such file"),
    wrong("train small.yaml --set device=cuda", 2, "device: cuda is not available", "device=cpu"),
    wrong("train small.yaml --set device=cuba", 2, "device", "cpu", "'cuba'"),
    wrong(
        "train small.yaml --set rollout.engine=vllm --set rollout.vllm.python=/none/python",
        2,
        "rollout.vllm.python",
        "/none/python",
        "make install-vllm",
    ),
    wrong("train small.yaml --set model.path=./no/model", 2, "model.path: ./no/model: no such folder", "OWNER/NAME"),
    wrong("train small.yaml --set search.url=http://127.0.0.1:9/ --set tools=[search]", 2, "search.url"),
    # Homes
    wrong("runs --home nowhere", 2, "nowhere", "does not exist", "--home names another"),
    wrong("show done --home small.yaml", 2, "small.yaml", "is no folder"),
    wrong("train small.yaml --home small.yaml", 2, "small.yaml", "regular file"),
    wrong("train small.yaml --home /proc/home", 2, "/proc/home", "cannot be made"),
    wrong("train small.yaml --home a?b", 2, "a?b", "expected a path without"),
    # Runs
    wrong("train small.yaml --run a/b", 2, "run name 'a/b'", "expected letters, digits"),
    wrong("show dome", 1, "no run 'dome'", "runs are: answers, copied, done", "did you mean 'done'"),
    wrong("resume nope", 1, "no run 'nope'", "runs are: answers, copied, done"),
    wrong("resume answers", 1, "answers", "cannot be trained"),
    wrong("resume copied", 1, "copied", "cannot be trained", "agent-r1 train --run NEW --from done@0"),
    wrong("resume done --from-iteration 9", 1, "--from-iteration 9", "checkpoint 8", "kept are: 0"),
    wrong("resume done --from-iteration -1", 2, "--from-iteration -1", "0 or more"),
    wrong("train small.yaml --run new --from done@7", 1, "--from done@7", "no such checkpoint", "done keeps 0"),
    wrong("train small.yaml --run new --from done@x", 2, "--from done@x", "RUN@ITERATION"),
    wrong("train small.yaml --run new --from new", 2, "--from new", "resume --from-iteration"),
    wrong("train small.yaml --run new --from dome", 1, "no run 'dome'", "did you mean 'done'"),
    wrong("train small.yaml --run done --set seed=5", 1, "done", "seed is 0 there and 5 here", "Use another name"),
    wrong("compare done", 2, "two or more different runs"),
    wrong("compare done nope", 1, "no run 'nope'", "runs are"),
    wrong("show done --iteration 7", 1, "iteration 7"),
    wrong("show done --trajectory nothing", 1, "nothing"),
    wrong("reannotate done --name new --set ppo.epochs=2", 2, "ppo.epochs", "rewards"),
    wrong("reannotate done --name done", 2, "--name done: expected the name of another run"),
    # What is evaluated, experiments, data
    wrong("evaluate nothing", 2, "nothing", "runs are: answers, copied, done", "no such folder", "OWNER/NAME"),
    wrong("evaluate ./nothing", 2, "./nothing", "no such folder"),
    wrong("evaluate empty-folder", 1, "empty-folder", "no config.json"),
    wrong("evaluate done", 1, "done", "eval/sampled/exact_match"),
    wrong("evaluate done --method cot", 2, "--method cot", "expected", "react"),
    wrong("evaluate done --split dev", 2, "--split dev", "expected train, validation or test"),
    wrong("evaluate done --questions 0", 2, "--questions", "greater than or equal to 1"),
    wrong("experiment four-hop", 2, "four-hop", "did you mean 'four-hops'"),
    wrong("experiment four-hops --only dens", 2, "dens", "dense"),
    wrong("experiment four-hops --seed 99", 2, "99"),
    wrong("doctor --data gone.jsonl", 1, "gone.jsonl", "No such file"),
    wrong("doctor --data empty.jsonl", 1, "empty.jsonl", "empty"),
    wrong("doctor --data broken.jsonl", 1, "broken.jsonl", "line 2"),
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that are right and wrong, and a home with three runs: one trained, one copied, answers."""
    folder = tmp_path_factory.mktemp("wrong")
    for name, text in {
        "small.yaml": json.dumps(TINY),
        "broken.yaml": "seed: 1\nppo: [1,\n",
        "typo.yaml": "ppo: {epochz: 2}\n",
        "twice.yaml": "seed: 1\nseed: 2\n",
        "list.yaml": "- 1\n",
        "raises.py": "raise ValueError('price of nothing')\n",
        "q.jsonl": "{}\n",
        "empty.jsonl": "",
        "broken.jsonl": '{"question": "q", "answer": "a"}\n{"question": \n',
    }.items():
        (folder / name).write_text(text)
    (folder / "empty-folder").mkdir()
    config = parse(TINY, "test")
    notes = {"done": [], "copied": [(TRAJECTORIES_OF, "done")], "answers": [(EVALUATES, "done@0 by rag")]}
    with Store(folder / "home" / "store.duckdb").write() as con:
        for run, noted in notes.items():
            row = RunRow(
                run=run, config=config.model_dump(mode="json"), identity=config.identity, seed=0, code_version="1",
                library_versions={}, status="finished", created_at=NOW,
                notes=[{"what": what, "after": after} for what, after in noted],
            )  # fmt: skip
            runs.insert(con, row)
    context = RunContext(folder / "home", "done", config)
    made = checkpoints.publish(context.checkpoint(0), _write)
    files: dict[str, Json] = {context.name(context.checkpoint(0)): made.digest}
    row = StageRow(
        run="done", iteration=0, stage="warm_start", receipt={"files": files}, input_hash="",
        started_at=NOW, finished_at=NOW, pid=1, code_version="1", library_versions={},
    )  # fmt: skip
    with context.store.write() as con:
        stages.record(con, row)
    return folder


def _write(draft: Path) -> None:
    (draft / "trainer.pt").write_text("weights")


@pytest.fixture
def place(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which the command is given."""
    folder = tmp_path / "here"
    shutil.copytree(template, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("AGENT_R1_HOME", "home")
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL", "AGENT_R1_VLLM_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(installation, "PATIENCE", 0.0)
    return folder


@pytest.fixture
def complains(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Wrong], None]:
    """Types it, and looks at what came of it."""
    del place

    def check(each: Wrong) -> None:
        code = main(each.typed.split())
        captured = capsys.readouterr()
        assert captured.err.startswith("agent-r1: "), captured.err
        assert captured.err.count("\n") == 1, captured.err
        assert captured.out == "" or each.code == 1, "work had begun"
        after = captured.err
        for words in each.says:
            _before, found, after = after.partition(words)
            assert found, f"{words!r} is not in, or not behind what comes before: {captured.err}"
        assert code == each.code, captured.err

    return check


def test_the_list_is_long_enough() -> None:
    assert len({each.typed for each in TABLE}) == len(TABLE) >= 30


@pytest.mark.parametrize("each", TABLE, ids=lambda each: each.typed)
def test_a_wrong_use_is_one_line_with_cause_and_next_step(each: Wrong, complains: Callable[[Wrong], None]) -> None:
    complains(each)


# What is wrong with more than the command line


def test_a_store_that_is_cut_off(place: Path, complains: Callable[[Wrong], None]) -> None:
    store = place / "home" / "store.duckdb"
    store.write_bytes(store.read_bytes()[:5000])
    complains(wrong("runs", 1, "store.duckdb", "damaged", "copy"))


def test_a_store_that_is_something_else(place: Path, complains: Callable[[Wrong], None]) -> None:
    (place / "home" / "store.duckdb").write_text("no database " * 999)
    complains(wrong("train small.yaml", 1, "store.duckdb", "damaged", "copy"))


def test_a_store_of_a_newer_version(place: Path, complains: Callable[[Wrong], None]) -> None:
    with Store(place / "home" / "store.duckdb").write() as con:
        con.execute("UPDATE store SET schema_version = 99")
    complains(wrong("runs", 1, "schema version 99 is newer", "update agent-r1"))


def test_a_database_of_somebody_else(place: Path, complains: Callable[[Wrong], None]) -> None:
    (place / "home" / "store.duckdb").unlink()
    with duckdb.connect(str(place / "home" / "store.duckdb")) as con:
        con.execute("CREATE TABLE x (y INTEGER)")
    complains(wrong("runs", 1, "not a store of Agent-R1"))


def test_a_run_that_another_process_works_on(place: Path, complains: Callable[[Wrong], None]) -> None:
    with run_lock(place / "home" / "runs" / "done"):
        complains(wrong("resume done", 1, "run 'done' is in use by process"))


def test_a_checkpoint_that_is_damaged(place: Path, complains: Callable[[Wrong], None]) -> None:
    checkpoint = place / "home" / "runs" / "done" / "checkpoints" / "00000"
    (checkpoint / "trainer.pt").write_text("Weights")
    complains(wrong(f"evaluate {checkpoint}", 1, "00000"))
    complains(wrong("resume done --from-iteration 1", 1, "checkpoint 0", "damaged"))


def test_a_prefect_server_that_is_dead(monkeypatch: pytest.MonkeyPatch, complains: Callable[[Wrong], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{port}/api")
    complains(wrong("train small.yaml --run new", 1, "PREFECT_API_URL", "does not answer", "unset"))


@pytest.mark.parametrize("uri", ["htp:/nonsense", "127.0.0.1:5000", "http:/127.0.0.1", "./mlruns"])
@pytest.mark.parametrize("typed", ["train small.yaml --run new", "resume done", "ui"])
def test_an_mlflow_that_is_no_address(
    uri: str, typed: str, place: Path, monkeypatch: pytest.MonkeyPatch, complains: Callable[[Wrong], None]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    complains(wrong(typed, 2, "MLFLOW_TRACKING_URI", uri, "expected http://HOST:PORT"))
    assert not (place / "home" / "runs" / "new" / "config.yaml").exists()
