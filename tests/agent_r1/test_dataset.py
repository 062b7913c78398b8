"""The splits of a run: of the built-in world, and of a question file."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_r1.config import Config, parse
from agent_r1.dataset import of_file, splits
from agent_r1.errors import DataError
from agent_r1.questions.records import Json, Question

SMALL_WORLD: dict[str, Json] = {
    "people": 8, "cities": 4, "countries": 3, "companies": 4, "films": 4, "warm_start_scale": 2, "hops": [2, 3],
    "warm_start": 30, "train": 20, "validation": 10, "test": 6,
}  # fmt: skip


def world(**changes: Json) -> Config:
    return parse({"world": {**SMALL_WORLD, **changes}, "evaluation": {"questions": 10}}, "test")


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


def test_a_file_is_split_by_each_question_s_own_text(tmp_path: Path) -> None:
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


def test_questions_of_one_text_land_in_one_split(tmp_path: Path) -> None:
    """Twins under other ids, told apart by case and white space alone."""
    path = hotpot(tmp_path / "a.json", 60)
    items = json.loads(path.read_text())
    twins = [{**item, "_id": f"twin {item['_id']}", "question": f" {item['question'].upper()} "} for item in items]
    path.write_text(json.dumps(items + twins))
    train, validation = splits(of(path))
    assert len(train.questions) + len(validation.questions) == 120
    assert not texts(train.questions) & texts(validation.questions)


def texts(questions: Sequence[Question]) -> set[str]:
    return {" ".join(question.text.lower().split()) for question in questions}


def test_a_question_of_the_validation_file_is_not_trained_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """q0 to q9, and q8 to q11: two ids are in both; q7 is asked there again under another id."""
    validation_file = hotpot(tmp_path / "b.json", 4, first=8)
    items = json.loads(validation_file.read_text())
    items.append({**items[0], "_id": "another", "question": "is  it 7? "})
    validation_file.write_text(json.dumps(items))
    with caplog.at_level(logging.WARNING, logger="agent_r1.dataset"):
        train, validation = splits(of(hotpot(tmp_path / "a.json", 10), validation_path=str(validation_file)))
    assert [question.id for question in train.questions] == [f"q{number}" for number in range(7)]
    assert len(validation.questions) == 5
    assert "Own 8" not in {passage.title for passage in train.passages}
    (record,) = caplog.records
    assert "3 questions" in record.getMessage()


@pytest.mark.parametrize(("count", "first"), [(10, 0), (4, 2), (30, 0)])
def test_validation_on_the_training_questions_is_a_data_error_that_names_both_keys(
    tmp_path: Path, count: int, first: int
) -> None:
    """The same questions, a part of them, or more than them."""
    other = hotpot(tmp_path / "b.json", count, first=first)
    with pytest.raises(DataError, match=r"data\.path .*a\.json and data\.validation_path .*b\.json"):
        splits(of(hotpot(tmp_path / "a.json", 10), validation_path=str(other)))


def test_the_training_file_itself_is_no_validation_file(tmp_path: Path) -> None:
    path = hotpot(tmp_path / "a.json", 10)
    with pytest.raises(DataError, match=r"data\.validation_path"):
        splits(of(path, validation_path=str(path)))


def musique(path: Path, *answerable: bool) -> Path:
    """MuSiQue's twins: what their answer needs was taken away, so nothing can be scored."""
    item = {
        "id": "2hop__1_2",
        "question": "Where?",
        "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "Text.", "is_supporting": True}],
        "answer": "Rome",
    }
    path.write_text("\n".join(json.dumps({**item, "answerable": each}) for each in answerable))
    return path


def test_questions_that_cannot_be_scored_are_refused_and_counted(tmp_path: Path) -> None:
    path = musique(tmp_path / "a.jsonl", True, False)
    told = (
        r"a\.jsonl: 1 of 2 questions have no gold answer \(1 of them are marked as unanswerable\): set data\.unscorable"
    )
    with pytest.raises(DataError, match=told):
        of_file("test", path)
    mixed = json.loads(hotpot(tmp_path / "b.json", 3).read_text())
    mixed += json.loads(hotpot(tmp_path / "c.json", 2, answer=None, first=3).read_text())
    (tmp_path / "b.json").write_text(json.dumps(mixed))
    with pytest.raises(DataError, match=r"b\.json: 2 of 5 questions have no gold answer: set data\.unscorable=skip"):
        splits(of(tmp_path / "b.json"))
    whole = hotpot(tmp_path / "d.json", 9, first=10)
    with pytest.raises(DataError, match=r"b\.json: 2 of 5"):
        splits(of(whole, validation_path=str(tmp_path / "b.json")))


def test_questions_that_cannot_be_scored_are_left_out_where_that_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = musique(tmp_path / "a.jsonl", True, False)
    with caplog.at_level(logging.WARNING, logger="agent_r1.dataset"):
        kept = of_file("test", path, unscorable="skip").questions
    assert [question.id for question in kept] == ["2hop__1_2"]
    (record,) = caplog.records
    assert "1 of 2 questions have no gold answer" in record.getMessage()


def test_a_file_of_which_nothing_can_be_scored_is_refused_whatever_is_asked_for(tmp_path: Path) -> None:
    path = musique(tmp_path / "a.jsonl", False)
    for unscorable in ("refuse", "skip"):
        with pytest.raises(DataError, match=r"a\.jsonl: 1 of 1 questions have no gold answer .*nothing is left"):
            of_file("test", path, unscorable=unscorable)


def test_a_question_of_whose_gold_queries_none_runs_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "town.sqlite") as connection:
        connection.execute("CREATE TABLE cat (age INTEGER)")
    connection.close()
    golds = {"good": ["SELECT x FROM cat", "SELECT age FROM cat"], "bad": ["SELECT x FROM cat"]}
    items = [{"id": name, "question": name, "answers": golds[name], "database": "town"} for name in golds]
    lost = {"id": "lost", "question": "lost", "answer": "SELECT 1", "database": "city"}
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(item) for item in [*items, lost, {"question": "plain", "answer": "b"}]))
    kept = of_file("test", path, unscorable="skip", databases=tmp_path).questions
    assert [question.text for question in kept] == ["good", "plain"]
    assert kept[0].answers == ("SELECT age FROM cat", "SELECT x FROM cat"), "what is demonstrated is the first"
    with pytest.raises(DataError, match=r"2 of 4 .* that runs: question 'bad': .*town\.sqlite.*no such column: x"):
        of_file("test", path, databases=tmp_path)
    path.write_text(json.dumps(lost))
    with pytest.raises(DataError, match=r"1 of 1 .*: question 'lost': .*no file for the database 'city'"):
        of_file("test", path, databases=tmp_path)
    with pytest.raises(DataError, match=r"about databases such as 'city': set data\.databases"):
        of_file("test", path)
