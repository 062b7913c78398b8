"""Trajectories made small, and tokens as texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from report_home import ASKED, EVIL, annotation, decode, ids, trajectory

from flows.report.packing import TOKENS, Pieces, pack


def packed(*arguments: Any) -> Any:
    """As JSON, for reading."""
    return pack(*arguments)


VOCABULARY = {1: b"a", 2: "語".encode()[:1], 3: "語".encode()[1:2], 4: "語".encode()[2:], 5: b"\xff"}


def half_characters(tokens: Sequence[int]) -> str:
    """A byte-level tokenizer."""
    return b"".join(VOCABULARY[token] for token in tokens).decode(errors="replace")


def without_first_space(tokens: Sequence[int]) -> str:
    """A tokenizer of words that drops the space before the first."""
    return " ".join({1: "the", 2: "cat"}[token] for token in tokens)


def test_a_character_of_several_tokens_is_the_last_one_s_text() -> None:
    assert Pieces(half_characters).of([1, 2, 3, 4, 1]) == ["a", "", "", "語", "a"]


def test_what_never_becomes_a_character_stays_broken_token_by_token() -> None:
    assert Pieces(half_characters).of([5, 1, 2]) == ["\ufffd", "a", "\ufffd"]


def test_a_space_that_a_tokenizer_drops_at_the_beginning_is_kept() -> None:
    assert Pieces(without_first_space).of([1, 2, 1]) == [" the", " cat", " the"]


def test_chosen_tokens_have_what_they_were_worth_in_thousandths() -> None:
    one = trajectory("a", 1, "train", "v1", right=True)
    marked, credit = annotation(one)
    found = packed([one], [marked], [credit], {"v1": ASKED[0]}, decode)
    (shown,) = found["trajectories"]
    first, second = shown["t"]
    texts = found["texts"]
    assert [texts[place] for place in first["a"]] == list("call")
    assert [texts[place] for place in found["given"][second["g"]]] == list("found")
    assert (shown["r"], shown["m"], shown["f"]) == (1250, 1, 1000)
    assert (first["l"], first["v"], first["d"]) == (
        [-500, -250, -125, 0],
        [3000, 4000, 5000, 6000],
        [-3000, -4000, -5000, -6000],
    )
    assert (first["w"], first["b"]) == ([[3, 250]], {"evidence": 270, "turn": -20})
    assert (second["w"], second["v"]) == ([[2, 1000]], [12000, 13000, 14000])
    assert first["o"][0][2:] == ["ok", EVIL]


def test_each_segment_has_its_own_mask() -> None:
    one = trajectory("a", 1, "train", "v1", right=True)
    one = replace(one, turns=(one.turns[0], replace(one.turns[1], segment=1)))
    marked, credit = annotation(one)
    parts = [(0, slice(0, 6)), (1, slice(6, 14))]
    rows = [
        replace(
            marked, segment=segment, action_mask=marked.action_mask[part], rewards=marked.rewards[part],
            reward_parts={segment: marked.reward_parts[segment]},
        )
        for segment, part in parts
    ]  # fmt: skip
    credits = [
        replace(credit, segment=segment, values=credit.values[part], advantages=credit.advantages[part])
        for segment, part in parts
    ]
    (shown,) = packed([one], rows, credits, {}, decode)["trajectories"]
    assert [turn["v"] for turn in shown["t"]] == [[3000, 4000, 5000, 6000], [12000, 13000, 14000]]
    assert [turn.get("s", 0) for turn in shown["t"]] == [0, 1]


def test_an_evaluation_has_neither_rewards_nor_values() -> None:
    (shown,) = packed([trajectory("a", 1, "sampled", "v1", right=False)], [], [], {}, decode)["trajectories"]
    assert shown["r"] is None
    assert all(not {"v", "d", "w", "b"} & set(turn) for turn in shown["t"])


def test_an_endless_turn_is_cut_and_says_by_how_much() -> None:
    one = trajectory("a", 1, "sampled", "v1", right=True)
    long = replace(
        one.turns[0],
        given_ids=ids("x") * (TOKENS + 7),
        action_ids=ids("y") * (TOKENS + 2),
        action_logprobs=(0.0,) * (TOKENS + 2),
    )
    found = packed([replace(one, turns=(long,))], [], [], {}, decode)
    (shown,) = found["trajectories"]
    assert (len(found["given"][0]), len(shown["t"][0]["a"]), shown["t"][0]["x"]) == (TOKENS, TOKENS, [7, 2])


def test_what_is_given_again_is_stored_once() -> None:
    many = [trajectory("a", iteration, "sampled", "v1", right=True) for iteration in range(50)]
    found = packed(many, [], [], {}, decode)
    assert len(found["given"]) == 2
    assert found["questions"] == [{"id": "v1", "text": "v1", "answers": [], "hops": None, "dataset": ""}]
