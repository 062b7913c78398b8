"""Runs and weights with a real vLLM: `make test-vllm` installs its CPU build and names it in $AGENT_R1_VLLM_PYTHON."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import torch
from test_kills import DRIVER, SMALL

from agent_r1.config import Config, parse
from agent_r1.model import Policy, add_adapters, create
from agent_r1.questions.records import Json
from agent_r1.sampler import Action, ActionRequest
from agent_r1.vllm_sampler import VllmSampler
from agent_r1.vllm_server import VllmServer, Weights
from benchmarks.likeness import left_over

PYTHON = os.environ.get("AGENT_R1_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="AGENT_R1_VLLM_PYTHON names no interpreter with vLLM: make test-vllm"),
]

END = 753  # of the tiny tokenizer: the end of a turn
SERVED = (
    *SMALL,
    "rollout.engine=vllm",
    f"rollout.vllm.python={PYTHON}",
    "rollout.vllm.cpu_cache_gib=1",
)


def engines() -> set[str]:
    """vLLM's cores and workers on this machine, which name nothing but themselves."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return {pid for pid, stat, args in rows if args.startswith("VLLM::") and not stat.startswith("Z")}


def wait_until_gone(home: Path, others: set[str]) -> None:
    """No living process names the home, and there are no other engines than before."""
    deadline = time.monotonic() + 15
    while (left_over(home) or engines() - others) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_over(home) == []
    assert engines() <= others


