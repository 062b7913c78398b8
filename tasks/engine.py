"""The engine that samples for rollouts and evaluations: embedded, or the run's vLLM server, kept warm between stages.

What is sampled is left to the stages. The server is ended by `close`, and by itself as soon as this process is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from agent_r1.chat import Tokenizer, give_template, load_tokenizer
from agent_r1.config import Config
from agent_r1.environments import Environments
from agent_r1.errors import EngineError, EngineLostError
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.sampler import Sampler
from agent_r1.vllm_sampler import VllmSampler
from agent_r1.vllm_server import VllmServer, Weights
from storage import checkpoints
from tasks.data import open_split, sampling_policy
from tasks.stage import RunContext

log = logging.getLogger("agent_r1.engine")
RESTARTS = 2
LOG = "vllm.log"
T = TypeVar("T")

_kept: dict[Path, VllmServer] = {}


def sample_with(
    context: RunContext, iteration: int, split: str, make: Callable[[Sampler, Environments], T]
) -> tuple[T, str]:
    """What `make` samples from a checkpoint in the environment of a split, and the hash of the weights that sampled.

    Where our vLLM server dies or hangs, all of it again on a new one. EngineError where that does not help, or the
    server is not ours.
    """
    folder, config = context.checkpoint(iteration), context.config
    manifest = checkpoints.read_manifest(folder)
    if config.rollout.engine == "embedded":
        policy = sampling_policy(context, iteration)
        with open_split(context, split, policy.tokenizer) as environment:
            return make(EmbeddedSampler(policy), environment), manifest.weights
    weights = Weights(folder / "policy", f"{context.run}@{iteration}:{manifest.weights}")
    if config.model.lora.rank:
        base = context.checkpoint(0)
        _verify(base, checkpoints.read_manifest(base).digest)
        weights = replace(weights, folder=base / "policy", adapter=folder / "adapter")
    _verify(folder, manifest.digest)
    with open_split(context, split, _tokenizer(folder, manifest.digest, config.model.tool_format)) as environment:
        made = on_server(_server(context.folder, config), weights, lambda sampler: make(sampler, environment))
    return made, manifest.weights


def on_server(server: VllmServer, weights: Weights, make: Callable[[Sampler], T]) -> T:
    """What `make` samples on a vLLM server from weights; all of it again where the server is lost and ours."""
    for left in reversed(range(RESTARTS + 1)):
        try:
            server.load(weights)
            return make(VllmSampler(server, weights.version))
        except EngineLostError as error:
            server.close()
            if not server.ours:
                raise
            if not left:  # not lost any more, but broken: no use in trying it again
                raise EngineError(str(error)) from error
            log.warning("what vLLM was sampling is sampled again on a new server: %s", error)
    raise AssertionError("unreachable")


@contextmanager
def server_of(config: Config, log: Path) -> Iterator[VllmServer]:
    """A vLLM server for as long as the block runs, checked before anything is started."""
    server = VllmServer(config, log)
    server.check()
    try:
        yield server
    finally:
        server.close()


def check(config: Config) -> None:
    """ConfigError or EngineError where the engine of the configuration cannot be had."""
    if config.rollout.engine == "vllm":
        VllmServer(config, Path(LOG)).check()


def rest() -> None:
    """Let no server hold memory of a GPU that an update is about to need."""
    for server in _kept.values():
        server.rest()


def close() -> None:
    """End the servers of this process."""
    while _kept:
        _kept.popitem()[1].close()


def _server(folder: Path, config: Config) -> VllmServer:
    if folder not in _kept:
        close()  # one run at a time
        _kept[folder] = VllmServer(config, folder / LOG)
    return _kept[folder]


@lru_cache(maxsize=4)
def _verify(folder: Path, digest: str) -> None:
    """Once for each checkpoint; the digest is a part of the key: another one in the same place may be damaged."""
    del digest
    checkpoints.verify(folder)


@lru_cache(maxsize=1)
def _tokenizer(folder: Path, digest: str, tool_format: str) -> Tokenizer:
    del digest
    tokenizer = load_tokenizer(folder / "policy")
    give_template(tokenizer, tool_format)
    return tokenizer
