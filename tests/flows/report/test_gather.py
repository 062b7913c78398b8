"""What a report says of runs of every kind; pages of whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from report_home import AT, decode, make
from whole_runs import SMALL, Scripted, merged

from agent_r1.errors import RunError
from agent_r1.questions.records import Json
from flows import reports
from flows.cli import main
from flows.home import EVALUATES, TRAJECTORIES_OF, stored_context
from flows.report.gather import gather
from storage import runs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("home"))


@pytest.fixture
def home(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that keeps no tokenizer but has one."""
    monkeypatch.setattr(reports, "decoder", lambda *_: decode)
    return made


def test_the_lead_has_the_first_the_last_and_the_best_value(home: Path) -> None:
    found = gather(home, "a")
    expected = (
        "3 of 2 iterations: sampled exact match on validation from 0.000 at iteration 0 to 0.750 at 3; best 0.750 at 3."
    )
    assert found.lead.endswith(expected)
    assert (found.sample.shown, found.sample.stored) == (22, 22)


def test_curves_are_those_with_values_and_gaps_stay_gaps(home: Path) -> None:
    charts = {chart.spec.title: chart for chart in gather(home, "a").charts}
    assert list(charts) == ["Exact match on validation", "Reward of a trajectory", "KL of the update", "Time by stage"]
    assert [line.name for line in charts["Exact match on validation"].lines] == ["sampled", "greedy"]
    assert charts["KL of the update"].lines[0].points == {1: 0.01, 3: 0.01}


def test_other_seeds_of_the_variant_are_drawn_and_no_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "decoder", lambda *_: decode)
    for name, variant, seed in (("a", "dense", 0), ("b", "dense", 1), ("c", "outcome", 0)):
        tags: dict[str, Json] = {"experiment": "e", "variant": variant, "seed": str(seed)}
        make(tmp_path, name, 2, seed=seed, tracking={"tags": tags})
    found = gather(tmp_path, "a")
    assert [len(line.seeds) for line in found.charts[0].lines] == [1, 1]
    assert found.charts[0].lines[0].seeds[0] == {0: 0.0, 1: 0.25, 2: 0.5}
    assert found.remarks == ["Thin lines and bands are other seeds of the same variant: b."]


def test_what_another_run_sampled_counts_as_priced_and_not_as_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "decoder", lambda *_: decode)
    home = make(tmp_path)
    with stored_context(home, "a").store.write() as con:
        runs.add_note(con, "a", TRAJECTORIES_OF, None, "a", AT)
    names = [figure.name for figure in gather(home, "a").figures]
    assert "trajectories priced anew" in names
    assert "trajectories trained on" not in names


def test_a_run_without_anything_and_one_that_only_evaluates_have_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = make(tmp_path, iterations=-1)
    found = gather(home, "a")
    assert (found.lead, found.charts, found.sample.shown) == ("Nothing is measured yet.", [], 0)
    with stored_context(home, "a").store.write() as con:
        runs.add_note(con, "a", EVALUATES, None, "b@3 by rag", AT)
    assert gather(home, "a").lead == "Answers of b@3 by rag: nothing is trained in this run."
    assert main(["report", "a", "--home", str(home), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectories"] == 0


def test_without_a_tokenizer_tokens_are_numbers_and_the_page_says_so(made: Path) -> None:
    found = gather(made, "a")
    texts: Any = found.sample.packed["texts"]
    assert "‹99›" in texts
    assert "Tokens are shown as numbers: run 'a' keeps no tokenizer" in found.remarks[0]


def test_the_command_writes_where_it_is_told_and_refuses_a_folder(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "a", "--home", str(home)]) == 0
    assert (home / "runs" / "a" / "report.html").is_file()
    out = tmp_path / "new" / "page.html"
    assert main(["report", "a", "--home", str(home), "--out", str(out), "--trajectories", "5"]) == 0
    assert "5 of 22 trajectories" in capsys.readouterr().out
    assert main(["report", "a", "--home", str(home), "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main(["report", "b", "--home", str(home)]) == 1
    with pytest.raises(RunError, match="no run 'b'"):
        gather(home, "b")


@pytest.mark.parametrize(
    "changes", [{}, pytest.param({"tools": [], "model": {"lora": {"rank": 2}}}, marks=pytest.mark.slow)]
)
def test_whole_runs_have_a_page_with_their_own_tokens(
    whole: type[Scripted], tmp_path: Path, changes: dict[str, Json], capsys: pytest.CaptureFixture[str]
) -> None:
    whole.script = ("<answer>none 語</answer>",)
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(merged(SMALL, changes)))
    home = tmp_path / "home"
    assert main(["train", str(config), "--home", str(home)]) == 0
    assert "agent-r1 report small" in capsys.readouterr().out
    found = gather(home, "small")
    packed: Any = found.sample.packed
    texts = packed["texts"]
    for one in packed["trajectories"]:
        (turn,) = one["t"]
        said = "".join(texts[place] for place in turn["a"])
        assert said == "<answer>none 語</answer><|im_end|>"
        assert ("v" in turn) is (one["p"] == "train")
    if not changes:
        assert (
            main(["reannotate", "small", "--name", "dear", "--set", "rewards.unanswered=-0.5", "--home", str(home)])
            == 0
        )
        assert gather(home, "dear").lead.startswith("Trajectories of small at other prices")
