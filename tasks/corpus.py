"""Where the search tool of a split looks: an index in the home, of the questions' passages or of a corpus, or a server.

Indexes are made when they are first needed and opened once in a process. What is in them is left to agent_r1, how they
are kept to storage.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from agent_r1.corpus import fingerprint, read_corpus
from agent_r1.dataset import Split
from agent_r1.errors import DataError
from agent_r1.questions.records import Passage
from agent_r1.sections import SearchConfig
from agent_r1.tools.finder import Finder, Recognising
from agent_r1.tools.search_index import PassageIndex, held, index_name, open_index, write_index
from agent_r1.tools.search_server import SearchServer
from storage import indexes, passages
from storage.files import sha256
from tasks.context import RunContext

log = logging.getLogger("agent_r1.corpus")


def open_finder(context: RunContext, split: str) -> Finder:
    """The finder of a prepared split. A corpus is the one that the run was prepared with, whatever its file is now.

    DataError where that corpus has to be indexed again and its file has changed.
    """
    settings, own = context.config.search, context.data / split / "passages.parquet"
    if settings.corpus is None and settings.url is None:
        return _index(context.home, digest(own), own, True)
    prepared = context.ledger.find(0, "prepare")
    noted = None if prepared is None else prepared.receipt.get("corpus_sha256")
    return _elsewhere(settings, context.home, _known(own, digest(own)), noted if isinstance(noted, str) else None)


def finder_over(settings: SearchConfig, home: Path, own: Sequence[Passage]) -> Finder | Sequence[Passage]:
    """Where search looks for questions with these passages; it is they themselves without a corpus or a server."""
    if settings.corpus is None and settings.url is None:
        return own
    return _elsewhere(settings, home, _by_fingerprint(own), None)


def index_corpus(corpus: Path, home: Path, splits: Iterable[Split]) -> None:
    """Index a corpus, and log how much of the splits' gold evidence is in it. DataError where its file is broken."""
    folder = _folder(home, digest(corpus), corpus, False)
    for split in splits:
        gold = {evidence.passage_id for question in split.questions for evidence in question.evidence}
        prints = {each.id: fingerprint(each.title, each.text) for each in split.passages if each.id in gold}
        there = held(folder, prints.values())
        missing = len(gold) - sum(each in there for each in prints.values())
        whose = f"{len(gold)} gold passages of the {split.name} questions are"
        if missing:
            log.warning("%d of %s not in the corpus %s: their evidence can never be found", missing, whose, corpus)
        elif gold:
            log.info("all %s in the corpus %s", whose, corpus)


def digest(path: Path) -> str:
    """The sha256 of a file, computed once in a process for a file that stays as it is. DataError where it is gone."""
    try:
        state = path.stat()
        return _sha256(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


@lru_cache(maxsize=16)
def _sha256(path: Path, changed: int, size: int) -> str:
    del changed, size  # parts of the key: a file that was written again is another one
    return sha256(path)


def _elsewhere(settings: SearchConfig, home: Path, known: dict[int, Passage], corpus_sha256: str | None) -> Finder:
    """A server or a corpus (None: as its file is now), its passages taken for known ones where they are the same."""
    if settings.url is not None:
        return Recognising(SearchServer(settings.url, settings.timeout), known)
    assert settings.corpus is not None
    corpus = Path(settings.corpus)
    return Recognising(_index(home, corpus_sha256 or digest(corpus), corpus, False), known)


@lru_cache(maxsize=4)  # one for each split; its stages take turns
def _index(home: Path, content: str, path: Path, own: bool) -> PassageIndex:
    return open_index(_folder(home, content, path, own))


@lru_cache(maxsize=4)  # whether it is whole is seen by reading all of it
def _folder(home: Path, content: str, path: Path, own: bool) -> Path:
    """The folder of the index of a file that has this hash: passages of prepare's (`own`) or a corpus."""

    def write(folder: Path) -> None:
        if digest(path) != content:
            raise DataError(f"{path} has changed since the run was prepared, and the index of what it was is gone")
        write_index(folder, passages.read(path) if own else read_corpus(path))

    return indexes.keep(home, index_name(content), write)


@lru_cache(maxsize=2)  # the iteration's and the evaluation's
def _known(path: Path, content: str) -> dict[int, Passage]:
    del content  # a part of the key: a file that was written again is another one
    return _by_fingerprint(passages.read(path))


def _by_fingerprint(own: Sequence[Passage]) -> dict[int, Passage]:
    return {fingerprint(each.title, each.text): each for each in own}
