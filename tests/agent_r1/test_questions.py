"""Loading questions: every oddity of HotpotQA, 2WikiMultihopQA and MuSiQue files, and broken JSON."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agent_r1.errors import DataError
from agent_r1.questions import Evidence, Question, iter_questions, load

HOTPOT: dict[str, Any] = {
    "level": "hard",
    "supporting_facts": [["Harris &amp; Co.", 1], ["Alû", 0]],
    "question": " Which firm is older? \u00a0",
    "context": [
        ["Alû", ["Alû is a demon.", " It has no mouth.", "", " It is old."]],
        ["Harris &amp; Co.", ["Harris was a firm.", " It closed."]],
        ["Other", ["Nothing here."]],
    ],
    "answer": "yes",
    "_id": "5a77",
    "type": "comparison",
}
TITLES, SENTENCES = [title for title, _ in HOTPOT["context"]], [sentences for _, sentences in HOTPOT["context"]]
HUGGING_FACE: dict[str, Any] = {key: value for key, value in HOTPOT.items() if key != "_id"} | {
    "id": "5a77",
    "supporting_facts": {"title": ["Harris &amp; Co.", "Alû"], "sent_id": [1, 0]},
    "context": {"title": TITLES, "sentences": SENTENCES},
}
MUSIQUE: dict[str, Any] = {
    "id": "3hop1__11_22_33",
    "paragraphs": [
        {"idx": 0, "title": "Brother", "paragraph_text": "A song by Pearl Jam.", "is_supporting": True},
        {"idx": 1, "title": "Brother", "paragraph_text": "A male sibling.", "is_supporting": False},
        {"idx": 2, "title": "Seattle", "paragraph_text": "It snows 6.8 inches.", "is_supporting": True},
        {"idx": 3, "title": "Pearl Jam", "paragraph_text": "Formed in Seattle.", "is_supporting": True},
    ],
    "question": "How much snow falls where the performer of Brother was formed?",
    "question_decomposition": [
        {"id": 11, "question": "Brother >> performer", "answer": "Pearl Jam", "paragraph_support_idx": 0},
        {"id": 22, "question": "Where was #1 formed?", "answer": "Seattle", "paragraph_support_idx": 3},
        {"id": 33, "question": "How much snow falls in #2 ?", "answer": "6.8 inches", "paragraph_support_idx": 2},
    ],
    "answer": "6.8 inches",
    "answer_aliases": ["6.8 in", "6.8 inches"],
    "answerable": True,
}
TWO_WIKI: dict[str, Any] = {
    "_id": "83bf",
    "type": "bridge_comparison",
    "question": "Which film has the older director, A or B?",
    "context": [[title, [f"{title} is one.", "It ( is) two."]] for title in ("A", "B", "Ann", "Bob")],
    "entity_ids": "Q1_Q2_Q3_Q4",
    "supporting_facts": [["A", 0], ["B", 0], ["Ann", 1], ["Bob", 1]],
    "evidences": [["A", "director", "Ann"], ["B", "director", "Bob"]],
    "answer": "A",
    "evidences_id": [],
    "answer_id": None,
}


def written(folder: Path, *items: object, lines: bool = False) -> Path:
    path = folder / "questions.txt"  # the name must not matter
    texts = [json.dumps(item, ensure_ascii=False) for item in items]
    path.write_text("\n".join(texts) + "\n" if lines else f"[{', '.join(texts)}]", encoding="utf-8")
    return path


def one(folder: Path, item: object) -> Question:
    (question,) = load(written(folder, item))
    return question


def passage(question: Question, title: str) -> str:
    (found,) = [passage.id for passage in question.passages if passage.title == title]
    return found


def test_hotpotqa_item_becomes_a_question(tmp_path: Path) -> None:
    question = one(tmp_path, HOTPOT)
    assert (question.id, question.text, question.answers) == ("5a77", "Which firm is older?", ("yes",))
    assert (question.dataset, question.hops, question.kind) == ("hotpotqa", 2, "comparison")
    assert question.metadata == {"kind": "comparison", "level": "hard"}
    assert [passage.title for passage in question.passages] == ["Alû", "Harris &amp; Co.", "Other"]


def test_sentences_join_with_nothing_and_blank_ones_count(tmp_path: Path) -> None:
    alu = one(tmp_path, HOTPOT).passages[0]
    assert alu.text == "Alû is a demon. It has no mouth. It is old."
    assert alu.sentences == ("Alû is a demon.", " It has no mouth.", "", " It is old.")


def test_evidence_follows_supporting_facts_and_matches_raw_titles(tmp_path: Path) -> None:
    question = one(tmp_path, HOTPOT)
    assert question.evidence == (
        Evidence(passage(question, "Harris &amp; Co."), 1),
        Evidence(passage(question, "Alû"), 0),
    )


@pytest.mark.parametrize("lines", [False, True])
def test_hugging_face_layout_gives_the_same_question(tmp_path: Path, lines: bool) -> None:
    assert load(written(tmp_path, HUGGING_FACE, lines=lines)) == load(written(tmp_path, HOTPOT))


def test_sentence_past_the_end_is_kept_and_a_repeated_fact_counts_once(tmp_path: Path) -> None:
    question = one(tmp_path, HOTPOT | {"supporting_facts": [["Alû", 9], ["Alû", 0], ["Alû", 9]]})
    assert question.evidence == (Evidence(passage(question, "Alû"), 9), Evidence(passage(question, "Alû"), 0))


def test_gold_title_missing_from_context_keeps_one_id_everywhere(tmp_path: Path) -> None:
    item = HOTPOT | {"supporting_facts": [["Gone", 0], ["Gone", 1], ["Alû", 0]]}
    first, second = load(written(tmp_path, item, item | {"_id": "5a78"}))
    assert first.evidence == second.evidence
    assert len({evidence.passage_id for evidence in first.evidence}) == first.hops == 2
    assert first.evidence[0].passage_id not in {passage.id for passage in first.passages}
    assert first.evidence[0].passage_id.startswith("hotpotqa:")


def test_test_file_without_gold_loads(tmp_path: Path) -> None:
    official = {key: HOTPOT[key] for key in ("_id", "question", "context")}
    empty = {"answer": None, "type": None, "level": None, "supporting_facts": {"title": [], "sent_id": []}}
    for item in (official, HUGGING_FACE | empty):
        question = one(tmp_path, item)
        assert (question.answers, question.evidence, question.hops, question.metadata) == ((), (), None, {})
        assert len(question.passages) == 3


def test_same_passage_has_one_id_across_questions_and_other_text_another(tmp_path: Path) -> None:
    other: dict[str, Any] = copy.deepcopy(HOTPOT) | {"_id": "5a78"}
    other["context"][0][1][1] = " It has a mouth."
    first, second = load(written(tmp_path, HOTPOT, other))
    assert passage(first, "Other") == passage(second, "Other")
    assert passage(first, "Alû") != passage(second, "Alû")
    assert passage(first, "Other").startswith("hotpotqa:")


def test_2wiki_is_told_from_hotpotqa_and_joins_sentences_with_a_space(tmp_path: Path) -> None:
    question = one(tmp_path, TWO_WIKI)
    assert (question.dataset, question.hops, question.kind) == ("2wiki", 4, "bridge_comparison")
    assert question.passages[0].text == "A is one. It ( is) two."
    assert question.metadata["evidences"] == [["A", "director", "Ann"], ["B", "director", "Bob"]]
    assert question.evidence[2] == Evidence(passage(question, "Ann"), 1)


def test_2wiki_is_told_by_its_kinds_and_entities_too_and_its_test_file_loads(tmp_path: Path) -> None:
    keys = ("_id", "type", "question", "context")
    for item in ({key: TWO_WIKI[key] for key in keys}, {key: TWO_WIKI[key] for key in (*keys, "entity_ids")}):
        question = one(tmp_path, item)
        assert (question.dataset, question.answers, question.evidence, question.hops) == ("2wiki", (), (), None)
    assert one(tmp_path, HOTPOT | {"type": "comparison"}).dataset == "hotpotqa"
    assert one(tmp_path, TWO_WIKI | {"evidences_id": [["Q1", "P57", "date_information"]]}).answers == ("A",)


def test_fewer_than_ten_passages_and_a_yes_or_no_are_kept_as_they_are(tmp_path: Path) -> None:
    question = one(tmp_path, HOTPOT | {"context": HOTPOT["context"][:1], "answer": "no"})
    assert (len(question.passages), question.answers) == (1, ("no",))


def test_2wiki_fields_held_as_json_strings_are_decoded(tmp_path: Path) -> None:
    strings = {key: json.dumps(TWO_WIKI[key]) for key in ("context", "supporting_facts", "evidences")}
    reissue = {key: TWO_WIKI[key] for key in ("_id", "type", "question", "answer")} | strings
    assert one(tmp_path, reissue) == one(tmp_path, TWO_WIKI)
    with pytest.raises(DataError, match=r"item 1 \(id '83bf'\): field context: a string that does not hold JSON"):
        load(written(tmp_path, reissue | {"context": "[["}))


@pytest.mark.parametrize("lines", [False, True])
def test_musique_item_becomes_a_question(tmp_path: Path, lines: bool) -> None:
    (question,) = load(written(tmp_path, MUSIQUE, lines=lines))
    assert (question.id, question.dataset, question.hops, question.kind) == ("3hop1__11_22_33", "musique", 3, "3hop1")
    assert question.answers == ("6.8 inches", "6.8 in")
    assert question.metadata["decomposition"] == MUSIQUE["question_decomposition"]


def test_musique_evidence_is_in_hop_order_and_keyed_by_idx_not_title(tmp_path: Path) -> None:
    question = one(tmp_path, MUSIQUE | {"paragraphs": MUSIQUE["paragraphs"][::-1]})
    texts = {passage.id: passage.text for passage in question.passages}
    assert len(texts) == 4
    found = [texts[evidence.passage_id] for evidence in question.evidence]
    assert found == ["A song by Pearl Jam.", "Formed in Seattle.", "It snows 6.8 inches."]
    assert {evidence.sentence for evidence in question.evidence} == {None}


def test_musique_full_twin_gets_its_own_id_and_no_evidence_for_the_lost_hop(tmp_path: Path) -> None:
    twin: dict[str, Any] = copy.deepcopy(MUSIQUE) | {"answerable": False}
    twin["question_decomposition"][1]["paragraph_support_idx"] = None
    for items in ((MUSIQUE, twin), (twin, MUSIQUE)):
        by_id = {question.id: question for question in load(written(tmp_path, *items, lines=True))}
        assert set(by_id) == {"3hop1__11_22_33", "3hop1__11_22_33#unanswerable"}
        lost = by_id["3hop1__11_22_33#unanswerable"]
        assert len(lost.evidence) == 2
        assert lost.metadata["answerable"] is False
        assert (lost.answers, by_id["3hop1__11_22_33"].answers) == ((), ("6.8 inches", "6.8 in"))


def test_musique_without_a_decomposition_has_answers_and_no_evidence(tmp_path: Path) -> None:
    question = one(tmp_path, {key: value for key, value in MUSIQUE.items() if key != "question_decomposition"})
    assert (question.answers, question.evidence, question.hops) == (("6.8 inches", "6.8 in"), (), 3)
    assert "decomposition" not in question.metadata


def test_musique_test_file_without_gold_loads(tmp_path: Path) -> None:
    bare = [{key: paragraph[key] for key in ("idx", "title", "paragraph_text")} for paragraph in MUSIQUE["paragraphs"]]
    question = one(tmp_path, {"id": MUSIQUE["id"], "question": "Who?", "paragraphs": bare})
    assert (question.answers, question.evidence, question.hops) == ((), (), 3)


def test_a_passage_twice_in_one_question_is_one_passage(tmp_path: Path) -> None:
    again = MUSIQUE["paragraphs"][3] | {"idx": 4}
    assert len(one(tmp_path, MUSIQUE | {"paragraphs": [*MUSIQUE["paragraphs"], again]}).passages) == 4


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (HOTPOT | {"answer": True}, "field answer: expected a string, got true"),
        (HOTPOT | {"question": "  "}, "field question: blank"),
        (HOTPOT | {"_id": 7}, "field _id: expected a string, got 7"),
        (HOTPOT | {"context": None}, "field context: missing or null"),
        (HOTPOT | {"context": [["Alû", ["a", 3]]]}, r"field context\[0\]\[1\]\[1\]: expected a string, got 3"),
        (HOTPOT | {"context": [["Alû"]]}, r"field context\[0\]: expected a pair"),
        (HOTPOT | {"supporting_facts": [["Alû", "0"]]}, r'supporting_facts\[0\]\[1\]: expected an integer .*, got "0"'),
        (HOTPOT | {"supporting_facts": [["Alû", True]]}, "expected an integer from 0 on, got true"),
        (HOTPOT | {"supporting_facts": [["Alû", -1]]}, r"supporting_facts\[0\]\[1\]: expected an integer from 0 on"),
        (HOTPOT | {"supporting_facts": {"title": ["Alû"], "sent_id": []}}, "1 of title but 0 of sent_id"),
        (HOTPOT | {"question": "\ud800?"}, "field question: half of a surrogate pair"),
        (MUSIQUE | {"answerable": "yes"}, "field answerable: expected true or false"),
        (MUSIQUE | {"paragraphs": [{"title": "A"}]}, r"field paragraphs\[0\].idx: missing or null; keys here: title"),
        (MUSIQUE | {"paragraphs": MUSIQUE["paragraphs"][:1]}, "no paragraph has idx 3"),
        (MUSIQUE | {"paragraphs": MUSIQUE["paragraphs"][:1] * 2}, r"paragraphs\[1\].idx: 0 a second time"),
        (HOTPOT, "question id '5a77' was there before, at .*item 1 .*: the same item"),
        (HOTPOT | {"answer": "no"}, "question id '5a77' was there before, at .*item 1 .*: another item"),
        (HOTPOT | {"question": "a\0?"}, "field question: a NUL character"),
        ("text", 'expected an object, got "text"'),
    ],
)
def test_a_wrong_field_is_named_with_its_file_and_item(tmp_path: Path, item: object, problem: str) -> None:
    path = tmp_path / "questions.json"
    first = MUSIQUE | {"id": "2hop__1_2"} if isinstance(item, dict) and "paragraphs" in item else HOTPOT
    path.write_text(json.dumps([first, item]))
    with pytest.raises(DataError, match=rf"questions\.json: item 2.*{problem}"):
        load(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty, expected questions"),
        (b"\xef\xbb\xbf \r\n", "empty, expected questions"),
        (b"[]", "empty, expected questions"),
        (json.dumps([HOTPOT]).encode()[:-40], "broken or cut-off JSON at column"),
        (json.dumps(HOTPOT).encode() + b"\n\n{broken\n", "line 3: broken or cut-off JSON at column 2"),
        (json.dumps(HOTPOT).encode() + b'\n"\xe9"\n', "line 2: not UTF-8 text: byte 0xe9 at offset 1"),
        (json.dumps([HOTPOT]).encode("utf-16"), "not UTF-8 text"),
        (b"[" * 100_000, "JSON that cannot be read"),
        (
            b'{"asked": "1+1?", "answer": "2"}',
            "the keys asked, answer; known formats: 2wiki, agent_r1, .*plain",
        ),
    ],
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"questions\.jsonl: .*{problem}"):
        load(path)


def test_a_missing_file_a_folder_and_an_unknown_format_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.json: cannot be read: No such file"):
        load(tmp_path / "gone.json")
    with pytest.raises(DataError, match=r"cannot be read: Is a directory"):
        load(tmp_path)
    with pytest.raises(DataError, match=r"unknown format 'squad'; known formats: auto, 2wiki, .*hotpotqa, musique"):
        load(written(tmp_path, HOTPOT), format="squad")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n", b""])
def test_byte_order_mark_line_ends_and_blank_lines_do_not_matter(tmp_path: Path, mark: bytes, end: bytes) -> None:
    path = tmp_path / "questions.json"
    separated = json.dumps(MUSIQUE | {"question": "a\u2028b"}, ensure_ascii=False).encode()
    path.write_bytes(mark + separated + (end or b"\n") + json.dumps(MUSIQUE | {"id": "2hop__1_2"}).encode() + end)
    assert [question.hops for question in load(str(path))] == [3, 2]
    path.write_bytes(mark + end + json.dumps([HOTPOT], indent=1).encode().replace(b"\n", end) + end)
    assert load(path, format="hotpotqa")[0].id == "5a77"


def test_json_lines_are_streamed_up_to_the_broken_line(tmp_path: Path) -> None:
    path = written(tmp_path, HUGGING_FACE, "text", lines=True)
    questions = iter_questions(path)
    assert next(questions).id == "5a77"
    with pytest.raises(DataError, match="line 2"):
        next(questions)
