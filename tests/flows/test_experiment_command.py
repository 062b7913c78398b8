"""`agent-r1 experiment` as a user gives it: fake stages, real files, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Fakes

from flows.cli import main

Install = Callable[[str], Fakes]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One seed of two variants, in a home of their own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "base.yaml").write_text("store: {lock_wait: 5.0}")
    (tmp_path / "x.yaml").write_text(
        "{base: base.yaml, set: {iterations: 2}, seeds: [0], last: 1, comparisons: [[dense, outcome]],"
        " variants: {dense: , outcome: {rewards: {evidence: 0}}}}"
    )
    return ["experiment", str(tmp_path / "x.yaml"), "--home", str(tmp_path / "home")]


def test_json_is_all_there_is_on_stdout(command: list[str], fakes: Install, capsys: Captured) -> None:
    fakes("")
    assert main([*command, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["experiment"], found["missing"]) == ("x", [])
    assert "run x-dense-s0: result written" in err


def test_results_may_lie_elsewhere_and_exactly_what_was_written_is_told(
    command: list[str], fakes: Install, tmp_path: Path, capsys: Captured
) -> None:
    fakes("")
    beside = tmp_path / "elsewhere"
    beside.mkdir()
    (beside / "notes.txt").write_text("mine")
    assert main([*command, "--results", str(beside / "results")]) == 0
    assert sorted(path.name for path in (beside / "results").iterdir()) == ["dense-s0.json", "outcome-s0.json"]
    written = f"written to {beside}: curves.png, summary.html, summary.json, summary.md"
    assert capsys.readouterr().out.splitlines()[-1] == written


def test_a_run_that_fails_is_exit_code_1_after_the_summary(
    command: list[str], fakes: Install, capsys: Captured
) -> None:
    fakes("update 2")
    assert main([*command, "--json", "--debug"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["missing"] == ["x-dense-s0", "x-outcome-s0"]
    last = err.splitlines()[-1]
    assert last.startswith("agent-r1: run x-dense-s0 failed: RuntimeError: update 2 fails; run x-outcome-s0 failed")
    assert "in _begin" in err, "the traceback of the run that failed"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--only", "grpo"], "--only grpo: there is dense, outcome"),
        (["--seed", "4"], "--seed 4: there is 0"),
        (["--results", "FILE/results"], "results FILE/results: lies at or below a regular file"),
    ],
)
def test_what_is_wrong_is_exit_code_2_before_any_run(
    command: list[str], fakes: Install, tmp_path: Path, capsys: Captured, more: list[str], problem: str
) -> None:
    made = fakes("")
    file = tmp_path / "file"
    file.write_text("")
    assert main([*command, *(one.replace("FILE", str(file)) for one in more)]) == 2
    assert made.begun == []
    assert problem.replace("FILE", str(file)) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [('{"experiment": "y"}', "of experiment 'y', not 'x'"), ("[]", "of experiment None"), ("{", "not the summary")],
)
def test_the_summary_of_another_experiment_is_not_replaced(
    command: list[str], fakes: Install, tmp_path: Path, capsys: Captured, text: str, problem: str
) -> None:
    made = fakes("")
    summary = tmp_path / "summary.json"
    summary.write_text(text)
    assert main([*command, "--results", str(tmp_path / "results")]) == 1
    assert made.begun == []
    assert f"{summary}: {problem}" in capsys.readouterr().err
    assert summary.read_text() == text
