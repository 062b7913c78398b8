"""The command `evaluate` with several methods and files, and its answers kept as runs: a small random policy, a real
store, an MLflow that only remembers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from agent_r1 import methods
from agent_r1.config import parse
from agent_r1.errors import RunError
from agent_r1.model import create
from agent_r1.questions.records import Json
from flows.cli import main
from flows.home import stored_context, stored_row
from flows.start import begin, resume
from storage import metrics, questions, stages, trajectories
from storage.metrics import MetricRow
from tasks import evaluate, publish

HOPS = (2, 2, 3)
SMALL: dict[str, Json] = {
    "path": "tiny",
    "tiny": {"layers": 2, "width": 16, "heads": 2, "initializer": 0.3, "context": 1024},
}
Captured = pytest.CaptureFixture[str]


class Shown:
    """A tracker that remembers what each MLflow run shows."""

    def __init__(self) -> None:
        self.tags: dict[str, Mapping[str, str]] = {}
        self.keys: dict[str, set[str]] = {}
        self.data: list[tuple[str, str]] = []
        self.statuses: list[str] = []
        self.until: dict[str, int] = {}

    def ensure_run(
        self, run: str, _identity: str, _params: Mapping[str, Json], tags: Mapping[str, str], _known_id: str | None
    ) -> str:
        self.tags[run] = tags
        return run

    def set_status(self, _run_id: str, status: str) -> None:
        self.statuses.append(status)

    def log_metrics(self, run_id: str, rows: Iterable[MetricRow]) -> int:
        self.keys.setdefault(run_id, set()).update(row.key for row in rows)
        return 0

    def log_dataset(self, run_id: str, _name: str, _digest: str, source: str, *_: object) -> None:
        self.data.append((run_id, source))

    def shown(self, run_id: str) -> int:
        return self.until.get(run_id, -1)

    def set_shown(self, run_id: str, iteration: int) -> None:
        self.until[run_id] = iteration

    def log_text(self, *_: object) -> None: ...

    def log_table(self, *_: object) -> None: ...

    def log_traces(self, *_: object) -> None: ...

    def log_file(self, *_: object) -> None: ...

    def register(self, *_: object) -> None: ...


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What MLflow would show; and answers are short."""
    tracker = Shown()
    monkeypatch.setattr(publish, "_tracker", lambda _context: tracker)
    monkeypatch.setattr(methods, "NEW_TOKENS", 4)
    return tracker


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random policy that searches, beside its configuration."""
    folder = tmp_path_factory.mktemp("run")
    rollout: dict[str, Json] = {"max_turns": 2, "max_new_tokens": 4, "max_observation": 40}
    config = parse({"model": SMALL, "data": {"path": "q"}, "tools": ["search"], "rollout": rollout}, "test")
    (folder / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    checkpoint = folder / "checkpoints" / "00001"
    checkpoint.mkdir(parents=True)
    create(config).save(checkpoint)
    return checkpoint


def file(folder: Path, name: str = "first.jsonl", passages: bool = True) -> str:
    """MuSiQue questions of 2, 2 and 3 hops, the first of whose words find its passage."""
    lines = []
    for number, hops in enumerate(HOPS):
        about: Json = {"idx": 0, "title": "Anna", "paragraph_text": f"Anna was born in Rome {number}."}
        item = {"id": f"{hops}hop__{number}", "question": "Where was Anna born?", "answer": f"Rome {number}"}
        lines.append(json.dumps(item | {"paragraphs": [about] if passages else []}))
    path = folder / name
    path.write_text("\n".join(lines))
    return str(path)


def run(*arguments: str) -> None:
    assert main(["evaluate", *arguments]) == 0


def test_every_method_answers_every_data_set_in_one_table(policy: Path, tmp_path: Path, capsys: Captured) -> None:
    files = [f"--data={file(tmp_path)}", f"--data={file(tmp_path, 'second.jsonl')}"]
    run(str(policy), *files, "--method", "all", "--json", "--home", str(tmp_path / "none"))
    rows = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "none").exists()
    first = [(row["method"], row["hops"], row["questions"]) for row in rows if row["data"].endswith("first.jsonl")]
    assert first == [(method, hops, count) for method in methods.METHODS for hops, count in ((None, 3), (2, 2), (3, 1))]
    in_view = {row["method"]: row["metrics"]["eval/greedy/gold_in_view"] for row in rows if row["hops"] is None}
    assert in_view["direct"] == 0.0
    assert in_view["rag"] == pytest.approx(1 / 3)  # one passage is shown, of three that are as good


def test_a_table_has_a_row_a_data_set_hops_and_method_side_by_side(
    policy: Path, tmp_path: Path, capsys: Captured
) -> None:
    run(str(policy), "--data", file(tmp_path), "--method", "rag", "--method", "direct", "--home", str(tmp_path))
    out, err = capsys.readouterr()
    cells = [line.replace("│", " ").split() for line in out.splitlines() if line.startswith("│")]
    assert [row[:4] for row in cells] == [
        ["musique", "all", "direct", "3"],
        ["musique", "all", "rag", "3"],
        ["musique", "2", "direct", "2"],
        ["musique", "2", "rag", "2"],
        ["musique", "3", "direct", "1"],
        ["musique", "3", "rag", "1"],
    ]
    assert err.splitlines()[0].startswith("direct: 3 questions of ")


def test_one_method_on_one_file_is_its_list_of_metrics(policy: Path, tmp_path: Path, capsys: Captured) -> None:
    run(str(policy), "--data", file(tmp_path), "--questions", "2", "--json", "--home", str(tmp_path))
    found = json.loads(capsys.readouterr().out)
    assert {"eval/greedy/exact_match", "eval/sampled/f1/hops_2"} <= set(found)
    assert "eval/sampled/f1/hops_3" not in found  # the third question was not asked


def test_a_method_that_says_nothing_is_left_out_with_a_line(policy: Path, tmp_path: Path, capsys: Captured) -> None:
    data = file(tmp_path, passages=False)
    run(str(policy), "--data", data, "--method", "all", "--json", "--home", str(tmp_path))
    out, err = capsys.readouterr()
    assert f"rag: left out on {data}: there are no passages to search\n" in err
    assert {row["method"] for row in json.loads(out)} == {"direct", "react", "policy"}
    assert main(["evaluate", str(policy), "--data", data, "--method", "rag"]) == 2
    assert "--method rag" in capsys.readouterr().err


def test_a_corpus_of_its_own_can_be_searched_for_questions_without_passages(
    policy: Path, tmp_path: Path, capsys: Captured
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": 1, "title": "Anna", "text": "Anna was born in Rome 1."}) + "\n")
    data = file(tmp_path, passages=False)
    common = ["--data", data, "--method", "rag", "--json", "--home", str(tmp_path)]
    run(str(policy), *common, "--set", f"search.corpus={corpus}")
    assert json.loads(capsys.readouterr().out)["eval/greedy/gold_in_view"] == pytest.approx(1 / 3)
    assert main(["evaluate", str(policy), *common, "--set", "search.corpsu=x"]) == 2
    assert "corpsu" in capsys.readouterr().err


def test_a_file_that_fits_two_formats_is_read_as_the_one_that_is_set(
    policy: Path, tmp_path: Path, capsys: Captured
) -> None:
    """The complaint about such a file says to set data.format."""
    path = tmp_path / "both.jsonl"
    path.write_text(json.dumps({"question": "How many?", "answer": "Two.\n#### 2", "golden_answers": ["two"]}))
    command = ["evaluate", str(policy), "--data", str(path), "--method", "direct"]
    assert main(command) == 1
    assert "fits the formats flashrag, gsm8k" in capsys.readouterr().err
    assert main([*command, "--set", "data.format=gsm8k"]) == 0


def test_a_policy_of_the_built_in_world_answers_a_file_about_databases(tmp_path: Path) -> None:
    """With `--data`, what its configuration says of the world does not stand in the way."""
    folder = tmp_path / "run"
    config = parse({"model": SMALL, "tools": ["sql"], "warm_start": {"sloppy_steps": 5}}, "test")
    (folder / "checkpoints" / "00000").mkdir(parents=True)
    create(config).save(folder / "checkpoints" / "00000")
    (folder / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as shop:
        shop.execute("CREATE TABLE item (name TEXT)")
    data = tmp_path / "q.jsonl"
    line = {"question": "Which items?", "answers": ["SELECT name FROM item"], "metadata": {"database": "shop"}}
    data.write_text(json.dumps(line))
    checkpoint = str(folder / "checkpoints" / "00000")
    assert main(["evaluate", checkpoint, "--data", str(data), "--set", f"data.databases={tmp_path}"]) == 0


def test_answers_are_kept_as_a_run_of_each_method(policy: Path, tmp_path: Path, shown: Shown, capsys: Captured) -> None:
    home = tmp_path / "home"
    data = file(tmp_path)
    run(str(policy), "--data", data, "--method", "direct", "--method", "rag", "--run", "b", "--home", str(home))
    for name, method in (("b-direct", "direct"), ("b-rag", "rag")):
        row, context = stored_row(home, name), stored_context(home, name)
        assert row.status == "finished"
        assert row.notes[0]["after"] == f"{policy} by {method}"
        with context.store.read() as con:
            assert [each.stage for each in stages.of_run(con, name)] == ["prepare", "evaluate", "publish"]
            made = {purpose: trajectories.load(con, name, 0, purpose) for purpose in evaluate.MODES}
            keys = {each.key for each in metrics.load(con, name)}
            assert len(questions.load(con, [one.question_id for one in made["greedy"]])) == 3
        assert {purpose: len(rows) for purpose, rows in made.items()} == {"greedy": 3, "sampled": 3}
        assert {"eval/greedy/exact_match", "eval/sampled/gold_in_view"} <= keys
        assert {"eval/greedy/exact_match", "eval/sampled/gold_in_view"} <= shown.keys[name]
        assert shown.tags[name]["agent_r1.evaluates"] == f"{policy} by {method}"
    assert shown.data == [("b-direct", data), ("b-rag", data)]
    assert shown.statuses[-1] == "FINISHED"
    capsys.readouterr()
    for arguments in (["compare", "b-direct", "b-rag"], ["show", "b-rag"], ["runs"], ["doctor", "b-rag"]):
        assert main([*arguments, "--home", str(home)]) == 0
    assert f"evaluations 1: answers of {policy} by rag; alarms are about training" in capsys.readouterr().out
    assert main(["show", "b-rag", "--trajectory", "b-rag/0/greedy/3hop__2/0", "--home", str(home)]) == 0
    assert "Anna" in capsys.readouterr().out


def test_the_same_command_finds_what_was_kept(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    arguments = [str(policy), "--data", file(tmp_path), "--method", "rag", "--run", "b", "--home", str(tmp_path)]
    run(*arguments, "--json")
    first = capsys.readouterr()
    monkeypatch.setattr("tasks.answer.answer", None)  # nothing is answered again
    run(*arguments, "--json")
    again = capsys.readouterr()
    assert "run b: new, answers of" in first.err
    assert "run b: holds these answers already; nothing to do" in again.err
    assert json.loads(again.out) == json.loads(first.out)


def test_what_was_stopped_goes_on(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    arguments = [str(policy), "--data", file(tmp_path), "--run", "b", "--home", str(tmp_path)]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tasks.answer.answer", stop)
        assert main(["evaluate", *arguments]) == 130
    assert stored_row(tmp_path, "b").status == "stopped"
    assert capsys.readouterr().err.endswith("stopped; go on with: the same command\n")
    run(*arguments)
    assert stored_row(tmp_path, "b").status == "finished"
    assert "run b: goes on" in capsys.readouterr().err


def test_a_run_of_other_answers_is_refused(policy: Path, tmp_path: Path, capsys: Captured) -> None:
    common = ["evaluate", str(policy), "--home", str(tmp_path)]
    data, other = file(tmp_path), file(tmp_path, "second.jsonl")
    assert main([*common, "--data", data, "--run", "b"]) == 0
    begin(tmp_path, "trained", parse({}, "test"))
    for arguments, says in (
        (["--data", data, "--run", "b", "--method", "rag"], "run 'b' exists and holds the answers of"),
        (["--data", other, "--run", "b"], "data.path is"),
        (["--data", data, "--run", "b", "--questions", "2"], "holds answers to other questions"),
        (["--data", data, "--run", "trained"], "run 'trained' exists and is another kind of run"),
    ):
        capsys.readouterr()
        assert main([*common, *arguments]) == 1
        assert says in capsys.readouterr().err
    assert main([*common, "--data", data, "--data", other, "--run", "c"]) == 2
    assert "give --data once" in capsys.readouterr().err


def test_answers_over_another_corpus_are_refused(policy: Path, tmp_path: Path, capsys: Captured) -> None:
    corpus = tmp_path / "corpus.jsonl"
    command = ["--data", file(tmp_path, passages=False), "--set", f"search.corpus={corpus}", "--method", "rag"]
    for text, code in (("Anna was born in Rome.", 0), ("Anna was born in Bern.", 1)):
        corpus.write_text(json.dumps({"title": "Anna", "text": text}))
        assert main(["evaluate", str(policy), *command, "--run", "b", "--home", str(tmp_path)]) == code
    assert "run 'b' exists and holds answers to other questions" in capsys.readouterr().err


def test_a_run_of_answers_is_not_trained(policy: Path, tmp_path: Path) -> None:
    run(str(policy), "--data", file(tmp_path), "--run", "b", "--home", str(tmp_path))
    for attempt in (lambda: resume(tmp_path, "b"), lambda: begin(tmp_path, "b", stored_context(tmp_path, "b").config)):
        with pytest.raises(RunError, match="run 'b' cannot be trained: it holds the answers of"):
            attempt()


def test_questions_of_a_run_keep_their_split(policy: Path, tmp_path: Path) -> None:
    run(str(policy), "--data", file(tmp_path), "--split", "train", "--run", "a", "--home", str(tmp_path))
    run(str(policy), "--data", file(tmp_path), "--run", "b", "--home", str(tmp_path))
    with stored_context(tmp_path, "b").store.read() as con:
        assert con.execute("SELECT DISTINCT split FROM questions").fetchall() == [("train",)]
