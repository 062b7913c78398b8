"""prepare: questions into the store, passages and the world's databases beside the run."""

from __future__ import annotations

import logging
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1.dataset import Split, splits
from agent_r1.questions.records import Json
from agent_r1.world.generate import write_database
from storage import passages, questions
from storage.files import replace_file, sha256
from tasks.stage import Connection, Receipt, RunContext, Work, run_stage

log = logging.getLogger("agent_r1.prepare")


@task(name="prepare", task_run_name="prepare", cache_policy=NO_CACHE, persist_result=False)
def prepare(context: RunContext) -> Receipt:
    """Receipt: the questions of each split, and the hash of the data file where there is one."""
    receipt = run_stage(context, "prepare", 0, {}, lambda: _prepare(context))
    path = context.config.data.path
    if path is not None and Path(path).is_file() and sha256(Path(path)) != receipt["data_sha256"]:
        log.warning("%s has changed since the run was prepared: it goes on with the questions it has", path)
    return receipt


def _prepare(context: RunContext) -> Work:
    made = splits(context.config)
    files: dict[str, Json] = {}
    for split in made:
        for path in _write(context, split):
            files[context.name(path)] = sha256(path)

    def save(con: Connection) -> None:
        for split in made:
            questions.save(con, split.name, split.questions)

    counts: dict[str, Json] = {split.name: len(split.questions) for split in made}
    path = context.config.data.path
    digest = None if path is None else sha256(Path(path))
    return Work({"questions": counts, "data_sha256": digest, "files": files}, save)


def _write(context: RunContext, split: Split) -> list[Path]:
    """Write a split's files; those whose bytes are the same whenever they are written are returned, as promised."""
    ids = write_ids(context, split)
    corpus = ids.parent / "passages.parquet"
    passages.write(corpus, split.passages)
    world = split.world
    if world is not None:
        replace_file(ids.parent / "world.duckdb", lambda path: write_database(world, path))
    return [ids, corpus]


def write_ids(context: RunContext, split: Split) -> Path:
    """Write the ids of a split's questions, in their order, into the folder of the split."""
    ids = context.data / split.name / "questions.txt"
    ids.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{question.id}\n" for question in split.questions)

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    replace_file(ids, write)
    return ids
