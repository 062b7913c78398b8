"""Scripted demonstrations: what they search for, in which order, and when there are none."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from agent_r1.questions import Evidence, Passage, Question, load
from agent_r1.questions.demonstrations import demonstration

SLICES = Path(os.environ.get("AGENT_R1_TEST_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data")

BRIDGE = Question(
    id="b",
    text="In what year did the author of Alû (novel) win the great prize?",
    answers=("1999 ", "'99"),
    evidence=(Evidence("p2", 0), Evidence("p1", 0), Evidence("p2", 1)),
    passages=(
        Passage("p1", "Alû (novel)", "By Ann."),
        Passage("p2", "Ann &amp; Bob", "A prize."),
        Passage("p3", "C", ""),
    ),
)
HOPS = Question(
    id="m",
    text="Where was the performer of Brother formed?",
    answers=("Seattle",),
    evidence=(Evidence("p1"), Evidence("p2")),
    metadata={
        "decomposition": [
            {"question": "Brother >> performer", "answer": "Pearl Jam", "paragraph_support_idx": 0},
            {"question": "What city was #1 formed in ?", "answer": "Seattle", "paragraph_support_idx": 3},
        ]
    },
)


def queries(turns: list[str]) -> list[str]:
    """The queries of all turns but the last, each of which must be exactly one call of search."""
    found = []
    for turn in turns[:-1]:
        assert turn.startswith("<tool_call>\n")
        assert turn.endswith("\n</tool_call>")
        call = json.loads(turn.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
        assert call == {"name": "search", "arguments": {"query": call["arguments"]["query"]}}
        found.append(call["arguments"]["query"])
    return found


def test_one_search_for_each_gold_passage_then_the_answer() -> None:
    turns = demonstration(BRIDGE, seed=0)
    assert len(turns) == 3
    assert turns[-1] == "<answer>1999</answer>"
    assert "\\u" not in turns[0]


def test_the_passage_that_the_question_names_is_searched_first_and_by_its_plain_name() -> None:
    for seed in range(10):
        first, second = queries(demonstration(BRIDGE, seed))
        assert first.startswith("Alû")
        assert second.startswith("Ann & Bob")
        assert set(first.split()) <= {"Alû", "year", "author", "novel", "win", "great", "prize"}


def test_a_first_hop_that_the_question_does_not_name_is_searched_by_the_words_of_the_question() -> None:
    hidden = dataclasses.replace(BRIDGE, text="Who wrote the novel about a demon that won in 1999?")
    first, second = queries(demonstration(hidden, seed=0))
    assert first == "wrote novel about demon won 1999"
    assert second.startswith("Alû")


def test_sub_questions_carry_the_answers_of_earlier_hops_only() -> None:
    seen = {tuple(queries(demonstration(HOPS, seed))) for seed in range(40)}
    assert seen == {
        ("Brother performer", "What city was Pearl Jam formed in?"),
        ("Brother performer", "city Pearl Jam formed"),
    }


def test_seed_and_question_decide_the_texts() -> None:
    assert demonstration(BRIDGE, 3) == demonstration(BRIDGE, 3)
    assert len({tuple(demonstration(BRIDGE, seed)) for seed in range(10)}) > 1


def test_no_demonstration_without_answers_or_whole_evidence() -> None:
    for question in (BRIDGE, HOPS):
        assert demonstration(dataclasses.replace(question, answers=()), 0) == []
        assert demonstration(dataclasses.replace(question, evidence=()), 0) == []
    assert demonstration(dataclasses.replace(BRIDGE, passages=BRIDGE.passages[:1]), 0) == []
    assert demonstration(dataclasses.replace(HOPS, metadata={**HOPS.metadata, "answerable": False}), 0) == []


@pytest.mark.parametrize(
    "name",
    [
        "hotpotqa/hotpot_train_slice.json",
        "hotpotqa/hotpot_dev_hf_layout.jsonl",
        "musique/musique_ans_train_slice.jsonl",
    ],
)
def test_every_real_question_has_a_demonstration_as_long_as_its_hops(name: str) -> None:
    if not (SLICES / name).is_file():
        pytest.skip(f"no {name} in {SLICES}")
    for question in load(SLICES / name):
        turns = demonstration(question, seed=1)
        assert all(query.strip() for query in queries(turns))
        assert len(turns) == (question.hops or 0) + 1
        assert turns[-1] == f"<answer>{question.answers[0].strip()}</answer>"
