"""What prepare left, opened again: the questions of a split, and the environment that a policy acts in.

Making it is left to prepare.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from agent_r1.chat import Tokenizer
from agent_r1.environments import Environments, open_environments
from agent_r1.model import Policy, load
from agent_r1.questions.records import Question
from agent_r1.world.generate import generate, readable, write_database
from storage import checkpoints, passages, questions
from storage.files import replace_file
from tasks.context import RunContext
from tasks.corpus import open_finder


def question_ids(context: RunContext, split: str) -> list[str]:
    """The ids of a split's questions, in the order in which they were prepared."""
    return (context.data / split / "questions.txt").read_text(encoding="utf-8").splitlines()


def load_questions(context: RunContext, ids: Sequence[str]) -> dict[str, Question]:
    """Questions of the store by id, in the order of the ids. A run's questions are stored once and stay as they are."""
    found = _questions(context, tuple(sorted(set(ids))))
    return {question_id: found[question_id] for question_id in ids}


@lru_cache(maxsize=2)  # the iteration's and the evaluation's: each is asked for by several stages
def _questions(context: RunContext, ids: tuple[str, ...]) -> dict[str, Question]:
    with context.store.read() as con:
        return {question.id: question for question in questions.load(con, ids)}


def with_gold_passages(context: RunContext, split: str, asked: Mapping[str, Question]) -> dict[str, Question]:
    """The questions with the passages of their evidence, which demonstrations are made from."""
    corpus = {passage.id: passage for passage in passages.read(context.data / split / "passages.parquet")}
    found = {}
    for question in asked.values():
        ids = dict.fromkeys(evidence.passage_id for evidence in question.evidence)
        found[question.id] = replace(question, passages=tuple(corpus[each] for each in ids if each in corpus))
    return found


@contextmanager
def open_split(context: RunContext, split: str, tokenizer: Tokenizer) -> Iterator[Environments]:
    """The tools of a split, closed at the end. A world's database that is gone or damaged is written again."""
    config = context.config
    folder = context.data / split
    database = folder / "world.duckdb"
    if config.data.path is None and not (database.is_file() and _readable(database, database.stat().st_mtime_ns)):
        world = generate(config.world)[split]  # a pure function of the configuration
        replace_file(database, lambda path: write_database(world, path))
    found_in = open_finder(context, split) if "search" in config.tools else []
    with open_environments(config, database, found_in, tokenizer) as environment:
        yield environment


@lru_cache(maxsize=4)  # one for each split: it reads all of the file
def _readable(database: Path, changed: int) -> bool:
    del changed  # a part of the key: a file that was written again is another one
    return readable(database)


def sampling_policy(context: RunContext, iteration: int) -> Policy:
    """The policy of a checkpoint, only to be read: the last one loaded is kept for the stages that follow."""
    manifest = checkpoints.read_manifest(context.checkpoint(iteration))
    return _verified(context, iteration, manifest.digest)


@lru_cache(maxsize=1)
def _verified(context: RunContext, iteration: int, digest: str) -> Policy:
    del digest  # a part of the key: another checkpoint in the same place is another policy
    return learning_policy(context, iteration)


def learning_policy(context: RunContext, iteration: int) -> Policy:
    """The policy of a checkpoint, every file checked against its manifest, for the caller alone.

    Adapters stand on checkpoint 0, which is the reference without them.
    """
    folder = context.checkpoint(iteration)
    checkpoints.verify(folder)
    if not context.config.model.lora.rank:
        return load(folder, context.config)
    checkpoints.verify(context.checkpoint(0))
    return load(folder, context.config, base=context.checkpoint(0))
