"""Question files: containers, what `auto` recognises, the plain format, repeated ids, broken files, the real slices."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd import changed

from agent_r1.errors import DataError
from agent_r1.questions import Evidence, Passage, Question, iter_questions, load
from agent_r1.questions.loading import FORMATS, recognise
from agent_r1.questions.records import Json

SLICES = Path(os.environ.get("AGENT_R1_TEST_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data")
DOCS = Path(__file__).parents[2] / "docs" / "data.md"
KNOWN = {
    "hotpotqa/hotpot_train_slice.json": "hotpotqa",
    "hotpotqa/hotpot_dev_hf_layout.jsonl": "hotpotqa",
    "musique/musique_ans_train_slice.jsonl": "musique",
    "2wiki/2wiki_official_item.json": "2wiki",
    "2wiki/2wiki_questions_gold_titles.jsonl": "plain",
    "bamboogle/bamboogle_slice.csv": "bamboogle",
    "bamboogle/bamboogle_slice.json": "bamboogle",
    "gsm8k/train_slice.jsonl": "gsm8k",
    "gsm8k/test_slice.jsonl": "gsm8k",
    "strategyqa/strategyqa_dev_slice.json": "strategyqa",
    "sql/questions_gen_sqlite.csv": "defog",
    "sql/questions_gen_postgres.csv": "defog",
    "sql/instruct_basic_sqlite.csv": "defog",
    "sql/instruct_advanced_sqlite.csv": "defog",
    "bfcl/BFCL_v3_multiple.json": "bfcl",
    "derived/agent_r1_2025_style.parquet": "agent_r1",
    "derived/flashrag_style.jsonl": "flashrag",
    "derived/search_r1_style.parquet": "search_r1",
}
NO_QUESTIONS = ("2wiki/2wiki_corpus_slice.json", "bfcl/possible_answer/BFCL_v3_multiple.json")
WITHOUT_ANSWERS = ("plain", "bfcl")
PLAIN: dict[str, Any] = {
    "id": "q1",
    "question": " Where was Ada born? ",
    "answers": ["London", "Westminster"],
    "passages": [
        {"id": "p1", "title": "Ada", "text": "She was there."},
        {"title": "Bob", "text": "He was not."},
    ],
    "evidence": [{"passage_id": "p1", "sentence": 0}, "Bob", "elsewhere"],
    "hops": 2,
    "dataset": "mine",
    "metadata": {"kind": "bridge"},
    "source": "a book",
}


def written(folder: Path, content: bytes | str | list[Any]) -> Path:
    """A file whose name says nothing; a list is written as JSON lines."""
    text = "".join(json.dumps(item) + "\n" for item in content) if isinstance(content, list) else content
    path = folder / "questions"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(path: Path, problem: str, format: str = "auto") -> None:
    with pytest.raises(DataError, match=f"questions: .*{problem}"):
        load(path, format)


# The real slices


def manifest() -> dict[str, int]:
    entries = json.loads((SLICES / "MANIFEST.json").read_text(encoding="utf-8"))
    return {entry["file"]: entry["items"] for entry in entries if entry["items"]}


@pytest.mark.parametrize("name", KNOWN)
def test_a_real_slice_is_recognised_and_loads_whole(name: str) -> None:
    if not (SLICES / name).is_file():
        pytest.skip(f"no {name} in {SLICES}")
    questions = load(SLICES / name)
    assert recognise(SLICES / name).format == KNOWN[name]
    assert len(questions) == len({question.id for question in questions}) == manifest()[name]
    assert all(bool(question.answers) is (KNOWN[name] not in WITHOUT_ANSWERS) for question in questions)
    if KNOWN[name] in ("hotpotqa", "2wiki", "musique"):
        for question in questions:
            found = {evidence.passage_id for evidence in question.evidence}
            assert question.hops == len(found)
            assert found <= {passage.id for passage in question.passages}


def test_every_file_of_the_slices_that_has_items_is_tested() -> None:
    if not SLICES.is_dir():
        pytest.skip(f"no {SLICES}")
    assert set(manifest()) == {*KNOWN, *NO_QUESTIONS}
    for name in NO_QUESTIONS:
        with pytest.raises(DataError, match="not recognised"):
            load(SLICES / name)


def test_bamboogle_s_sheet_and_json_ask_the_same() -> None:
    if not (SLICES / "bamboogle").is_dir():
        pytest.skip(f"no bamboogle in {SLICES}")
    sheet, listed = (load(SLICES / "bamboogle" / f"bamboogle_slice.{kind}") for kind in ("csv", "json"))
    assert [question.text for question in sheet] == [question.text for question in listed]


def test_gold_queries_of_the_two_dialects_are_as_many_where_columns_may_be_chosen() -> None:
    """The SQLite file has Postgres's {a, b} written out: a check of our own expansion against theirs."""
    if not (SLICES / "sql").is_dir():
        pytest.skip(f"no sql in {SLICES}")
    postgres = {one.text: one for one in load(SLICES / "sql" / "questions_gen_postgres.csv")}
    sqlite = {one.text: one for one in load(SLICES / "sql" / "questions_gen_sqlite.csv")}
    text = "What is the average number of references cited by publications in each domain name?"
    assert len(postgres[text].answers) == len(sqlite[text].answers) == 3
    assert not any("{" in answer for one in postgres.values() for answer in one.answers)


