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
