"""Rewards by hand: bounded, conserved, on action tokens, and not to be farmed (B3, B16, B17, F3, F6)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from agent_r1.questions.records import Evidence, Json, Question
from agent_r1.rewards import annotate, evidence_by_turn, reward_parts, score_of
from agent_r1.sections import RewardConfig
from agent_r1.tools.protocol import Source
from agent_r1.trajectory import CallRecord, Ending, Trajectory, Turn

PRICES = RewardConfig(
    outcome=1.0, evidence=0.3, turn=-0.05, malformed=-0.1, failed=-0.2, repeated=-0.4, unanswered=-0.7
)
QUESTION = Question("q", "?", ("gold",), (Evidence("p", 1), Evidence("r", 2), Evidence("s")))
MALFORMED = CallRecord("", {}, ok=False, text="error", malformed=True)


def look(x: str, *sources: tuple[str, int | None], ok: bool = True, text: str = "text") -> CallRecord:
    shown = tuple(Source(passage, sentence, 0, 1) for passage, sentence in sources)
    return CallRecord("look", {"x": x}, ok, text, shown)


def attempt(*calls: Sequence[CallRecord], ending: Ending = "answered", match: float = 1.0) -> Trajectory:
    """One turn for each group of calls; given and action tokens are two each."""
    turns = tuple(Turn(index, 0, (1, 2), (3, 4), (-1.0, -2.0), "", tuple(made)) for index, made in enumerate(calls))
    answer = "x" if ending == "answered" else None
    return Trajectory("run", 1, "train", "q", 0, 0, ending, answer, match, match, turns)


def total(trajectory: Trajectory, prices: RewardConfig = PRICES, question: Question = QUESTION) -> float:
    return sum(sum(parts.values()) for parts in reward_parts(trajectory, question, prices).values())


def test_each_turn_is_paid_for_what_it_changed() -> None:
    """Three pieces of evidence at .1 each; a turn costs .05; the answer is right."""
    trajectory = attempt([look("a", ("p", 1))], [look("b", ("r", 2), ("s", 0))], [])
    parts = reward_parts(trajectory, QUESTION, PRICES)
    assert parts[0] == pytest.approx({"evidence": 0.1, "turn": -0.05})
    assert parts[1] == pytest.approx({"evidence": 0.2, "turn": -0.05})
    assert parts[2] == {"outcome": 1.0}


def test_evidence_is_paid_once_for_each_piece() -> None:
    trajectory = attempt([look("a", ("p", 1)), look("b", ("p", 1))], [look("c", ("p", 1))], [])
    assert evidence_by_turn(trajectory.turns, QUESTION) == [1, 0, 0]


def test_a_whole_passage_shows_its_sentences_and_another_sentence_does_not() -> None:
    assert evidence_by_turn(attempt([look("a", ("p", None))]).turns, QUESTION) == [1]
    assert evidence_by_turn(attempt([look("a", ("p", 0), ("r", 1))]).turns, QUESTION) == [0]


def test_a_failed_call_shows_nothing() -> None:
    assert evidence_by_turn(attempt([look("a", ("p", 1), ok=False)]).turns, QUESTION) == [0]


def test_evidence_is_taken_back_without_an_answer() -> None:
    """Evidence sums to 0; the last turn also pays for no answer."""
    trajectory = attempt([look("a", ("p", 1))], [look("b", ("r", 2))], ending="max_turns", match=0.0)
    parts = reward_parts(trajectory, QUESTION, PRICES)
    assert parts[0] == pytest.approx({"evidence": 0.1, "turn": -0.05})
    assert parts[1] == pytest.approx({"evidence": -0.1, "turn": -0.05, "unanswered": -0.7})


def test_a_wrong_answer_keeps_its_evidence_and_gets_no_outcome() -> None:
    assert total(attempt([look("a", ("p", 1))], [], match=0.0)) == pytest.approx(0.1 - 0.05)


SHAPED = RewardConfig(outcome=1, evidence=0, potential=0.6, turn=0, malformed=0, failed=0, repeated=0, unanswered=0)


def test_the_potential_pays_each_turn_s_rise_and_the_last_turn_gives_all_of_it_back() -> None:
    """Of three pieces one, then two at .2 each; the answering turn takes .6 back and earns its outcome."""
    parts = reward_parts(attempt([look("a", ("p", 1))], [look("b", ("r", 2), ("s", 0))], []), QUESTION, SHAPED)
    assert parts[0] == pytest.approx({"potential": 0.2})
    assert parts[1] == pytest.approx({"potential": 0.4})
    assert parts[2] == pytest.approx({"potential": -0.6, "outcome": 1.0})


def test_a_last_turn_s_own_rise_is_given_back_at_once() -> None:
    """Whatever the ending: the second turn finds .2 and falls from .4 to 0; one turn alone gets nothing."""
    parts = reward_parts(
        attempt([look("a", ("p", 1))], [look("b", ("r", 2))], ending="max_turns", match=0.0), QUESTION, SHAPED
    )
    assert parts == {0: pytest.approx({"potential": 0.2}), 1: pytest.approx({"potential": -0.2})}
    assert reward_parts(attempt([look("a", ("p", 1))], ending="max_turns", match=0.0), QUESTION, SHAPED) == {0: {}}


def test_the_potential_leaves_the_other_components_as_they_are() -> None:
    trajectory = attempt([look("a", ("p", 1))], [MALFORMED], ending="no_answer", match=0.0)
    shaped = reward_parts(trajectory, QUESTION, PRICES.model_copy(update={"potential": 0.6}))
    rest = {turn: {name: value for name, value in of.items() if name != "potential"} for turn, of in shaped.items()}
    assert rest == reward_parts(trajectory, QUESTION, PRICES)


def test_malformed_failed_and_repeated_count_once_a_turn() -> None:
    many = [MALFORMED, MALFORMED, look("a", ok=False), look("a", ok=False), look("a")]
    parts = reward_parts(attempt(many, []), QUESTION, PRICES)
    assert parts[0] == pytest.approx({"turn": -0.05, "malformed": -0.1, "failed": -0.2, "repeated": -0.4})


def test_a_malformed_call_is_neither_failed_nor_repeated() -> None:
    parts = reward_parts(attempt([MALFORMED], [MALFORMED], []), QUESTION, PRICES)
    assert parts[0] == parts[1] == pytest.approx({"turn": -0.05, "malformed": -0.1})


def test_a_call_is_repeated_whatever_the_order_of_its_arguments() -> None:
    def two(**arguments: Json) -> CallRecord:
        return CallRecord("look", arguments, ok=True, text="")

    again = attempt([two(a=1, b=2)], [two(b=2, a=1)], [])
    assert reward_parts(again, QUESTION, PRICES)[1]["repeated"] == -0.4
    other = attempt([two(a=1, b=2)], [two(a=1, b=3)], [])
    assert "repeated" not in reward_parts(other, QUESTION, PRICES)[1]


def test_the_outcome_counts_once_on_the_last_turn() -> None:
    """B16: three turns, right answer, no process prices: 1 in all."""
    prices = RewardConfig(outcome=1.0, evidence=0, turn=0, malformed=0, failed=0, repeated=0)
    trajectory = attempt([look("a")], [look("b")], [])
    assert reward_parts(trajectory, QUESTION, prices) == {0: {}, 1: {}, 2: {"outcome": 1.0}}
    assert total(trajectory, prices) == 1.0


def test_process_rewards_change_the_rewards() -> None:
    """B17."""
    trajectory = attempt([look("a", ("p", 1))], [])
    (on,) = annotate(trajectory, QUESTION, PRICES)
    (off,) = annotate(trajectory, QUESTION, RewardConfig(evidence=0, turn=0, malformed=0, failed=0, repeated=0))
    assert on.rewards == pytest.approx((0, 0, 0, 0.05, 0, 0, 0, 1.0))
    assert off.rewards == pytest.approx((0, 0, 0, 0, 0, 0, 0, 1.0))


def test_a_reward_sits_on_the_last_action_token_of_its_turn_where_the_mask_is_true() -> None:
    (row,) = annotate(attempt([look("a")], [look("a")], []), QUESTION, PRICES)
    assert [place for place, reward in enumerate(row.rewards) if reward] == [3, 7, 11]
    assert row.action_mask == (False, False, True, True) * 3
    assert row.logprobs == (0.0, 0.0, -1.0, -2.0) * 3


def test_a_penalty_is_kept_where_a_tool_spoke_last() -> None:
    """B3: the last turn's observation has no token after it; the penalty sits on the last action token."""
    trajectory = attempt([look("a")], ending="context_full", match=0.0)
    (row,) = annotate(trajectory, QUESTION, PRICES)
    assert row.rewards == pytest.approx((0, 0, 0, -0.75))


