"""The index of passages: the same answers from memory and from a folder, and those of a plain BM25."""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from agent_r1.corpus import fingerprint, read_corpus
from agent_r1.questions.records import Passage
from agent_r1.tools.finder import NothingFoundError, Recognising
from agent_r1.tools.search import SearchTool
from agent_r1.tools.search_index import PassageIndex, held, index_name, index_of, open_index, words, write_index

SLICES = Path(os.environ.get("AGENT_R1_TEST_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data")
ROME = Passage("p1", "Rome", "Rome is the capital. It has 7 hills.", ("Rome is the capital.", " It has 7 hills."))
FIRM = Passage("p2", "AT&amp;T", "A firm of Zürich,\n東京 \x00 and \u2028 after.")


def kept(folder: Path, *passages: Passage) -> PassageIndex:
    folder.mkdir()
    write_index(folder, iter(passages))
    return open_index(folder)


def made_up(count: int) -> list[Passage]:
    """Passages of few words, so that many have equal scores."""
    chosen = random.Random(0)
    return [
        Passage(str(number), f"t{number}", " ".join(chosen.choices("abcdefgh", k=chosen.randint(1, 6))))
        for number in range(count)
    ]


def test_an_index_on_disk_finds_what_one_in_memory_finds(tmp_path: Path) -> None:
    passages = made_up(200)
    memory, disk = index_of(passages), kept(tmp_path / "i", *passages)
    for query in ("a", "b c", "h h g", "t17 a", "a b c d e f g h"):
        for results in (1, 3, 50, 300):
            assert memory.find(query, results) == disk.find(query, results)


def test_the_best_are_those_of_bm25_and_equal_ones_keep_their_order(tmp_path: Path) -> None:
    """Lucene's BM25 with k1 1.5 and b 0.75, written out, sorted with ties by place."""
    passages = made_up(60)
    documents = [words(f"{each.title} {each.text}") for each in passages]
    average = sum(map(len, documents)) / len(documents)

    def score(document: list[str], query: list[str]) -> float:
        counts = Counter(document)
        total = 0.0
        for word in query:
            having = sum(word in each for each in documents)
            weight = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            total += weight * counts[word] / (counts[word] + 1.5 * (0.25 + 0.75 * len(document) / average))
        return round(total, 5)

    index = kept(tmp_path / "i", *passages)
    for query in ("a", "b g", "c c t5"):
        scores = [score(document, words(query)) for document in documents]
        order = sorted((place for place in range(60) if scores[place] > 0), key=lambda place: (-scores[place], place))
        assert [passage.id for passage in index.find(query, 20)] == [passages[place].id for place in order[:20]]


def test_passages_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    index = kept(tmp_path / "i", ROME, FIRM)
    assert index.find("hills", 3) == [ROME]
    assert index.find("at&t zurich", 3) == [FIRM]


@pytest.mark.parametrize("passages", [(), (Passage("e", "", "?!"),)])
def test_passages_without_a_word_are_an_index_too(tmp_path: Path, passages: tuple[Passage, ...]) -> None:
    for index in (index_of(passages), kept(tmp_path / "i", *passages)):
        with pytest.raises(NothingFoundError, match="no passage found"):
            index.find("word", 3)


def test_several_threads_may_ask_one_index(tmp_path: Path) -> None:
    passages = made_up(100)
    index = kept(tmp_path / "i", *passages)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda passage: index.find(passage.title, 1), passages))
    assert [each.id for (each,) in found] == [each.id for each in passages]


def test_only_words_are_loaded_and_scores_stay_on_disk(tmp_path: Path) -> None:
    index = kept(tmp_path / "i", *made_up(10))
    bm25 = index._bm25
    assert bm25 is not None
    assert all(isinstance(bm25.scores[name], np.memmap) for name in ("data", "indices", "indptr"))


def test_held_tells_which_fingerprints_an_index_has(tmp_path: Path) -> None:
    kept(tmp_path / "i", ROME, FIRM)
    there = fingerprint("AT&T", FIRM.text)
    assert held(tmp_path / "i", [there, fingerprint("Rome", "else")]) == {there}
    assert held(tmp_path / "i", []) == set()


def test_an_index_is_named_by_what_is_in_it() -> None:
    assert index_name("a") == index_name("a") != index_name("b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plain ASCII_1 don't 7", ["plain", "ascii_1", "don", "t", "7"]),
        ("Zürich Zu\u0308rich STRASSE Straße", ["zurich", "zurich", "strasse", "strasse"]),
        ("ﬁne ＡＢ１ 東京", ["fine", "ab1", "東京"]),
    ],
)
def test_words_have_neither_case_nor_accents_nor_forms(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_passage_of_a_corpus_that_the_questions_know_is_theirs(tmp_path: Path) -> None:
    """So evidence by passage and by sentence is found in a corpus."""
    same = Passage("corpus:1", "Rome", "Rome is the  capital. It has 7 hills.")
    other = Passage("corpus:2", "Rome", "Rome has hills, and other words than the questions' passage.")
    finder = Recognising(kept(tmp_path / "i", other, same), {fingerprint(ROME.title, ROME.text): ROME})
    result = SearchTool(finder).call({"query": "rome hills"})
    assert {(source.passage_id, source.sentence) for source in result.sources} == {
        *(("p1", None), ("p1", 0), ("p1", 1)),
        ("corpus:2", None),
    }


def test_the_questions_of_2wiki_find_their_gold_titles_in_the_corpus_slice(tmp_path: Path) -> None:
    corpus = SLICES / "2wiki" / "2wiki_corpus_slice.json"
    if not corpus.is_file():
        pytest.skip(f"no {corpus}")
    index = kept(tmp_path / "i", *read_corpus(corpus))
    lines = (SLICES / "2wiki" / "2wiki_questions_gold_titles.jsonl").read_text(encoding="utf-8").splitlines()
    found = []
    for question in map(json.loads, lines):
        titles = {passage.title for passage in index.find(question["question"], 10)}
        found.append(not titles.isdisjoint(question["gold_titles"]))
    assert len(found) == 51
    assert all(found)
