"""What `evaluate` means by its target, and that it answers for no damaged checkpoint."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes import config

from agent_r1.errors import CheckpointError, ConfigError
from flows.evaluation import resolve
from flows.start import begin
from storage import checkpoints, metrics
from tasks.context import RunContext


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    """A run `a` with one evaluated checkpoint."""
    context = begin(tmp_path, "a", config()).context

    def write(folder: Path) -> None:
        (folder / "policy").mkdir()
        (folder / "policy" / "config.json").write_text("{}")
        (folder / "policy" / "model.safetensors").write_text("weights")

    checkpoints.publish(context.checkpoint(1), write)
    with context.store.write() as con:
        metrics.save(con, "a", 1, "evaluate", {context.config.evaluation.metric: 0.5}, datetime.now(UTC))
    return context


def test_a_run_is_its_best_checkpoint_and_a_folder_brings_its_configuration(context: RunContext) -> None:
    folder = context.checkpoint(1)
    found = resolve(context.home, "a", config(seed=9))
    assert (found.policy, found.name, found.config) == (str(folder / "policy"), "a@1", context.config)
    for given in (folder, folder / "policy"):
        found = resolve(context.home, str(given), config(seed=9))
        assert (found.policy, found.config) == (str(folder / "policy"), context.config)


def test_a_damaged_checkpoint_is_not_evaluated(context: RunContext) -> None:
    folder = context.checkpoint(1)
    (folder / "policy" / "model.safetensors").write_text("Weights")
    for target in ("a", str(folder), str(folder / "policy")):
        with pytest.raises(CheckpointError, match=r"model.safetensors: damaged"):
            resolve(context.home, target, config())


def test_a_model_folder_without_a_manifest_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert resolve(tmp_path, str(tmp_path / "model"), config()).policy == str(tmp_path / "model")


def test_a_name_of_nothing_fails_at_once_and_lists_the_runs(context: RunContext) -> None:
    with pytest.raises(ConfigError, match=r"nope: no such run in .* \(runs are: a\)"):
        resolve(context.home, "nope", config())
    assert resolve(context.home, "owner/name", config()).policy == "owner/name"
    assert resolve(context.home, "tiny", config()).policy == "tiny"


def test_looking_for_a_target_makes_no_home(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="runs are: none"):
        resolve(tmp_path / "none", "nope", config())
    assert list(tmp_path.iterdir()) == []