def test_segments_share_a_trajectory_s_rewards_and_lose_none() -> None:
    first = Turn(0, 0, (1,), (2,), (-1.0,), "", (look("a", ("p", 1)),))
    second = Turn(1, 1, (3, 4), (5, 6), (-1.0, -1.0), "", (look("b", ("r", 2)),))
    third = Turn(2, 1, (7,), (8,), (-1.0,), "")
    trajectory = Trajectory("run", 1, "train", "q", 0, 0, "answered", "gold", 1.0, 1.0, (first, second, third))
    one, two = annotate(trajectory, QUESTION, PRICES)
    assert one.rewards == pytest.approx((0, 0.05))
    assert two.rewards == pytest.approx((0, 0, 0, 0.05, 0, 1.0))
    assert (one.segment, set(one.reward_parts), two.segment, set(two.reward_parts)) == (0, {0}, 1, {1, 2})


def test_a_trajectory_without_turns_has_no_rows() -> None:
    assert annotate(attempt(ending="prompt_too_long", match=0.0), QUESTION, PRICES) == []


def test_a_question_without_evidence_pays_none() -> None:
    assert total(attempt([look("a", ("p", 1))], []), question=Question("q", "?", ("gold",))) == pytest.approx(0.95)


def test_each_component_can_be_switched_off() -> None:
    trajectory = attempt([MALFORMED, look("a", ("p", 1)), look("a", ok=False)], ending="truncated", match=0.0)
    free = RewardConfig(outcome=0, evidence=0, turn=0, malformed=0, failed=0, repeated=0, unanswered=0)
    assert reward_parts(trajectory, QUESTION, free) == {0: {}}


