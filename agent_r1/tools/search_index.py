"""BM25 over the titles and texts of passages: in memory, or as a folder that is read from the disk where it is.

Where such folders lie, and that they are whole, is left to the caller; what is shown to search.py.
"""

from __future__ import annotations

import hashlib
import html
import json
import logging
import os
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

import bm25s
import numpy as np

from agent_r1.corpus import fingerprint
from agent_r1.questions.records import Passage
from agent_r1.tools.finder import NothingFoundError

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG when it is imported

FORMAT = 1  # of the folder, and of what counts as a word
_WORD = re.compile(r"\w+")
_PASSAGES, _OFFSETS, _FINGERPRINTS, _BM25 = "passages.jsonl", "offsets.npy", "fingerprints.npy", "bm25"


class PassageIndex:
    """A finder by BM25. Deterministic: equal scores keep the order of `passages`."""

    def __init__(self, passages: Sequence[Passage], bm25: bm25s.BM25 | None) -> None:
        """`bm25` is None where no passage has a word."""
        self._passages = passages
        self._bm25 = bm25

    def find(self, query: str, results: int) -> list[Passage]:
        """Passages that have at least one of the query's words, the best first."""
        known = [] if self._bm25 is None else [word for word in words(query) if word in self._bm25.vocab_dict]
        if self._bm25 is None or not known:
            raise NothingFoundError("no passage found: none of these words is in any passage")
        return [self._passages[number] for number in _best(self._bm25.get_scores(known), results)]

    def close(self) -> None:
        """Nothing to free."""


def index_of(passages: Sequence[Passage]) -> PassageIndex:
    """An index in memory."""
    return PassageIndex(tuple(passages), _bm25(_searched(passage) for passage in passages))


def index_name(content: str) -> str:
    """What to call the folder of an index: another name for other passages (`content` is their hash) or other code."""
    parts = f"{content} format {FORMAT} bm25s {bm25s.__version__}"
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def write_index(folder: Path, passages: Iterable[Passage]) -> None:
    """Fill an empty folder with the index of passages, of which one is in memory at a time, and their words."""
    offsets, fingerprints = array("q", [0]), array("Q")

    def texts() -> Iterator[str]:
        with (folder / _PASSAGES).open("wb") as file:
            for passage in passages:
                fields = (passage.id, passage.title, passage.text, passage.sentences)
                offsets.append(offsets[-1] + file.write(json.dumps(fields).encode() + b"\n"))
                fingerprints.append(fingerprint(passage.title, passage.text))
                yield _searched(passage)

    bm25 = _bm25(texts())
    np.save(folder / _OFFSETS, np.frombuffer(offsets, dtype=np.int64))
    np.save(folder / _FINGERPRINTS, np.frombuffer(fingerprints, dtype=np.uint64))
    if bm25 is not None:
        bm25.save(folder / _BM25, show_progress=False)


def open_index(folder: Path) -> PassageIndex:
    """The index of a folder. Its words are read into memory; scores and passages stay on the disk until asked for."""
    written = folder / _BM25
    bm25 = bm25s.BM25.load(written, mmap=True, show_progress=False) if written.is_dir() else None
    return PassageIndex(_KeptPassages(folder), bm25)


def held(folder: Path, fingerprints: Iterable[int]) -> set[int]:
    """Those of the fingerprints that a passage of the folder's index has."""
    asked = np.array(sorted(set(fingerprints)), dtype=np.uint64)
    there = np.load(folder / _FINGERPRINTS, mmap_mode="r")
    return {int(each) for each in asked[np.isin(asked, there)]}


def words(text: str) -> list[str]:
    """Words as they are compared: any case, any Unicode form, without accents; one letter or digit is a word too."""
    text = text.casefold()
    if not text.isascii():
        text = "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return _WORD.findall(text)


def shown_text(passage: Passage) -> str:
    """The text that is searched and shown: its sentences, where it has some."""
    return "".join(passage.sentences) or passage.text


class _KeptPassages(Sequence[Passage]):
    """The passages of a folder, each read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / _PASSAGES).open("rb", buffering=0)
        self._offsets = np.load(folder / _OFFSETS, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> list[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | list[Passage]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        start, end = int(self._offsets[index]), int(self._offsets[index + 1])
        line = os.pread(self._file.fileno(), end - start, start)  # several threads read at once: no seek
        identity, title, text, sentences = json.loads(line)
        return Passage(identity, title, text, tuple(sentences))


def _searched(passage: Passage) -> str:
    return f"{html.unescape(passage.title)} {shown_text(passage)}"


def _bm25(texts: Iterable[str]) -> bm25s.BM25 | None:
    """BM25 of texts, None where they have no word. In memory are the numbers of their words, 4 bytes for each."""
    vocabulary: dict[str, int] = {}
    numbers = [array("i", [vocabulary.setdefault(word, len(vocabulary)) for word in words(text)]) for text in texts]
    if not vocabulary:
        return None
    bm25 = bm25s.BM25()
    bm25.index((numbers, vocabulary), create_empty_token=False, show_progress=False)
    return bm25


def _best(scores: np.ndarray, count: int) -> list[int]:
    """Positions of the highest scores above 0, equal ones in their order."""
    found = np.flatnonzero(scores > 0)
    if len(found) > count:
        least = np.partition(scores[found], -count)[-count]
        found = found[scores[found] >= least]  # all that are equal to the last one: the stable sort chooses
    return [int(each) for each in found[np.argsort(-scores[found], kind="stable")][:count]]
