"""Which weights the stages sample with, asked of the stand-in for vLLM (tests/agent_r1/fake_vllm)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_r1 import model
from agent_r1.config import parse
from agent_r1.environments import Environments
from agent_r1.errors import CheckpointError
from agent_r1.questions.records import Json
from agent_r1.sampler import Sampler
from agent_r1.vllm_sampler import VllmSampler
from storage import checkpoints
from tasks import engine
from tasks.context import RunContext

FAKE = Path(__file__).parents[1] / "agent_r1" / "fake_vllm"
WORLD: dict[str, Json] = {"people": 8, "cities": 4, "countries": 3, "companies": 4, "films": 4, "warm_start_scale": 1}


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    monkeypatch.setenv("FAKE_VLLM", str(tmp_path / "misbehave"))
    yield
    engine.close()


def context(home: Path, rank: int) -> RunContext:
    """A run with checkpoints 0 and 1."""
    settings: dict[str, Json] = {
        "world": WORLD,
        "device": "cpu",
        "model": {"tiny": {"layers": 1, "width": 16, "heads": 1}, "lora": {"rank": rank}},
        "rollout": {"engine": "vllm", "vllm": {"python": sys.executable}},
    }
    run = RunContext(home, "r", parse(settings, "test"))
    policy = model.create(run.config)
    for iteration in (0, 1):
        made = model.add_adapters(policy, run.config) if rank and iteration == 0 else policy
        checkpoints.publish(run.checkpoint(iteration), made.save)
        policy = made
    return run


def sampled_by(sampler: Sampler, _: Environments) -> tuple[Json, Json, str]:
    """The folders of the weights and adapters that the server holds, and the name that it must give."""
    assert isinstance(sampler, VllmSampler)
    state = sampler.server._get("/state")
    adapter = state.get("adapter")
    return state["weights"], adapter["lora_path"] if isinstance(adapter, dict) else None, sampler.version


@pytest.mark.parametrize("iteration", [0, 1])
def test_the_weights_are_those_of_the_checkpoint(iteration: int, tmp_path: Path) -> None:
    run = context(tmp_path, rank=0)
    for wanted in (1 - iteration, iteration):
        (weights, adapter, version), digest = engine.sample_with(run, wanted, "train", sampled_by)
    assert weights == str(run.checkpoint(iteration) / "policy")
    assert adapter is None
    assert version == f"r@{iteration}:{digest}"
    assert digest == checkpoints.read_manifest(run.checkpoint(iteration)).weights


@pytest.mark.parametrize("iteration", [0, 1])
def test_with_lora_they_are_checkpoint_0_with_the_adapters_of_the_checkpoint(iteration: int, tmp_path: Path) -> None:
    run = context(tmp_path, rank=2)
    for wanted in (1 - iteration, iteration):
        (weights, adapter, _), _ = engine.sample_with(run, wanted, "train", sampled_by)
    assert weights == str(run.checkpoint(0) / "policy")
    assert adapter == str(run.checkpoint(iteration) / "adapter")


@pytest.mark.parametrize(("rank", "damaged"), [(0, 1), (2, 1), (2, 0)])
def test_a_damaged_checkpoint_is_not_sampled_with(rank: int, damaged: int, tmp_path: Path) -> None:
    run = context(tmp_path, rank)
    part = run.checkpoint(damaged) / "policy" / "model.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="damaged"):
        engine.sample_with(run, 1, "train", sampled_by)


def test_the_server_is_kept_between_stages_and_ended_with_the_run(tmp_path: Path) -> None:
    run = context(tmp_path, rank=0)

    def pid(sampler: Sampler, _: Environments) -> Json:
        assert isinstance(sampler, VllmSampler)
        return sampler.server._get("/state")["pid"]

    first = engine.sample_with(run, 0, "train", pid)[0]
    assert engine.sample_with(run, 1, "validation", pid)[0] == first
    engine.close()
    assert engine.sample_with(run, 1, "train", pid)[0] != first