def random_calls(rng: random.Random) -> list[CallRecord]:
    passages = [("p", 1), ("r", 2), ("s", None), ("other", 0)]
    made = [
        look(rng.choice("abc"), *rng.sample(passages, rng.randrange(3)), ok=rng.random() < 0.7)
        for _ in range(rng.randrange(4))
    ]
    return [*made, MALFORMED] if rng.random() < 0.3 else made


@pytest.mark.parametrize("seed", range(40))
def test_rewards_are_conserved_whatever_happened(seed: int) -> None:
    rng = random.Random(seed)
    ending: Ending = rng.choice(["answered", "no_answer", "truncated", "max_turns", "context_full"])
    trajectory = attempt(*(random_calls(rng) for _ in range(rng.randrange(1, 6))), ending=ending, match=0.0)
    (row,) = annotate(trajectory, QUESTION, PRICES.model_copy(update={"potential": 0.7}))
    parts = [value for of in row.reward_parts.values() for value in of.values()]
    assert sum(row.rewards) == pytest.approx(sum(parts), abs=1e-9)
    assert all(chosen or not reward for chosen, reward in zip(row.action_mask, row.rewards, strict=True))
    evidence = sum(of.get("evidence", 0.0) for of in row.reward_parts.values())
    assert -1e-9 <= evidence <= 0.3 + 1e-9
    assert sum(of.get("potential", 0.0) for of in row.reward_parts.values()) == pytest.approx(0, abs=1e-9)
    if ending != "answered":
        assert evidence == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_calls_that_bring_nothing_new_never_pay(seed: int) -> None:
    """Anti-farming: insert turns of calls that show no new gold evidence; the total does not rise."""
    rng = random.Random(seed)
    ending: Ending = rng.choice(["answered", "no_answer", "max_turns"])
    turns = [random_calls(rng) for _ in range(3)]
    shown = [source for made in turns for one in made if one.ok for source in one.sources]
    farmed = CallRecord("look", {"x": "again"}, ok=True, text="", sources=tuple(shown))
    more = [*turns[:-1], *([farmed] for _ in range(rng.randrange(1, 5))), turns[-1]]
    before, after = attempt(*turns, ending=ending, match=0.0), attempt(*more, ending=ending, match=0.0)
    pieces = sum(evidence_by_turn(before.turns, QUESTION))
    assert sum(evidence_by_turn(after.turns, QUESTION)) == pieces
    assert total(after) < total(before)


