"""evaluate: a checkpoint on validation questions, greedy and sampled; and any model on any questions."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1 import model
from agent_r1.config import Config
from agent_r1.dataset import Split, of_file, splits
from agent_r1.environments import Environments, open_environments
from agent_r1.errors import ConfigError
from agent_r1.evaluation import evaluation_metrics
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.questions.records import Question
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.sampler import Sampler
from agent_r1.trajectory import GREEDY, Purpose, Trajectory
from agent_r1.vllm_server import Weights
from agent_r1.world.generate import write_database
from storage import trajectories
from tasks.corpus import finder_over
from tasks.data import load_questions, question_ids
from tasks.engine import LOG, on_server, sample_with, server_of
from tasks.stage import Connection, Receipt, RunContext, Work, run_stage

MODES: tuple[Purpose, ...] = ("greedy", "sampled")


@task(name="evaluate", task_run_name="evaluate {iteration}", cache_policy=NO_CACHE, persist_result=False)
def evaluate(context: RunContext, iteration: int, prepared: Receipt, checkpoint: Receipt) -> Receipt:
    """Receipt: how many questions were answered in each mode."""
    inputs = {"prepared": dict(prepared), "checkpoint": dict(checkpoint)}
    return run_stage(context, "evaluate", iteration, inputs, lambda: _evaluate(context, iteration))


def _evaluate(context: RunContext, iteration: int) -> Work:
    ids = question_ids(context, "validation")[: context.config.evaluation.questions]
    return answered(context, iteration, "validation", ids, MODES, "eval")


def answered(
    context: RunContext, iteration: int, split: str, ids: Sequence[str], purposes: Sequence[Purpose], group: str
) -> Work:
    """A checkpoint's answers to questions of a split, a trajectory for each purpose; metrics under `group`."""
    questions = load_questions(context, ids)
    made, _ = sample_with(
        context,
        iteration,
        split,
        lambda sampler, world: _answer(sampler, world, questions, context.config, context.run, iteration, purposes),
    )

    def save(con: Connection) -> None:
        for purpose, rows in made.items():
            trajectories.save(con, context.run, iteration, purpose, 0, rows)

    return Work({"questions": len(questions)}, save, _score(made, questions, group))


def evaluate_target(policy: str, config: Config, data: Path | None, split: str, home: Path) -> dict[str, float]:
    """Metrics of any model folder or hub id on a split of the configuration's questions, or on all of a file's.

    Of the home only the index of a corpus is used, which is made where it is not there.
    """
    chosen = _split(config, data, split)
    questions = {question.id: question for question in chosen.questions}
    asked = {"model": config.model.model_copy(update={"path": policy})}
    served = config.rollout.engine == "vllm"
    loaded = model.create(config.model_copy(update=asked | ({"device": "cpu"} if served else {})))
    with tempfile.TemporaryDirectory(prefix="agent-r1-") as folder:
        database = Path(folder) / "world.duckdb"
        if chosen.world is not None:
            write_database(chosen.world, database)
        found_in = finder_over(config.search, home, chosen.passages) if "search" in config.tools else []
        with open_environments(config, database, found_in, loaded.tokenizer) as environment:

            def answer(sampler: Sampler) -> dict[Purpose, list[Trajectory]]:
                return _answer(sampler, environment, questions, config, "evaluate", 0, MODES)

            if not served:
                return _score(answer(EmbeddedSampler(loaded)), questions)
            loaded.save(Path(folder))
            with server_of(config, Path(folder) / LOG) as server:
                return _score(on_server(server, Weights(Path(folder) / "policy", policy), answer), questions)


def _answer(
    sampler: Sampler,
    environment: Environments,
    questions: Mapping[str, Question],
    config: Config,
    run: str,
    iteration: int,
    purposes: Sequence[Purpose],
) -> dict[Purpose, list[Trajectory]]:
    """One trajectory for each question and purpose, a shard's size at a time."""
    made: dict[Purpose, list[Trajectory]] = {}
    attempts = [Attempt(question, 0) for question in questions.values()]
    for purpose in purposes:
        made[purpose] = []
        for start in range(0, len(attempts), config.rollout.shard_size):
            part = attempts[start : start + config.rollout.shard_size]
            origin = Origin(run, iteration, purpose, iteration)
            made[purpose] += rollout(part, sampler, environment, config, origin)
    return made


def _score(
    made: Mapping[Purpose, Sequence[Trajectory]], questions: Mapping[str, Question], group: str = "eval"
) -> dict[str, float]:
    """The metrics of a group, `<group>/greedy/...` and `<group>/sampled/...`."""
    metrics: dict[str, float] = {}
    for purpose, rows in made.items():
        metrics |= evaluation_metrics("greedy" if purpose in GREEDY else "sampled", rows, questions, group)
    return metrics


def _split(config: Config, data: Path | None, split: str) -> Split:
    if data is not None:
        if {"sql", "lookup"} & set(config.tools):
            raise ConfigError(f"--data: the tools {', '.join(config.tools)} need the built-in world's database")
        return of_file(split, data, unscorable=config.data.unscorable)
    found = {each.name: each for each in splits(config)}
    if split not in found:
        raise ConfigError(f"--split: there is no split {split!r}; there is {', '.join(found)}")
    return found[split]