# What auto recognises


@pytest.mark.parametrize(
    ("item", "fitting"),
    [
        ({"question": "a", "supporting_facts": [], "paragraphs": []}, "hotpotqa, musique"),
        ({"question": "a", "golden_answers": ["b"], "context": [], "_id": "c"}, "flashrag, hotpotqa"),
        ({"question": "a", "answer": "#### 3", "golden_answers": ["3"]}, "flashrag, gsm8k"),
        ({"Question": "a", "question": "b", "db_name": "c", "query": "d"}, "bamboogle, defog"),
    ],
)
def test_an_item_that_fits_two_formats_is_refused_with_both_and_may_be_named(
    tmp_path: Path, item: dict[str, Any], fitting: str
) -> None:
    path = written(tmp_path, [item])
    refused(path, f"fits the formats {fitting} .*say which it is, as data.format")


def test_a_named_format_settles_what_auto_refuses(tmp_path: Path) -> None:
    path = written(tmp_path, [{"question": "a", "answer": "4\n#### 4", "golden_answers": ["3"]}])
    assert [load(path, name)[0].answers for name in ("flashrag", "gsm8k")] == [("3",), ("4",)]


def test_what_a_file_was_taken_for_is_said_unless_it_was_named(tmp_path: Path) -> None:
    path = written(tmp_path, [{"id": "a", "question": "b", "question_decomposition": []}])
    refused(path, r"field paragraphs: missing or null; keys here: .* \(read as musique\)")
    refused(path, r"field paragraphs: missing or null; keys here: [^()]*$", format="musique")


def test_no_item_with_a_mark_of_a_published_format_is_taken_for_a_plain_one(tmp_path: Path) -> None:
    """A field may be missing; without it the passages would be lost in silence."""
    for item, problem in (
        ({"_id": "a", "question": "b", "answer": "c", "supporting_facts": []}, "field context: missing"),
        ({"id": "a", "question": "b", "context": [["T", ["S"]]], "answer": "c", "type": 3}, "field type"),
        ({"db_name": "a", "db_type": "sqlite", "question": "b"}, "field query: missing"),
        ({"data_source": "nq", "prompt": "a", "question": "b"}, "field reward_model: missing"),
    ):
        refused(written(tmp_path, [item]), problem)


def test_docs_have_a_row_for_every_format() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name in FORMATS:
        assert f"| `{name}` |" in text, f"docs/data.md has no row of {name}"


def test_the_example_of_the_plain_format_in_the_docs_loads(tmp_path: Path) -> None:
    (example,) = [block for block in DOCS.read_text(encoding="utf-8").split("```") if block.startswith('\n{"id"')]
    (question,) = load(written(tmp_path, f"[{example}]"))
    assert (len(question.answers), len(question.passages), question.dataset) == (2, 2, "novels")
    assert [piece.passage_id for piece in question.evidence] == [passage.id for passage in question.passages]
    assert question.metadata == {"source": "a book"}


# The plain format


def test_a_plain_item_becomes_a_question(tmp_path: Path) -> None:
    (question,) = load(written(tmp_path, [PLAIN]))
    bob = question.passages[1].id
    assert bob.startswith("mine:")
    assert question == Question(
        id="q1",
        text="Where was Ada born?",
        answers=("London", "Westminster"),
        evidence=(Evidence("p1", 0), Evidence(bob), Evidence("elsewhere")),
        passages=(Passage("p1", "Ada", "She was there."), Passage(bob, "Bob", "He was not.")),
        hops=2,
        dataset="mine",
        metadata={"kind": "bridge", "source": "a book"},
    )


