"""The splits of a run: of the built-in world, and of a question file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from agent_r1.config import Config, parse
from agent_r1.dataset import of_file, splits
from agent_r1.errors import DataError
from agent_r1.questions.records import Json

SMALL_WORLD: dict[str, Json] = {
    "people": 8, "cities": 4, "countries": 3, "companies": 4, "films": 4, "warm_start_scale": 2, "hops": [2, 3],
    "warm_start": 30, "train": 20, "validation": 10, "test": 6,
}  # fmt: skip


def world(**changes: Json) -> Config:
    return parse({"world": {**SMALL_WORLD, **changes}}, "test")


def hotpot(path: Path, count: int, answer: str | None = "yes", first: int = 0) -> Path:
    items = []
    for number in range(first, first + count):
        item = {
            "_id": f"q{number}",
            "question": f"Is it {number}?",
            "supporting_facts": [["Shared", 0]],
            "context": [["Shared", ["One sentence."]], [f"Own {number}", ["Another."]]],
            "type": "bridge",
            "level": "easy",
        }
        items.append(item if answer is None else {**item, "answer": answer})
    path.write_text(json.dumps(items))
    return path


def of(path: Path, **data: Json) -> Config:
    return parse({"data": {"path": str(path), **data}, "tools": ["search"]}, "test")


def test_a_world_has_four_splits_of_the_asked_sizes() -> None:
    made = splits(world())
    assert [(split.name, len(split.questions)) for split in made] == [
        ("warm_start", 30), ("train", 20), ("validation", 10), ("test", 6),
    ]  # fmt: skip
    assert [len(split.passages) for split in made] == [46, 23, 23, 23]


def test_the_warm_start_adds_questions_of_one_hop() -> None:
    warm_start, train, *_ = splits(world())
    assert Counter(question.hops for question in warm_start.questions) == {1: 10, 2: 10, 3: 10}
    assert Counter(question.hops for question in train.questions) == {2: 10, 3: 10}


def test_the_warm_start_of_comparisons_shows_single_steps_too() -> None:
    made = splits(world(hops=[2], kinds=["comparison"]))[0]
    assert {question.kind for question in made.questions if question.hops == 1} == {"compositional"}


def test_splits_share_no_question_and_no_passage() -> None:
    made = splits(world())
    ids = [question.id for split in made for question in split.questions]
    passages = [passage.id for split in made for passage in split.passages]
    assert len(set(ids)) == len(ids)
    assert len(set(passages)) == len(passages)


def test_the_same_configuration_makes_the_same_splits() -> None:
    assert splits(world()) == splits(world())
    assert splits(world(seed=1))[1].questions != splits(world())[1].questions


def test_a_file_is_split_by_each_question_s_own_id(tmp_path: Path) -> None:
    """More questions in the file, or another seed, move none from one split to the other."""
    train, validation = splits(of(hotpot(tmp_path / "a.json", 100)))
    assert (train.name, validation.name) == ("train", "validation")
    assert len(train.questions) + len(validation.questions) == 100
    assert 10 <= len(validation.questions) <= 30
    larger = splits(of(hotpot(tmp_path / "b.json", 150)).model_copy(update={"seed": 9}))[1]
    assert {question.id for question in validation.questions} <= {question.id for question in larger.questions}
    assert not {one.id for one in train.questions} & {one.id for one in larger.questions}


def test_a_corpus_holds_each_passage_of_its_split_once(tmp_path: Path) -> None:
    train, _ = splits(of(hotpot(tmp_path / "a.json", 50)))
    titles = [passage.title for passage in train.passages]
    assert titles.count("Shared") == 1
    assert len(titles) == len(train.questions) + 1


def test_a_validation_file_leaves_the_training_file_whole(tmp_path: Path) -> None:
    train_file = hotpot(tmp_path / "a.json", 10)
    validation_file = hotpot(tmp_path / "b.json", 4, first=100)
    train, validation = splits(of(train_file, validation_path=str(validation_file)))
    assert (len(train.questions), len(validation.questions)) == (10, 4)


def test_too_few_questions_to_split_are_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too few"):
        splits(of(hotpot(tmp_path / "a.json", 1)))


def test_a_file_without_gold_answers_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.json"):
        of_file("test", hotpot(tmp_path / "a.json", 3, answer=None))


def test_an_absent_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.json"):
        splits(of(tmp_path / "absent.json"))
