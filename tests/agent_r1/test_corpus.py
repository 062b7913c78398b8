"""Corpus files: the layouts that are read, what is refused, and when two passages are the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent_r1.corpus import fingerprint, read_corpus
from agent_r1.errors import DataError
from agent_r1.questions import load
from agent_r1.questions.records import Passage

SLICES = Path(os.environ.get("AGENT_R1_TEST_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data")


def written(folder: Path, *items: object, lines: bool = True) -> Path:
    path = folder / "corpus.jsonl"
    texts = [json.dumps(item, ensure_ascii=False) for item in items]
    path.write_text("\n".join(texts) if lines else f"[{', '.join(texts)}]", encoding="utf-8")
    return path


@pytest.mark.parametrize("lines", [True, False])
def test_titles_and_texts_are_read_from_lines_or_a_list(tmp_path: Path, lines: bool) -> None:
    items = [{"id": "a", "title": "Bern", "text": " A town.\nOld. "}, {"_id": 7, "title": "", "text": "Zürich"}]
    assert list(read_corpus(written(tmp_path, *items, lines=lines))) == [
        Passage("corpus:a", "Bern", " A town.\nOld. "),
        Passage("corpus:7", "", "Zürich"),
    ]


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Bern"\nA town.\nOld.', "Bern", "A town.\nOld."),
        ("Bern\nA town.", "Bern", "A town."),
        ('"Bern"\r\nA town.\r\nOld.', "Bern", "A town.\r\nOld."),
        ('"Heroes" (album)\nBy Bowie.', '"Heroes" (album)', "By Bowie."),
        ("A town.", "", "A town."),
        ('"\nA town.', '"', "A town."),
        ("Bern\n \n", "", "Bern"),
    ],
)
def test_the_first_line_of_contents_is_the_title(tmp_path: Path, contents: str, title: str, text: str) -> None:
    (passage,) = read_corpus(written(tmp_path, {"id": "0", "contents": contents}))
    assert passage == Passage("corpus:0", title, text)


def test_passages_without_an_id_are_named_by_their_content(tmp_path: Path) -> None:
    items = [{"title": "A", "text": "x"}, {"title": "B", "text": "x"}, {"title": "A", "text": "x"}]
    first, second = read_corpus(written(tmp_path, *items))
    assert (first.title, second.title) == ("A", "B")
    assert first.id != second.id
    assert first.id.startswith("corpus:")


def test_an_id_a_second_time_is_passed_over_if_it_is_the_same_passage(tmp_path: Path) -> None:
    one = {"id": "1", "title": "A", "text": "x"}
    assert len(list(read_corpus(written(tmp_path, one, one)))) == 1


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"title": "A"}, "field text: missing or null; keys here: title"),
        ({"title": "A", "text": 3}, "field text: expected a string, got 3"),
        ({"title": ["A"], "text": "x"}, r'field title: expected a string, got \["A"\]'),
        ({"title": "A", "text": " \n"}, "field text: blank"),
        ({"contents": ""}, "field contents: blank"),
        ({"contents": ["x"]}, "field contents: expected a string"),
        ({"id": 1.5, "text": "x"}, "field id: expected an integer from 0 on, got 1.5"),
        ({"id": " ", "text": "x"}, "field id: blank"),
        ({"id": "1", "title": "A", "text": "y"}, "id '1' was there before, with another title or text"),
        ({"text": "\ud800"}, "field text: half of a surrogate pair"),
        ("x", 'expected an object, got "x"'),
    ],
)
def test_a_wrong_item_is_named_with_file_line_and_field(tmp_path: Path, item: object, problem: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in ({"id": "1", "title": "A", "text": "x"}, item)))
    with pytest.raises(DataError, match=rf"corpus\.jsonl: line 2.*{problem}"):
        list(read_corpus(path))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty, expected passages"),
        (b"[]", "empty, expected passages"),
        (b'{"text": "x"}\n{"text": ', "line 2: broken or cut-off JSON"),
        (b'[{"text": "x"}', "broken or cut-off JSON"),
        (b'{"text": "\xe9"}', "line 1: not UTF-8 text"),
    ],
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"corpus\.jsonl: .*{problem}"):
        list(read_corpus(path))


def test_lines_are_streamed_up_to_the_broken_one(tmp_path: Path) -> None:
    passages = read_corpus(written(tmp_path, {"text": "x"}, "broken"))
    assert next(passages).text == "x"
    with pytest.raises(DataError, match="line 2"):
        next(passages)


@pytest.mark.parametrize(
    ("title", "text"), [("AT&amp;T", "A firm &quot;of&quot; 1885."), (" AT&T ", 'A  firm\n"of"\u00a01885. ')]
)
def test_white_space_and_entities_make_no_other_passage(title: str, text: str) -> None:
    assert fingerprint(title, text) == fingerprint("AT&T", 'A firm "of" 1885.')


@pytest.mark.parametrize(
    ("title", "text"), [("at&t", "A firm."), ("AT&T", "a firm."), ("AT&T", "A firm"), ("", "AT&T A firm.")]
)
def test_another_letter_or_case_makes_another_passage(title: str, text: str) -> None:
    assert fingerprint(title, text) != fingerprint("AT&T", "A firm.")


def test_the_corpus_slice_of_2wiki_holds_the_passages_of_its_official_item() -> None:
    corpus, questions = SLICES / "2wiki" / "2wiki_corpus_slice.json", SLICES / "2wiki" / "2wiki_official_item.json"
    if not corpus.is_file():
        pytest.skip(f"no {corpus}")
    there = {fingerprint(each.title, each.text) for each in read_corpus(corpus)}
    (question,) = load(questions)
    asked = {each.id: fingerprint(each.title, each.text) in there for each in question.passages}
    assert len(there) == 325
    assert sum(asked.values()) == 10
    assert all(asked[evidence.passage_id] for evidence in question.evidence)
