"""prepare: questions into the store, passages and the world's databases beside the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1.config import Config
from agent_r1.dataset import Split, splits
from agent_r1.questions.records import Json
from agent_r1.tools.databases import Databases
from agent_r1.world.generate import write_database
from storage import passages, questions
from storage.files import replace_file, sha256
from tasks.corpus import digest, index_corpus
from tasks.stage import Connection, Receipt, RunContext, Work, run_stage

log = logging.getLogger("agent_r1.prepare")


@task(name="prepare", task_run_name="prepare", cache_policy=NO_CACHE, persist_result=False)
def prepare(context: RunContext) -> Receipt:
    """Receipt: the questions of each split, and the hashes of data file, corpus and databases where there are some."""
    receipt = run_stage(context, "prepare", 0, {}, lambda: _prepare(context))
    config = context.config
    _warn_if_changed(config.data.path, receipt.get("data_sha256"), "the questions it has")
    _warn_if_changed(config.search.corpus, receipt.get("corpus_sha256"), "the index of what it was")
    noted = receipt.get("databases_sha256")
    for name, path in _databases(config.data.databases, noted if isinstance(noted, dict) else {}).items():
        _warn_if_changed(str(path), noted[name] if isinstance(noted, dict) else None, "what is there now")
    return receipt


def _databases(folder: str | None, names: Iterable[str]) -> dict[str, Path]:
    """The file of each database. DataError where one is not there."""
    return {} if folder is None else {name: Databases(folder).path(name) for name in names}


def _warn_if_changed(path: str | None, noted: Json, kept: str) -> None:
    if path is not None and Path(path).is_file() and digest(Path(path)) != noted:
        log.warning("%s has changed since the run was prepared: it goes on with %s", path, kept)


def _prepare(context: RunContext) -> Work:
    made = splits(context.config)
    files: dict[str, Json] = {}
    for split in made:
        for path in _write(context, split):
            files[context.name(path)] = sha256(path)

    def save(con: Connection) -> None:
        for split in made:
            questions.save(con, split.name, split.questions)

    corpus = context.config.search.corpus
    if corpus is not None:
        index_corpus(Path(corpus), context.home, made)
    counts: dict[str, Json] = {split.name: len(split.questions) for split in made}
    return Work({"questions": counts, **hashes(context.config, made), "files": files}, save)


def hashes(config: Config, made: Iterable[Split]) -> dict[str, Json]:
    """The hashes of the files that splits are about: data, and corpus and databases where there are some. DataError."""
    path, corpus, folder = config.data.path, config.search.corpus, config.data.databases
    found: dict[str, Json] = {"data_sha256": None if path is None else digest(Path(path))}
    if corpus is not None:
        found["corpus_sha256"] = digest(Path(corpus))
    if folder is not None:
        names = sorted({each.database for split in made for each in split.questions if each.database is not None})
        found["databases_sha256"] = {name: digest(file) for name, file in _databases(folder, names).items()}
    return found


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
