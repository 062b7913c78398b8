"""The command `chat`: questions in, transcripts out, in the world of the run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from whole_runs import SMALL, Scripted

from flows.cli import main
from flows.home import stored_context
from storage import questions

Captured = pytest.CaptureFixture[str]
CALL = '<tool_call>\n{"name": "lookup", "arguments": {"entity": "Nobody", "relation": "spouse"}}\n</tool_call>'


@pytest.fixture
def home(whole: type[Scripted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Path:
    """A home with a run `small`, whose policy now calls a tool and then answers in red."""
    from tasks import answer

    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))
    assert main(["train", str(tmp_path / "small.yaml"), "--home", str(tmp_path / "home")]) == 0
    monkeypatch.setattr(answer, "EmbeddedSampler", Scripted)
    whole.script = (CALL, "<answer>\x1b[31mred</answer>")
    capsys.readouterr()
    return tmp_path / "home"


def test_a_question_s_transcript_has_calls_results_and_no_score_where_no_gold_is_known(
    home: Path, capsys: Captured
) -> None:
    assert main(["chat", "small", "--home", str(home), "--json", "--question", "Who is it?"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    said = json.loads(line)
    assert (said["question"], said["gold"], said["exact_match"], said["ending"]) == ("Who is it?", [], None, "answered")
    first, second = said["turns"]
    assert first["calls"] == [
        {
            "name": "lookup",
            "arguments": {"entity": "Nobody", "relation": "spouse"},
            "ok": False,
            "result": "nothing found",
        }
    ]
    assert first["observation"] == "nothing found"
    assert len(second["action_ids"]) == len(second["action_logprobs"])


def test_a_question_of_the_split_is_scored_and_lines_are_questions(
    home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = stored_context(home, "small")
    with context.store.read() as con:
        ids = (context.data / "validation" / "questions.txt").read_text().split()
        asked = questions.load(con, ids)[0]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{asked.text.upper()}\n\n/again\n/example\n"))
    assert main(["chat", "small", "--home", str(home), "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["gold"] for each in said[:2]] == [list(asked.answers)] * 2
    assert [each["exact_match"] for each in said] == [0.0, 0.0, 0.0]


def test_a_piped_line_may_hold_bytes_that_are_no_text(
    home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b"\xff who?\n"), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", piped)
    assert main(["chat", "small", "--home", str(home), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["question"] == "\ufffd who?"


def test_what_is_shown_cannot_steer_the_terminal(home: Path, capsys: Captured) -> None:
    assert main(["chat", "small", "--home", str(home), "--question", "Who?"]) == 0
    shown = capsys.readouterr().out
    assert 'calling lookup {"entity": "Nobody", "relation": "spouse"} ...' in shown
    assert "nothing found" in shown
    assert "\x1b" not in shown
    assert "(answered, 2 turns, 1 calls)" in shown


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["nothing"], "nothing: no such run"),
        (["small", "--split", "tset"], "--split tset: expected train, validation or test"),
        (["small", "--temperature", "-1"], "--temperature -1: expected 0"),
        (["small", "--set", "rollout.max_turn=3"], "unknown key 'rollout.max_turn'"),
    ],
)
def test_wrong_options_are_one_line(home: Path, options: list[str], complaint: str, capsys: Captured) -> None:
    assert main(["chat", *options, "--question", "Who?", "--home", str(home)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_command_that_is_none_is_no_question(home: Path, capsys: Captured) -> None:
    assert main(["chat", "small", "--home", str(home), "--question", "/help"]) == 0
    assert "/help: expected a question, /example" in capsys.readouterr().out