def test_calling_without_ever_answering_never_pays() -> None:
    """All evidence, in as many calls as one likes, and no answer, is worth less than saying nothing."""
    silent = total(attempt([], ending="no_answer", match=0.0))
    for count in range(1, 6):
        calls = [[look(str(number), ("p", 1), ("r", 2), ("s", None))] for number in range(count)]
        assert total(attempt(*calls, ending="max_turns", match=0.0)) < silent


FACTS = Question(
    "q",
    "?",
    ("1950",),
    (Evidence("Ann", 5), Evidence("Bob", 5)),
    metadata={"facts": [["Ann", "mentor", "Bob"], ["Bob", "birth_year", "1950"]]},
)


@pytest.mark.parametrize(
    ("query", "text", "counts"),
    [
        ("SELECT mentor FROM person WHERE name = 'Ann'", "mentor\nBob", [1]),
        ("SELECT name, mentor FROM person", "name | mentor\nAnn | Bob", [1]),
        ("SELECT mentor FROM person WHERE name = 'Eve'", "mentor\nBob", [0]),
        ("SELECT birth_year FROM person WHERE name = 'Bob'", "1950", [1]),
        ("SELECT name, mentor, birth_year FROM person", "Ann | Bob | 1900\nBob | Eve | 1950", [2]),
        ("SELECT 'Ann'", "Ann", [0]),
    ],
)
def test_a_query_shows_a_fact_by_naming_or_returning_its_subject_and_returning_its_object(
    query: str, text: str, counts: list[int]
) -> None:
    made = CallRecord("sql", {"query": query}, ok=True, text=text)
    assert evidence_by_turn(attempt([made]).turns, FACTS) == counts


def test_components_are_priced_by_the_configuration() -> None:
    dear = RewardConfig(turn=-0.25)
    assert reward_parts(attempt([look("a")], []), QUESTION, dear)[0] == {"turn": -0.25}


def sql_call(query: str, text: str, name: str = "sql") -> CallRecord:
    return CallRecord(name, {"query": query}, ok=True, text=text)


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("SELECT director FROM film WHERE name = 'A'", "director\nB", 1),
        ("SELECT name, director FROM film", "name | director\nA | B", 1),
        ("SELECT string_agg(name, ' ') FROM person --A director", "B C D", 0),
        ("SELECT string_agg(name, ' ') FROM person /* A director */", "B C D", 0),
        ("SELECT 'A', string_agg(name, ' ') FROM person", "A | B C D", 0),
        ("SELECT director FROM film WHERE name = 'A'", "director\nBB", 0),
        ("SELECT 'B' AS director, 'A'", "director | 'A'\nB | A", 0),
        ("SELECT director IN ('B', 'C') FROM film WHERE name = 'A'", "(director IN ('B', 'C'))\nfalse", 0),
    ],
)
def test_a_query_shows_a_fact_that_it_asked_for_and_that_came_back(query: str, text: str, found: int) -> None:
    asked = Question("q", "?", ("B",), (Evidence("A", 1),), metadata={"facts": [["A", "director", "B"]]})
    turn = Turn(0, 0, (1,), (2,), (0.0,), "", (sql_call(query, text),))
    assert evidence_by_turn([turn], asked) == [found]
    other = Turn(0, 0, (1,), (2,), (0.0,), "", (sql_call(query, text, name="calculator"),))
    assert evidence_by_turn([other], asked) == [0]


def test_scores_that_differ_by_rounding_alone_are_equal() -> None:
    assert 0.1 + 0.2 != 0.3
    assert score_of([0.1, 0.2]) == score_of([0.3]) == 0.3
    assert score_of([]) == 0.0