def ask(home: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        return con.execute(query).fetchall()


def test_an_iteration_that_was_killed_among_its_rollouts_is_resumed(tmp_path: Path) -> None:
    home, others = tmp_path / "home", engines()
    command = ["train", "--run", "r", "--home", str(home), *(f"--set={setting}" for setting in SERVED)]
    kill = [sys.executable, str(DRIVER), "rollout", "1", "1", "0.05", "--", *command]
    killed = subprocess.run(kill, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    wait_until_gone(home, others)
    shards = "SELECT shard, started_at, receipt FROM stages WHERE stage = 'rollout' AND iteration = 1 ORDER BY shard"
    shard = "trajectories.iteration = 1 AND purpose = 'train' AND shard = 0"
    turns = f"SELECT * FROM turns JOIN trajectories USING (trajectory_id) WHERE {shard} ORDER BY ALL"
    before, sampled = ask(home, shards), ask(home, turns)
    assert [row[0] for row in before] == [0]
    assert sampled

    resume = [sys.executable, "-m", "flows.cli", "resume", "r", "--home", str(home)]
    resumed = subprocess.run(resume, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    wait_until_gone(home, others)
    after = ask(home, shards)
    assert after[0] == before[0], "the finished shard was sampled again"
    assert ask(home, turns) == sampled
    assert [row[0] for row in after] == [0, 1, 2]
    made = (
        "SELECT receipt ->> 'weights' FROM stages WHERE stage IN ('warm_start', 'update') AND iteration < 2 "
        "ORDER BY iteration"
    )
    used = "SELECT DISTINCT ON (iteration) receipt ->> 'weights' FROM stages WHERE stage = 'rollout' ORDER BY iteration"
    assert ask(home, used) == ask(home, made)
    counted = "SELECT count(*), count(DISTINCT checkpoint) FROM trajectories WHERE purpose = 'train'"
    assert ask(home, counted) == [(48, 2)]
    gaps = ask(home, "SELECT value FROM metrics WHERE key = 'rollout/logprob_gap_mean' ORDER BY iteration")
    assert len(gaps) == 2
    assert all(isinstance(gap, float) and 0 < gap < 1e-4 for (gap,) in gaps)
    assert (home / "runs/r/checkpoints/00002/manifest.json").is_file()


def settings(dtype: str, seed: int = 0, rank: int = 0) -> Config:
    tiny: dict[str, Json] = {"layers": 4, "width": 256, "heads": 4, "initializer": 0.05}
    served: dict[str, Json] = {"python": PYTHON, "cpu_cache_gib": 1}
    return parse(
        {
            "seed": seed,
            "model": {"path": "tiny", "dtype": dtype, "tiny": tiny, "lora": {"rank": rank}},
            "rollout": {"engine": "vllm", "temperature": 0.8, "vllm": served},
        },
        "test",
    )


def two_turns(server: VllmServer, version: str) -> tuple[list[list[int]], list[list[bool]], list[list[float]]]:
    """Sixteen conversations of two actions each: tokens, which of them were sampled, log-probabilities."""
    session = VllmSampler(server, version).session(end_ids=(END,), temperature=0.8, greedy=False, max_new_tokens=24)
    prompts = [tuple(range(3, 9 + 2 * row)) for row in range(16)]
    between = tuple(range(40, 47))
    first = session.act([ActionRequest(row, prompt, 100 + row, restart=True) for row, prompt in enumerate(prompts)])
    second = session.act([ActionRequest(row, between, 200 + row) for row in range(16)])

    def laid_out(row: int, one: Action, two: Action) -> tuple[list[int], list[bool], list[float]]:
        given = [prompts[row], between]
        ids = [*given[0], *one.ids, *given[1], *two.ids]
        mask = [False] * len(given[0]) + [True] * len(one.ids) + [False] * len(given[1]) + [True] * len(two.ids)
        return ids, mask, [*one.logprobs, *two.logprobs]

    rows = [laid_out(row, *both) for row, both in enumerate(zip(first, second, strict=True))]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def gap(policy: Policy, sampled: tuple[list[list[int]], list[list[bool]], list[list[float]]]) -> float:
    """How far the trainer's log-probabilities are from the server's on the same tokens, on average."""
    differences = []
    for ids, mask, logprobs in zip(*sampled, strict=True):
        with torch.no_grad():
            scores = policy.score(torch.tensor([ids]), torch.tensor([mask]), 0.8)
        differences += (scores.logprobs[0][torch.tensor(mask)] - torch.tensor(logprobs)).abs().tolist()
    return sum(differences) / len(differences)


def add_same_adapters(policy: Policy, like: Policy) -> Policy:
    """The policy with adapters of the same weights as the other's."""
    made = add_adapters(policy, settings("bfloat16", rank=4))
    with torch.no_grad():
        for weight, other in zip(made.trained, like.trained, strict=True):
            weight.copy_(other)
    return made


@pytest.mark.parametrize(
    ("dtype", "rank", "bound"), [("float32", 0, 1e-4), ("bfloat16", 0, 0.02), ("bfloat16", 4, 0.02)]
)
def test_trainer_and_server_agree_on_what_was_sampled_before_and_after_new_weights(
    dtype: str, rank: int, bound: float, tmp_path: Path
) -> None:
    """Other weights, or with adapters the same ones and other adapters."""
    old, new = create(settings(dtype)), create(settings(dtype, seed=0 if rank else 1))
    if rank:
        new = add_adapters(new, settings(dtype, rank=rank))
        for number, weight in enumerate(new.trained):
            torch.nn.init.normal_(weight, std=0.03, generator=torch.Generator().manual_seed(number))
    for name, policy in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        policy.save(tmp_path / name)
    weights = Weights(tmp_path / "old/policy", "old")
    then = Weights(weights.folder, "new", tmp_path / "new/adapter") if rank else Weights(tmp_path / "new/policy", "new")
    server = VllmServer(settings(dtype, rank=rank), tmp_path / "vllm.log")
    try:
        if rank:  # adapters that change nothing yet
            (tmp_path / "first").mkdir()
            add_adapters(create(settings(dtype)), settings(dtype, rank=rank)).save(tmp_path / "first")
            weights = replace(weights, adapter=tmp_path / "first/adapter")
        server.load(weights)
        before = two_turns(server, "old")
        server.load(then)
        after = two_turns(server, "new")
        if rank:  # and the same adapters on another base, which is read in place
            other = create(settings(dtype, seed=1))
            (tmp_path / "other").mkdir()
            other.save(tmp_path / "other")
            server.load(Weights(tmp_path / "other/policy", "other", tmp_path / "new/adapter"))
            assert gap(add_same_adapters(other, new), two_turns(server, "other")) < bound
    finally:
        server.close()
    assert gap(old, before) < bound
    assert gap(new, after) < bound, gap(old, after)
    assert gap(old, after) > 5 * bound, "the same weights as before the update"
