"""`doctor --data`: what a question file was taken for, what is counted, and how a broken file is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_r1.questions import load
from flows.cli import main
from flows.data_report import NAMED, count, examine

Captured = pytest.CaptureFixture[str]
ITEMS: list[dict[str, Any]] = [
    {
        "id": "q1", "question": "Where was Ada born?", "answers": [*"abcde"], "hops": 2, "kind": "bridge",
        "passages": [{"id": "p1", "text": "One."}, {"id": "p2", "text": "Two."}], "evidence": ["p1", "elsewhere"],
    },
    {"id": "q2", "question": " where was  ADA born?", "hops": 2, "passages": [{"id": "p1", "text": "One."}]},
    {"id": "q3", "question": "x" * 300, "answer": "a", "answerable": False, "dataset": "mine"},
    {"id": "q4", "question": "Who?", "answer": "a", "note": "[red]"},
]  # fmt: skip


def written(folder: Path, items: list[dict[str, Any]]) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return path


def test_counts_are_of_the_whole_file(tmp_path: Path, capsys: Captured) -> None:
    path = written(tmp_path, ITEMS)
    assert main(["doctor", "--data", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first = found.pop("first")
    assert found == {
        "file": str(path), "container": "JSON lines", "format": "plain", "questions": 4, "without_answer": 2,
        "unanswerable": 1, "passages": 2, "evidence": 2, "evidence_elsewhere": 1, "repeated_texts": 1,
        "longest_text": 300,
        "by_dataset": [{"dataset": "plain", "questions": 3}, {"dataset": "mine", "questions": 1}],
        "by_hops": [{"hops": "2", "questions": 2}, {"hops": None, "questions": 2}],
        "by_kind": [{"kind": None, "questions": 3}, {"kind": "bridge", "questions": 1}],
    }  # fmt: skip
    assert [question["id"] for question in first] == ["q1", "q2", "q3"]
    assert first[0]["answers"] == ["a", "b", "c", "and 2 more"]
    assert (len(first[2]["text"]), first[2]["text"][-4:]) == (200, "x...")


def test_people_see_the_same_as_tables_and_brackets_stay_text(tmp_path: Path, capsys: Captured) -> None:
    items = [ITEMS[3] | {"question": "[bold]Who?"}]
    assert main(["doctor", "--data", str(written(tmp_path, items)), "--format", "plain"]) == 0
    shown = capsys.readouterr().out
    for line in (
        "format              plain",
        "questions           1",
        "by dataset",
        "[bold]Who?",
        "evidence elsewhere  0",
    ):
        assert line in shown


def test_many_kinds_are_summed_up(tmp_path: Path) -> None:
    items = [{"question": f"{number}?", "kind": f"k{number}"} for number in range(NAMED + 5)]
    path = written(tmp_path, items)
    assert len(count(load(path)).by["kind"]) == NAMED + 5
    rows = json.loads(examine(path, "auto").json_text())["by_kind"]
    assert (len(rows), rows[-1]) == (NAMED + 1, {"kind": "5 others", "questions": 5})


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--data", "{}/a.jsonl", "--format", "gsm8k"], 1, "a.jsonl: line 1 (id 'q1'): field answer: missing"),
        (["--data", "{}/a.jsonl", "--format", "squad"], 1, "unknown format 'squad'"),
        (["--data", "{}/none"], 1, "none: cannot be read: No such file"),
        (["--data", "{}"], 1, "cannot be read: Is a directory"),
        (["--format", "plain"], 2, "--format says how to read a file: name it with --data"),
        (["run", "--data", "{}/a.jsonl"], 2, "expected a run or --data, not both"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: Captured, options: list[str], code: int, told: str
) -> None:
    written(tmp_path, ITEMS)
    assert main(["doctor", *(option.replace("{}", str(tmp_path)) for option in options)]) == code
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_texts_of_a_file_do_not_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither escape sequences nor rich's markup."""
    path = tmp_path / "q.jsonl"
    odd = "\x1b[31mred \x1b]0;title\x07 [bold]x[/bold] [/nope] caf\u00e9 \u009b2J?"
    path.write_text(json.dumps({"question": odd, "answer": "\x1b[2J"}) + "\n")
    assert main(["doctor", "--data", str(path)]) == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u009b"} & set(out)
    assert "\ufffd[31mred" in out
    assert "[bold]x[/bold] [/nope] caf\u00e9" in out
