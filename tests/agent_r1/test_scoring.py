"""How answers are read and scored. Numbers follow hotpot_evaluate_v1.py, worked out by hand."""

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from agent_r1.scoring import exact_match, extract_answer, f1_score, normalize_answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel Tower!", "eiffel tower"),
        ("A an the", ""),
        ("U.S.A.", "usa"),
        ("theatre", "theatre"),
        ("well-known", "wellknown"),
        ("Zürich\n(city)", "zürich city"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes, as in the original
        ("", ""),
    ],
)
def test_normalisation_drops_case_punctuation_articles_and_spaces(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


def test_exact_match_compares_whole_normalised_answers() -> None:
    assert exact_match("the Paris.", ["paris"]) == 1.0
    assert exact_match("Norway", ["no"]) == 0.0
    assert exact_match("Paris, France", ["Paris"]) == 0.0


def test_best_score_over_all_gold_answers_counts() -> None:
    assert exact_match("new york", ["NYC", "New York"]) == 1.0
    assert f1_score("New York City", ["NYC", "New York"]) == pytest.approx(0.8)  # 2*2 / (3+2)


def test_f1_counts_tokens_as_often_as_they_stand() -> None:
    assert f1_score("the cat sat", ["cat sat down"]) == pytest.approx(0.8)  # 2*2 / (2+3)
    assert f1_score("Paris Paris Paris Paris Paris", ["Paris"]) == pytest.approx(1 / 3)  # 2*1 / (5+1)
    assert f1_score("Rome", ["Paris"]) == 0.0


@pytest.mark.parametrize("word", ["yes", "no", "noanswer"])
def test_yes_and_no_match_entirely_or_not_at_all(word: str) -> None:
    assert f1_score(f"{word} indeed", [word]) == 0.0
    assert f1_score(word, [f"{word} indeed"]) == 0.0
    assert f1_score(word.upper() + ".", [word]) == 1.0


def test_two_texts_that_normalise_to_nothing_agree() -> None:
    assert f1_score("the", ["..."]) == 1.0
    assert exact_match("the", ["..."]) == 1.0
    assert f1_score("", ["Paris"]) == 0.0
    assert f1_score("Paris", [""]) == 0.0


def test_no_prediction_or_no_gold_scores_nothing() -> None:
    assert exact_match(None, [""]) == f1_score(None, [""]) == 0.0
    assert exact_match("x", []) == f1_score("x", []) == 0.0


def test_lone_string_as_answers_is_refused_by_value() -> None:
    with pytest.raises(ValueError, match="'Paris'"):
        exact_match("P", "Paris")
    with pytest.raises(ValueError, match="'Paris'"):
        f1_score("P", "Paris")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> Paris\n</answer>", "Paris"),
        ("<answer>a</answer> then <answer>b</answer>", "b"),
        ("<answer>a</answer> then <answer>b", "a"),
        ("I put it in <answer> tags: <answer>b</answer>", "b"),
        ("<answer><answer>b</answer></answer>", "b"),
        ("<answer>a</answer></answer>", "a"),
        ("<answer>two\nlines</answer>", "two\nlines"),
        ("<answer></answer>", ""),
        ("</answer>a<answer>", None),
        ("<answer>a", None),
        ("Paris", None),
        ("", None),
    ],
)
def test_last_closed_answer_counts(text: str, expected: str | None) -> None:
    assert extract_answer(text) == expected


@pytest.mark.parametrize("score", [exact_match, f1_score])
@pytest.mark.parametrize("bad", [None, 7])
def test_an_answer_that_is_no_string_is_refused_by_value(
    score: Callable[[str | None, Sequence[str]], float], bad: object
) -> None:
    for prediction in ("x", None):
        with pytest.raises(ValueError, match=f"got {bad}"):
            score(prediction, cast(Sequence[str], ["x", bad]))
