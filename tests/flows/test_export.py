"""export: a folder that plain transformers loads and that says the same; trajectories that pandas reads."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
import torch
import whole_runs
from transformers import AutoModelForCausalLM, AutoTokenizer
from whole_runs import SMALL, Scripted

from agent_r1.config import parse
from flows.cli import main
from flows.evaluation import resolve
from flows.home import stored_context
from flows.session import run_training
from flows.start import begin
from storage import checkpoints


@pytest.fixture
def home(whole: type[Scripted], tmp_path: Path) -> Path:
    whole.script = ('<tool_call>\n{"name": "lookup", "arguments": {"entity": "x", "relation": "y"}}\n</tool_call>',
                    "<answer>none</answer>")  # fmt: skip
    home = tmp_path / "home"
    config = parse(whole_runs.merged(SMALL), "test")
    run_training(home, "r", lambda: begin(home, "r", config), lambda _line: None)
    return home


def test_an_exported_policy_is_a_plain_model_and_its_trajectories_are_as_sampled(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", "r@1", str(out), "--trajectories", "--home", str(home)]) == 0
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    kept = AutoModelForCausalLM.from_pretrained(home / "runs/r/checkpoints/00001/policy")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), kept.parameters(), strict=True))
    assert not list(out.rglob("*value_head*")) + list(out.rglob("*.pt"))
    rows = pandas.read_parquet(out / "trajectories" / "train")
    assert len(rows) == 6
    row = rows.iloc[0]
    assert [each["role"] for each in row["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert row["messages"][1]["tool_calls"][0]["name"] == "lookup"
    assert len(row["token_ids"]) == len(row["action_mask"]) == len(row["rewards"]) == len(row["advantages"])
    assert tokenizer.decode(row["token_ids"][row["action_mask"]]).count("<|im_end|>") == 2
    asked = resolve(home, str(out), parse({}, "test"))
    assert (asked.policy, asked.config) == (str(out), stored_context(home, "r").config)
    assert "config_name: train" in (out / "README.md").read_text()
    assert main(["export", "r", str(out), "--home", str(home)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_not_exported(home: Path, tmp_path: Path) -> None:
    path = home / "runs/r/checkpoints/00001" / checkpoints.WEIGHTS
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert main(["export", "r@1", str(tmp_path / "out"), "--home", str(home)]) == 1
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_written_is_said_in_a_line_and_leaves_no_draft(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flows.export.fsync_file", full)
    assert main(["export", "r@1", str(tmp_path / "out"), "--home", str(home)]) == 2
    said = capsys.readouterr().err
    assert "No space left on device; name another folder" in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_an_export_goes_where_a_link_leads(home: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    assert main(["export", "r@1", str(tmp_path / "out"), "--home", str(home)]) == 0
    assert (tmp_path / "disk" / "model.safetensors").is_file()


def test_nothing_is_exported_to_where_gc_would_remove_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "r@1", str(home / "runs" / "out"), "--home", str(home)]) == 2
    assert "which gc sweeps" in capsys.readouterr().err
    assert main(["export", "r@²", str(tmp_path / "out"), "--home", str(home)]) == 1
    assert "no such checkpoint" in capsys.readouterr().err
