"""Our side of a comparison, a process of its own: python -m benchmarks.our_side SUBJECT_FOLDER SETTINGS_JSON.

For each line on stdin it does one rollout or one update, as the settings say, and prints a line of JSON: seconds and
what was done in them. What is compared with what is left to pairs.py.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agent_r1 import model
from agent_r1.config import Config
from agent_r1.environments import open_environments
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.model import Policy
from agent_r1.ppo import make_learner, update
from agent_r1.questions.records import Json
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.sampler import Sampler
from agent_r1.vllm_sampler import VllmSampler
from agent_r1.vllm_server import Weights
from benchmarks.subjects import SUBJECTS, read_completions, read_questions
from tasks.engine import server_of

Measured = dict[str, float]


def main(place: Path, settings: dict[str, Json]) -> None:
    """Answer commands until stdin ends."""
    threads = settings["threads"]
    assert isinstance(threads, int)
    config = SUBJECTS[place.name].config(place, threads, critic=settings["what"] == "update_critic")
    policy = model.create(config)
    if settings["what"] == "rollout_vllm":
        with server_of(config, place / "vllm.log") as server:
            server.load(Weights(place / "policy", "benchmark"))
            answer(rollouts(VllmSampler(server, "benchmark"), policy, place, config))
    elif settings["what"] == "rollout":
        answer(rollouts(EmbeddedSampler(policy), policy, place, config))
    else:
        answer(updates(policy, place, config))


def answer(measure: Callable[[int], Measured]) -> None:
    """Measure once for each line of stdin."""
    report({"ready": True})
    for number, _ in enumerate(sys.stdin):
        report(measure(number))


def rollouts(sampler: Sampler, policy: Policy, place: Path, config: Config) -> Callable[[int], Measured]:
    """The trajectories of an iteration, whose number seeds them."""
    subject = SUBJECTS[place.name]
    asked = read_questions(place)[: subject.questions]
    attempts = [Attempt(question, number) for question in asked for number in range(subject.attempts)]

    def measure(iteration: int) -> Measured:
        origin = Origin("benchmark", iteration, "train", 0)
        with open_environments(config, place / "world.duckdb", [], policy.tokenizer) as environment:
            started, busy = time.perf_counter(), time.process_time()
            made = rollout(attempts, sampler, environment, config, origin)
            spent = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - busy}
        return {
            **spent,
            "trajectories": len(made),
            "turns": sum(len(each.turns) for each in made),
            "tokens": sum(each.action_tokens for each in made),
            "calls": sum(len(turn.calls) for each in made for turn in each.turns),
        }

    return measure


def updates(policy: Policy, place: Path, config: Config) -> Callable[[int], Measured]:
    """One optimizer step on the stored completions."""
    rows = read_completions(place)
    learner = make_learner(policy, config)
    reference = model.create(config) if config.ppo.kl_coefficient else None

    def measure(iteration: int) -> Measured:
        started, busy = time.perf_counter(), time.process_time()
        update(learner, reference, rows, config, iteration)
        return {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - busy,
            "trajectories": len(rows),
            "tokens": sum(len(row.token_ids) for row in rows),
            "action_tokens": sum(sum(row.action_mask) for row in rows),
        }

    return measure


def report(found: dict[str, float]) -> None:
    """One line of JSON, with the most memory that the process has held so far."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**found, "peak_mib": memory}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