def held(value: Any) -> str | None:
    """Text as it is, all else as JSON in a string."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def test_all_containers_hold_the_same_plain_questions(tmp_path: Path) -> None:
    """CSV and Parquet hold lists as JSON in strings; Parquet may hold them as they are."""
    items = [PLAIN, {"question": 'He said "hi",\nWho?', "answer": "Bob"}]
    expected = load(written(tmp_path, items))
    assert load(written(tmp_path, json.dumps(items))) == expected
    columns = [*PLAIN, "answer"]
    as_text = [{key: held(item.get(key)) for key in columns} for item in items]
    path = tmp_path / "questions"
    pq.write_table(pa.Table.from_pylist(as_text), path)
    assert load(path) == expected
    assert recognise(path).container == "Parquet"
    quoted = [",".join('"' + (value or "").replace('"', '""') + '"' for value in row.values()) for row in as_text]
    for mark, end in (("", "\n"), ("\ufeff", "\r\n")):
        path = written(tmp_path, mark + end.join([",".join(columns), *quoted]) + end)
        assert load(path) == expected
        assert recognise(path).container == "CSV"


def test_parquet_keeps_lists_and_structs(tmp_path: Path) -> None:
    path = tmp_path / "questions"
    item = PLAIN | {"evidence": PLAIN["evidence"][:1]}  # a column has one type
    pq.write_table(pa.Table.from_pylist([item | {"id": number} for number in range(5)]), path, row_group_size=2)
    questions = load(path)
    assert [question.id for question in questions] == ["0", "1", "2", "3", "4"]
    assert {question.answers for question in questions} == {("London", "Westminster")}
    assert {question.evidence for question in questions} == {(Evidence("p1", 0),)}
    assert {len(question.passages) for question in questions} == {2}
    pq.write_table(pa.Table.from_pylist([item] * 3), path, row_group_size=2)
    refused(path, r"row 2 \(id 'q1'\): question id 'q1' was there before, at .*row 1 .*: the same item")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"question": None}, "field question: missing or null"),
        ({"question": ["a"]}, "field question: expected a string"),
        ({"answers": ["a", 3]}, r"field answers\[1\]: expected a string, got 3"),
        ({"answers": 3}, "field answers: expected a list, got 3"),
        ({"answers": "['a' 'b']"}, "field answers: a string that does not hold JSON"),
        ({"answer": "a"}, "both answer and answers"),
        ({"id": True}, "field id: expected a string, got true"),
        ({"hops": "two"}, "field hops: a string that does not hold JSON"),
        ({"hops": 0}, "field hops: 0, expected a number of hops from 1"),
        ({"passages": [{"title": "a"}]}, r"field passages\[0\].text: missing or null; keys here: title"),
        ({"passages": [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}]}, "two different passages have the id '1'"),
        ({"passages": [{"title": "T", "text": text} for text in "ab"], "evidence": ["T"]}, "2 passages have the title"),
        ({"evidence": [{"sentence": 1}]}, r"field evidence\[0\].passage_id: missing"),
        ({"metadata": {"source": "b"}}, "field source: is a key of metadata too"),
        ({"metadata": "[]"}, "field metadata: expected an object"),
        ({"kind": 3, "metadata": None}, "field kind: expected a string, got 3"),
        ({"database": 3}, "field database: expected a string, got 3"),
        ({"answerable": "no"}, 'field answerable: expected true or false, got "no"'),
        ({"facts": [["a", "b", "c"]]}, r"field facts: expected a \[subject, relation, object\] for each of the 3"),
        ({"note": "\ud800"}, "field note: half of a surrogate pair"),
        ({"note": ["\0"]}, "field note: a NUL character"),
        ({"note": json.loads("[" * 101 + "]" * 101)}, "field note: nested too deeply"),
        ({"\ud800": 1}, "half of a surrogate pair"),
    ],
)  # fmt: skip
def test_a_wrong_plain_field_is_named(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    refused(written(tmp_path, [PLAIN, PLAIN | {"id": "q2"} | change]), f"line 2.*{problem}")


def test_an_unanswerable_plain_question_has_no_answers(tmp_path: Path) -> None:
    (question,) = load(written(tmp_path, [{"question": "a", "answer": "b", "answerable": False}]))
    assert (question.answers, question.metadata) == ((), {"answerable": False})


def test_what_is_read_from_metadata_may_be_text_in_a_csv(tmp_path: Path) -> None:
    steps = '"[{""question"": ""Who?"", ""answer"": ""Bob""}]"'
    rows = f'question,answer,answerable,decomposition,note\na,b,False,,[1]\nc,d,true,{steps},"[]"\n'
    twin, other = load(written(tmp_path, rows))
    assert (twin.answers, twin.metadata) == ((), {"answerable": False, "note": "[1]"})
    assert other.answers == ("d",)
    assert other.metadata["decomposition"] == [{"question": "Who?", "answer": "Bob"}]


# Ids


def test_a_missing_id_is_made_from_what_is_asked_and_does_not_depend_on_the_rest_of_the_file(tmp_path: Path) -> None:
    first, second = {"question": "a", "answer": "b"}, {"question": "a", "answer": "c"}
    both = load(written(tmp_path, [first, second]))
    assert [question.id for question in both] == [load(written(tmp_path, [one]))[0].id for one in (first, second)]
    assert both[0].id != both[1].id
    assert both[0].id.startswith("plain:")


def test_an_item_without_an_id_may_come_again_and_is_numbered(tmp_path: Path) -> None:
    ids = [question.id for question in load(written(tmp_path, [{"question": "a"}, {"question": "b"}] * 3))]
    assert len(set(ids)) == 6
    assert ids[2:] == [f"{ids[0]}#2", f"{ids[1]}#2", f"{ids[0]}#3", f"{ids[1]}#3"]


def test_an_id_of_its_own_may_not_come_again(tmp_path: Path) -> None:
    items = [{"id": f"q{number}", "question": "a"} for number in range(3000)]
    assert len(load(written(tmp_path, items))) == 3000
    refused(written(tmp_path, [*items, items[7]]), "line 3001 .*'q7' was there before, at .*line 8 .*: the same item")
    refused(written(tmp_path, [*items, items[7] | {"answer": "b"}]), "line 3001 .*at .*line 8 .*: another item")


def test_a_stream_of_lines_needs_little_memory(tmp_path: Path) -> None:
    """15,000 lines of 1.2 MB; each question leaves 8 bytes, in a table that is up to two thirds full."""
    path = tmp_path / "questions"
    with path.open("w") as file:
        for number in range(15_000):
            file.write(f'{{"id": "train_{number}", "question": "Who is number {number}?", "golden_answers": ["a"]}}\n')
    tracemalloc.start()
    try:
        assert sum(1 for _ in iter_questions(path)) == 15_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 600_000


# Broken files


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x80\x04\x95", "not UTF-8 text: byte 0x80"),
        (b"question,answer\n", "empty, expected questions"),
        (b"question,answer\na\n", r"row 1 \(line 2\): 1 cells, expected 2: question, answer"),
        (b"question,answer\na,b\n\nc,d,e\n", r"row 2 \(line 4\): 3 cells, expected 2"),
        (b'question,answer\n"a\nb",c\nd\n', r"row 2 \(line 4\): 1 cells"),
        (b"question,question\na,b\n", "line 1: column 'question' is there twice"),
        (b'question,answer\na,"b\nc,d\n', "line 2: a quote is opened here that is never closed"),
        (b"question,answer\na,b\xe9\n", "line 2: not UTF-8 text: byte 0xe9 at offset 3"),
        (b"question,answer\na,b\0\n", "line 2: a NUL byte"),
        (b'question\n"' + b"a" * 200_000 + b'"\n', "line 2: CSV that cannot be read: field larger"),
        (b"asked,answer\na,b\n", "not recognised from the keys asked, answer"),
        (b"question,answer\n,b\n", r"row 1 \(line 2\): field question: missing or null"),
        (b'{"question": "a\0"}\n', "line 1: broken or cut-off JSON"),
        (b'{"question": "a", "n": 1e999}\n', "field n: a number out of range"),
        (b'{"question": "a", "n": ' + b"9" * 5000 + b"}\n", "JSON that cannot be read"),
        (b"PAR1", "broken or cut-off Parquet"),
        (b"PAR1" + b"\0" * 100 + b"PAR1", "broken or cut-off Parquet"),
    ],
)  # fmt: skip
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: bytes, problem: str) -> None:
    refused(written(tmp_path, content), problem)


def test_a_parquet_file_that_is_cut_off_or_holds_no_questions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "questions"
    pq.write_table(pa.table({"question": ["a", "b"], "blob": [b"a", b"b"]}), path)
    whole = path.read_bytes()
    refused(path, "row 1: field blob: expected text, numbers, lists or structs, got bytes")
    refused(written(tmp_path, whole[: len(whole) // 2]), "broken or cut-off Parquet")
    pq.write_table(pa.table([["a"], ["b"]], names=["question", "question"]), path)
    refused(path, "column 'question' is there twice")
    pq.write_table(pa.table({"question": pa.array([], pa.string())}), path)
    refused(path, "empty, expected questions")


def test_a_name_that_no_file_can_have_is_a_data_error() -> None:
    with pytest.raises(DataError, match="cannot be read: embedded null byte"):
        load("a\0b")


def test_a_pipe_is_refused_as_it_cannot_be_read_twice() -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"question": "a"}')
    os.close(writing)
    path = Path(f"/dev/fd/{reading}")
    for read in (recognise, load):
        with pytest.raises(DataError, match=f"^{path}: cannot be read: .*not seekable"):
            read(path)
    os.close(reading)


EXAMPLES: tuple[Any, ...] = (
    PLAIN,
    {"_id": "a", "question": "b", "answer": "c", "supporting_facts": [["T", 0]], "context": [["T", ["S", " U"]]]},
    {"_id": "a", "type": "inference", "question": "b", "supporting_facts": "[]", "context": '[["T", ["S"]]]'},
    {
        "id": "2hop__1_2", "question": "b", "answer": "c", "answer_aliases": ["d"], "answerable": True,
        "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "S"}],
        "question_decomposition": [{"id": 1, "question": "e", "answer": "f", "paragraph_support_idx": 0}],
    },
    {"Question": "a", "answer": ["b"], "id": "c"},
    {"qid": "a", "question": "b", "answer": True, "facts": ["c"]},
    {"question": "a", "answer": "b\n#### 1,000"},
    {"id": "a", "question": "b", "golden_answers": ["c"], "metadata": {"supporting_facts": {"title": ["T"]}}},
    {"prompt": [{"role": "user", "content": "Question: a\nb"}], "reward_model": {"ground_truth": {"target": ["c"]}}},
    {"db_name": "a", "query": "SELECT {a, b} FROM t GROUP BY {};SELECT 'c'", "question": "d", "db_type": "sqlite"},
    {"id": "a", "question": [[{"role": "user", "content": "b"}]], "function": [{"name": "c"}]},
)  # fmt: skip
PIECES = (
    b'"',
    b"\\",
    b"\0",
    b"[",
    b"{",
    b"}",
    b"\xff",
    b"\n",
    b"null",
    b"\\ud800",
    b"1e999",
    b"NaN",
    b"-1",
    b",",
    b"true",
)


def test_whatever_is_done_to_a_file_only_a_data_error_leaves_load(tmp_path: Path) -> None:
    """Seeded damage to JSON lines, CSV and Parquet: bytes flipped, taken out, put in, cut off."""
    generator = random.Random(5)
    path = tmp_path / "table"
    pq.write_table(pa.table({"question": ["a", "b"], "answers": [["c"], ["d", "e"]], "hops": [1, 2]}), path)
    whole = [json.dumps(item).encode() + b"\n" for item in EXAMPLES]
    whole += [path.read_bytes(), b'Question,Answer\r\n"a, b","c\n"\r\nd 5" e,f\r\n', b"db_name,query,question\na,b,c\n"]
    for content in whole:
        assert load(written(tmp_path, content))
    outcomes = {"loaded": 0, "refused": 0}
    for _ in range(700):
        path = written(tmp_path, _damaged(generator.choice(whole), generator))
        try:
            load(path)
        except DataError as error:
            str(error).encode()
            outcomes["refused"] += 1
        else:
            outcomes["loaded"] += 1
    assert min(outcomes.values()) >= 50


@given(st.lists(changed(EXAMPLES), min_size=1, max_size=3), st.sampled_from(("auto", *FORMATS)), st.booleans())
@settings(max_examples=500)
def test_whatever_a_field_holds_only_a_data_error_leaves_load(
    tmp_path_factory: pytest.TempPathFactory, items: list[Json], format: str, as_lines: bool
) -> None:
    """What is loaded can be stored: valid text, and JSON as metadata."""
    texts = [json.dumps(item) for item in items]
    content = "\n".join(texts) if as_lines else f"[{', '.join(texts)}]"
    path = written(tmp_path_factory.getbasetemp(), content.encode())
    try:
        questions = load(path, format)
    except DataError as error:
        str(error).encode()
        return
    assert len(questions) == len(items)
    for question in questions:
        json.dumps(asdict(question), ensure_ascii=False, allow_nan=False).encode()


def _damaged(content: bytes, generator: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(generator.choice([1, 1, 2, 4])):
        at = generator.randrange(len(damaged) + 1)
        match generator.randrange(4):
            case 0:
                damaged[at : at + 1] = bytes([generator.randrange(256)])
            case 1:
                del damaged[at : at + generator.choice([1, 3, 30])]
            case 2:
                damaged[at:at] = generator.choice(PIECES)
            case _:
                del damaged[at + len(damaged) // 2 :]
    return bytes(damaged)
