"""What items become: Bamboogle, StrategyQA, GSM8K, FlashRAG, Search-R1, Agent-R1, Defog and BFCL."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_r1.errors import DataError
from agent_r1.questions import Question, load
from agent_r1.questions.loading import recognise

SEARCH_PROMPT = "Answer the question. Put it into <answer> and </answer>, as <answer> Beijing </answer>. Question: "
AGENT_PROMPT = "Question: Where was Ada born?\nYou FIRST think about the reasoning. Question: is no mark here."
SEARCH_R1: dict[str, Any] = {
    "id": "train_0",
    "question": "Where was Ada born?",
    "golden_answers": ["London", "Westminster"],
    "data_source": "hotpotqa",
    "prompt": [{"role": "user", "content": f"{SEARCH_PROMPT}Where was Ada born?\n"}],
    "ability": "fact-reasoning",
    "reward_model": {"style": "rule", "ground_truth": {"target": ["London", "Westminster"]}},
    "extra_info": {"split": "train", "index": 0},
}
AGENT_R1: dict[str, Any] = {
    "data_source": "xanhho/2WikiMultihopQA",
    "prompt": [{"role": "user", "content": AGENT_PROMPT}],
    "ability": "multihop_qa",
    "reward_model": {"style": "rule", "ground_truth": "London"},
}
DEFOG: dict[str, Any] = {
    "db_name": "academic",
    "db_type": "sqlite",
    "query_category": "group_by",
    "query": "SELECT name FROM author;",
    "question": "Who writes?",
    "instructions": "",
}


def lines(folder: Path, *items: object) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return path


def table(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "a.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def cells(folder: Path, *rows: dict[str, Any]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path = folder / "a.csv"
    path.write_bytes(text.getvalue().encode())
    return path


def one(folder: Path, item: dict[str, Any], expected: str) -> Question:
    path = lines(folder, item)
    assert recognise(path).format == expected
    (question,) = load(path)
    return question


def test_bamboogle_has_a_capital_question_and_a_list_of_answers(tmp_path: Path) -> None:
    item = {
        "Question": "Who was king?",
        "source": "bamboogle",
        "id": "bamboogle_7",
        "answer": ["George VI\n", "George"],
    }
    question = one(tmp_path, item, "bamboogle")
    assert (question.id, question.text, question.answers) == ("bamboogle_7", "Who was king?", ("George VI", "George"))
    assert question.dataset == "bamboogle"


def test_bamboogle_s_sheet_keeps_a_stray_quote_and_a_line_s_end_inside_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(
        b'Question,Answer\r\nWho sang the 5" single?,"Ono, Yoko"\r\nWho was king?,"George VI\n"\r\nWho?,\r\n'
    )
    questions = load(path)
    assert [question.text for question in questions] == ['Who sang the 5" single?', "Who was king?", "Who?"]
    assert [question.answers for question in questions] == [("Ono, Yoko",), ("George VI",), ()]
    assert len({question.id for question in questions}) == 3
    assert all(question.id.startswith("bamboogle:") for question in questions)


def test_strategyqa_s_booleans_become_yes_and_no_and_its_test_file_has_none(tmp_path: Path) -> None:
    item = {
        "qid": "e004", "term": "Albany", "description": "City", "question": "Is it large?", "facts": ["It has 75,000."],
        "decomposition": ["How large is it?", "Is #1 large?"],
        "evidence": [[[["Albany-1"]], ["operation", "no_evidence"]]],
    }  # fmt: skip
    answered = one(tmp_path, item | {"answer": False}, "strategyqa")
    assert (answered.id, answered.answers) == ("e004", ("no",))
    assert answered.metadata["steps"] == ["How large is it?", "Is #1 large?"]
    assert answered.metadata["paragraphs"] == [[[["Albany-1"]], ["operation", "no_evidence"]]]
    assert one(tmp_path, item | {"answer": True}, "strategyqa").answers == ("yes",)
    assert one(tmp_path, {"qid": "e004", "question": "Is it large?"}, "strategyqa").answers == ()
    with pytest.raises(DataError, match='field answer: expected true or false, got "yes"'):
        load(lines(tmp_path, item | {"answer": "yes"}))


def test_gsm8k_s_result_is_right_with_and_without_commas(tmp_path: Path) -> None:
    solution = "She has 48/2 = <<48/2=24>>24.\n#### 2,125"
    question = one(tmp_path, {"question": "How many?", "answer": solution}, "gsm8k")
    assert (question.answers, question.metadata) == (("2,125", "2125"), {"solution": solution})
    assert one(tmp_path, {"question": "How cold?", "answer": "Cold.\n#### -5"}, "gsm8k").answers == ("-5",)
    socratic = "How many clips? ** She has 24.\n#### 24"
    assert one(tmp_path, {"question": "How many?", "answer": socratic}, "gsm8k").answers == ("24",)
    windows = "She has 24.\r\n#### 24\r\n"  # as a spreadsheet's CSV holds it
    assert one(tmp_path, {"question": "How many?", "answer": windows}, "gsm8k").answers == ("24",)
    first = {"question": "How cold?", "answer": "#### 1"}
    with pytest.raises(DataError, match='line 2: field answer: 0 lines begin with "#### "'):
        load(lines(tmp_path, first, {"question": "How many?", "answer": "24"}))


def test_flashrag_needs_no_metadata_and_takes_kind_and_hops_from_it(tmp_path: Path) -> None:
    item = {"id": "test_0", "question": "Where was Ada born?", "golden_answers": ["London", "London ", ""]}
    bare = one(tmp_path, item, "flashrag")
    assert (bare.id, bare.answers, bare.hops, bare.metadata) == ("test_0", ("London",), None, {})
    hotpot = {"type": "bridge", "supporting_facts": {"title": ["A", "B", "A"], "sent_id": [0, 1, 2]}}
    found = one(tmp_path, item | {"metadata": hotpot}, "flashrag")
    assert (found.hops, found.kind, found.evidence) == (2, "bridge", ())
    assert found.metadata["flashrag"] == hotpot
    musique = {
        "question_decomposition": [{"question": "a", "support_paragraph": {}}, {"question": "b"}, {"question": "c"}]
    }
    assert one(tmp_path, item | {"metadata": musique}, "flashrag").hops == 3
    assert one(tmp_path, item | {"metadata": json.dumps(musique)}, "flashrag").hops == 3
    assert one(tmp_path, item | {"golden_answers": []}, "flashrag").answers == ()


def test_search_r1_s_row_keeps_the_question_of_its_own_column(tmp_path: Path) -> None:
    path = table(tmp_path, SEARCH_R1)
    (question,) = load(path)
    assert recognise(path).format == "search_r1"
    assert (question.id, question.text, question.dataset) == ("hotpotqa:train_0", "Where was Ada born?", "hotpotqa")
    assert question.answers == ("London", "Westminster")
    assert question.metadata["split"] == "train"


def test_two_sets_merged_in_one_search_r1_file_may_count_alike(tmp_path: Path) -> None:
    other = SEARCH_R1 | {"data_source": "nq", "question": "Who?"}
    assert [question.id for question in load(table(tmp_path, SEARCH_R1, other))] == ["hotpotqa:train_0", "nq:train_0"]


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        ("London", ("London",)),
        (["London", "Londres"], ("London", "Londres")),
        ({"target": "London"}, ("London",)),
        ({"target": ["London", "Londres"]}, ("London", "Londres")),
        ('["London", "Londres"]', ("London", "Londres")),
        ("[1, 2]", ("[1, 2]",)),
        (None, ()),
    ],
)
def test_a_ground_truth_may_be_text_a_list_or_a_target(
    tmp_path: Path, truth: object, expected: tuple[str, ...]
) -> None:
    bare = {key: value for key, value in SEARCH_R1.items() if key not in ("golden_answers", "extra_info", "id")}
    item = bare | {"reward_model": {"ground_truth": truth, "style": "rule"}}
    assert one(tmp_path, item, "search_r1").answers == expected
    assert one(tmp_path, item | {"reward_model": json.dumps(item["reward_model"])}, "search_r1").answers == expected


def test_a_question_without_a_column_is_cut_out_of_search_r1_s_prompt(tmp_path: Path) -> None:
    bare = {key: SEARCH_R1[key] for key in ("data_source", "prompt", "reward_model")}
    assert one(tmp_path, bare, "search_r1").text == "Where was Ada born?"
    as_text = bare | {"prompt": json.dumps(bare["prompt"]), "extra_info": None}
    assert one(tmp_path, as_text, "search_r1").text == "Where was Ada born?"
    with pytest.raises(DataError, match="field prompt: no turn of the user"):
        load(lines(tmp_path, bare | {"prompt": [{"role": "system", "content": "Question: a"}]}))


def test_verl_s_rewrite_has_a_system_turn_another_source_and_the_question_in_extra_info(tmp_path: Path) -> None:
    item = {
        "data_source": "searchR1_nq",
        "prompt": [{"role": "system", "content": "Be good."}, {"role": "user", "content": f"{SEARCH_PROMPT}Who am I?"}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["You"]}},
        "extra_info": {"index": 3, "question": "who am I", "need_tools_kwargs": True, "split": "test"},
    }
    question = one(tmp_path, item, "search_r1")
    assert (question.text, question.dataset, question.answers) == ("who am I", "nq", ("You",))


def test_answers_that_were_joined_are_taken_from_the_list_that_says_so(tmp_path: Path) -> None:
    item = SEARCH_R1 | {"reward_model": {"ground_truth": "Paris, Texas, Rome"}, "golden_answers": None}
    listed = item | {"extra_info": {"answer": ["Paris, Texas", "Rome"]}}
    assert one(tmp_path, listed, "search_r1").answers == ("Paris, Texas", "Rome")
    alone = item | {"extra_info": {"answer": "Paris, Texas, Rome"}}
    assert one(tmp_path, alone, "search_r1").answers == ("Paris, Texas, Rome",)


def test_agent_r1_s_question_is_the_first_line_of_its_prompt(tmp_path: Path) -> None:
    path = table(tmp_path, AGENT_R1)
    (question,) = load(path)
    assert recognise(path).format == "agent_r1"
    assert (question.text, question.answers, question.dataset) == ("Where was Ada born?", ("London",), "2wiki")
    assert question.id.startswith("2wiki:")


def test_agent_r1_s_leftover_columns_of_the_source_make_no_other_format_of_it(tmp_path: Path) -> None:
    left = {"_id": "a", "question": "Where was she born?", "context": [], "supporting_facts": [], "paragraphs": []}
    question = one(tmp_path, AGENT_R1 | left, "agent_r1")
    assert (question.id, question.text) == ("2wiki:a", "Where was she born?")


def test_agent_r1_s_later_layout_holds_its_environment_as_json_in_a_string(tmp_path: Path) -> None:
    environment = {"env_type": "tool", "tools": ["calculator"], "tool_format": "hermes", "tools_kwargs": {}}
    item = {
        "data_source": "openai/gsm8k",
        "agent_name": "agent_env_loop",
        "prompt": [{"role": "system", "content": "Solve."}, {"role": "user", "content": "How many clips?"}],
        "ability": "math",
        "reward_model": {"ground_truth": "72", "style": "rule"},
        "extra_info": {"split": "train", "index": 0, "answer": "She sold 72.\n#### 72"},
        "env_kwargs": json.dumps(environment),
    }
    question = one(tmp_path, item, "agent_r1")
    assert (question.text, question.answers, question.dataset) == ("How many clips?", ("72",), "gsm8k")
    assert question.metadata["env_kwargs"] == environment
    with pytest.raises(DataError, match="field env_kwargs: a string that does not hold JSON"):
        load(lines(tmp_path, item | {"env_kwargs": "{"}))


def test_a_training_set_without_a_reward_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="field reward_model: missing or null"):
        load(lines(tmp_path, {key: AGENT_R1[key] for key in ("data_source", "prompt")}))
    with pytest.raises(DataError, match="field reward_model: no ground_truth in it; keys here: style"):
        load(lines(tmp_path, AGENT_R1 | {"reward_model": {"style": "rule"}}))


def test_defog_s_instructions_follow_the_question_and_its_database_is_named(tmp_path: Path) -> None:
    told = DEFOG | {"instructions": " Match names exactly. ", "full_instructions": "Match names exactly.\nCR = rank"}
    path = cells(tmp_path, DEFOG | {"full_instructions": ""}, told)
    bare, with_both = load(path)
    assert recognise(path).format == "defog"
    assert (bare.text, bare.answers) == ("Who writes?", ("SELECT name FROM author",))
    assert bare.metadata == {
        "database": "academic", "dialect": "sqlite", "kind": "group_by", "category": "group_by",
    }  # fmt: skip
    assert with_both.text == "Who writes?\n\nMatch names exactly."
    assert with_both.metadata["instructions"] == "Match names exactly."
    assert with_both.metadata["full_instructions"] == "Match names exactly.\nCR = rank"


def test_defog_s_postgres_file_has_another_order_and_no_dialect_and_other_ids(tmp_path: Path) -> None:
    order = ("question", "query", "db_name", "query_category", "instructions")
    (postgres,) = load(cells(tmp_path, {key: DEFOG[key] for key in order}))
    (sqlite,) = load(cells(tmp_path, DEFOG))
    assert postgres.metadata["dialect"] == "postgres"
    assert (postgres.text, postgres.answers) == (sqlite.text, sqlite.answers)
    assert postgres.id != sqlite.id


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a; SELECT b;", ("SELECT a", "SELECT b")),
        ("SELECT a;;\nSELECT a;", ("SELECT a",)),
        ("SELECT ';' ; SELECT 'it''s; {x}'", ("SELECT ';'", "SELECT 'it''s; {x}'")),
        ('SELECT ";" FROM t', ('SELECT ";" FROM t',)),
        ("SELECT {a, b} FROM t", ("SELECT a FROM t", "SELECT b FROM t", "SELECT a, b FROM t")),
        (
            "SELECT {a.x,a.y}, COUNT(*) FROM a GROUP BY {} ORDER BY 2",
            (
                "SELECT a.x, COUNT(*) FROM a GROUP BY a.x ORDER BY 2",
                "SELECT a.y, COUNT(*) FROM a GROUP BY a.y ORDER BY 2",
                "SELECT a.x, a.y, COUNT(*) FROM a GROUP BY a.x, a.y ORDER BY 2",
            ),
        ),
        ("SELECT {a} FROM t;SELECT b", ("SELECT a FROM t", "SELECT b")),
        (
            "SELECT {COALESCE(a, 0), b} FROM t",
            ("SELECT COALESCE(a, 0) FROM t", "SELECT b FROM t", "SELECT COALESCE(a, 0), b FROM t"),
        ),
    ],
)
def test_defog_s_gold_queries_are_every_alternative_and_every_choice_of_columns(
    tmp_path: Path, query: str, expected: tuple[str, ...]
) -> None:
    assert one(tmp_path, DEFOG | {"query": query}, "defog").answers == expected


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT {a,b,c,d,e,f,g,h,i} FROM t", "9 columns in braces, expected at most 8"),
        (";".join(f"SELECT {{a{n}, b, c, d, e, f, g}}" for n in range(4)), "more than 256 queries"),
        ("SELECT {a, b} FROM {c, d}", "braces, expected"),
        ("SELECT a GROUP BY {}", "braces, expected"),
        ("SELECT {a, b FROM t", "braces, expected"),
        ("SELECT {} FROM t", "braces, expected"),
        ("SELECT 'a FROM t", "a quote that is never closed"),
        ("SELECT ';', 'a FROM t", "a quote that is never closed"),
        (" ; ", "no query in it"),
    ],
)
def test_a_gold_query_that_says_something_else_is_refused(tmp_path: Path, query: str, problem: str) -> None:
    with pytest.raises(DataError, match=f"field query: {problem}"):
        load(lines(tmp_path, DEFOG | {"query": query}))


def test_a_defog_row_without_its_query_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 1 \(line 2\): field query: missing or null"):
        load(cells(tmp_path, {key: value for key, value in DEFOG.items() if key != "query"}))


def test_bfcl_s_item_has_functions_and_no_answers(tmp_path: Path) -> None:
    functions = [{"name": "triangle.area", "description": "d", "parameters": {"type": "dict", "properties": {}}}]
    turns = [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How large? "}],
        [{"role": "user", "content": "And?"}],
    ]
    question = one(tmp_path, {"id": "multiple_0", "question": turns, "function": functions}, "bfcl")
    assert (question.id, question.text, question.answers) == ("multiple_0", "How large?", ())
    assert question.metadata == {"turns": turns, "functions": functions}
    with pytest.raises(DataError, match="field question: empty, expected a list of turns"):
        load(lines(tmp_path, {"id": "multiple_0", "question": [], "function": functions}))
    with pytest.raises(DataError, match="not recognised from the keys id, ground_truth"):
        load(lines(tmp_path, {"id": "multiple_0", "ground_truth": []}))
