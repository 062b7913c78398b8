"""Trajectories, annotations and credits come back token by token as they were saved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from agent_r1.tools.protocol import JsonObject, Source
from agent_r1.trajectory import Annotation, CallRecord, Credit, Trajectory, Turn
from storage import annotations, trajectories
from storage.database import Store

CALLED = Turn(
    index=0,
    segment=0,
    given_ids=(0, 5, 151643),
    action_ids=(7, 8, 2),
    action_logprobs=(-0.1, -1e-17, -123.456789012345678),
    action_text='<tool_call>{"name": "lookup"}</tool_call>',
    calls=(
        CallRecord(
            name="lookup",
            arguments={"entity": "Zürich 東京 🙂", "limit": None, "nested": {"list": [1, 2.5, [], {}], "no": False}},
            ok=True,
            text='line\n"quoted" \u0000 \u2028',
            sources=(Source("p1", None, 0, 4), Source("p2", 3, 5, 9)),
        ),
        CallRecord(name="lookup", arguments={}, ok=False, text="no argument 'entity'"),
        CallRecord(name="", arguments={}, ok=False, text="not JSON", malformed=True),
    ),
    observation_text="東京",
)
ANSWERED = Turn(1, 0, (9, 9), (3, 2), (-0.5, -0.25), "<answer>東京</answer>", reward=0.1)
ONE = Trajectory("r", 1, "train", "q1", 0, 0, "answered", "東京", 1.0, 0.5, (CALLED, ANSWERED))
NONE = Trajectory("r", 1, "train", "q1", 1, 0, "prompt_too_long", None, 0.0, 0.0, ())
EMPTY_ANSWER = Trajectory("r", 1, "train", "q0", 0, 0, "answered", "", 0.0, 0.0, (replace(ANSWERED, index=0),))

NOTE = Annotation(
    trajectory_id="r/1/train/q1/0",
    segment=0,
    token_ids=(5, 7, 8),
    action_mask=(False, True, True),
    logprobs=(0.0, -0.1, -1e-17),
    rewards=(0.0, 0.0, 0.1 + 0.2),
    reward_parts={0: {"evidence": 0.3}, 11: {}},
)
CREDIT = Credit("r/1/train/q1/0", 0, (0.0, 0.5, 0.25), (0.0, -1.5, math.pi), (0.0, 1.0, 1 / 3))


@pytest.fixture
def con(tmp_path: Path) -> Iterator[DuckDBPyConnection]:
    with Store(tmp_path / "store.duckdb").write() as con:
        yield con


def test_a_trajectory_comes_back_exactly(con: DuckDBPyConnection) -> None:
    trajectories.save(con, "r", 1, "train", 0, [ONE, NONE, EMPTY_ANSWER])
    assert trajectories.load(con, "r", 1, "train") == [EMPTY_ANSWER, ONE, NONE]


def test_one_shard_can_be_loaded_alone(con: DuckDBPyConnection) -> None:
    trajectories.save(con, "r", 1, "train", 0, [ONE])
    trajectories.save(con, "r", 1, "train", 1, [NONE, EMPTY_ANSWER])
    assert trajectories.load(con, "r", 1, "train", shard=0) == [ONE]
    assert trajectories.load(con, "r", 1, "train", shard=1) == [EMPTY_ANSWER, NONE]
    assert trajectories.load(con, "r", 1, "train", shard=2) == []


def test_the_first_few_can_be_loaded_alone(con: DuckDBPyConnection) -> None:
    """By question and attempt: q0 before q1, attempt 0 before 1."""
    trajectories.save(con, "r", 1, "train", 0, [NONE, ONE, EMPTY_ANSWER])
    assert trajectories.load(con, "r", 1, "train", limit=2) == [EMPTY_ANSWER, ONE]
    assert trajectories.load(con, "r", 1, "train", limit=9) == [EMPTY_ANSWER, ONE, NONE]


def test_none_and_missing_stay_apart(con: DuckDBPyConnection) -> None:
    given: list[JsonObject] = [{"a": None}, {"b": [None]}, {}]
    calls = tuple(CallRecord("f", arguments, True, "") for arguments in given)
    saved = replace(ONE, turns=(replace(CALLED, calls=calls),))
    trajectories.save(con, "r", 1, "train", 0, [saved])
    loaded = trajectories.load(con, "r", 1, "train")[0].turns[0].calls
    assert [call.arguments for call in loaded] == given


def test_other_alphabets_are_readable_in_the_store(con: DuckDBPyConnection) -> None:
    trajectories.save(con, "r", 1, "train", 0, [ONE])
    rows = con.execute("SELECT tool_calls->0->'arguments'->>'entity' FROM turns WHERE turn = 0").fetchall()
    assert rows == [("Zürich 東京 🙂",)]
    assert con.execute("SELECT count(*) FROM turns WHERE tool_calls::VARCHAR LIKE '%東京%'").fetchone() == (1,)


def test_a_lone_surrogate_from_a_model_does_not_stop_a_run(con: DuckDBPyConnection) -> None:
    call = CallRecord("f", {"entity": "a\ud800b"}, False, "no a\ud800b")
    saved = replace(ONE, turns=(replace(CALLED, calls=(call,), observation_text="no a\ud800b"),))
    trajectories.save(con, "r", 1, "train", 0, [saved])
    turn = trajectories.load(con, "r", 1, "train")[0].turns[0]
    assert turn.observation_text == "no a\ufffdb"
    assert turn.calls[0].arguments == {"entity": "a\ufffdb"}


def test_saving_a_shard_again_replaces_that_shard_only(con: DuckDBPyConnection) -> None:
    greedy = replace(ONE, purpose="greedy")
    trajectories.save(con, "r", 1, "train", 0, [ONE])
    trajectories.save(con, "r", 1, "train", 1, [NONE])
    trajectories.save(con, "r", 1, "greedy", 0, [greedy])
    con.execute("COMMIT")
    con.execute("BEGIN")
    trajectories.save(con, "r", 1, "train", 0, [replace(ONE, f1=0.75)])
    assert trajectories.load(con, "r", 1, "train") == [replace(ONE, f1=0.75), NONE]
    assert trajectories.load(con, "r", 1, "greedy") == [greedy]
    assert con.execute("SELECT count(*) FROM turns").fetchone() == (4,)


def test_an_empty_shard_can_be_saved(con: DuckDBPyConnection) -> None:
    trajectories.save(con, "r", 1, "train", 0, [ONE])
    trajectories.save(con, "r", 1, "train", 0, [])
    assert trajectories.load(con, "r", 1, "train") == []
    assert con.execute("SELECT count(*) FROM turns").fetchone() == (0,)


def test_a_turn_with_more_ids_than_logprobs_is_refused_naming_the_trajectory(con: DuckDBPyConnection) -> None:
    short = replace(ONE, turns=(replace(CALLED, action_logprobs=(-0.1,)),))
    with pytest.raises(ValueError, match=r"r/1/train/q1/0, turn 0.*'action_ids': 3, 'action_logprobs': 1"):
        trajectories.save(con, "r", 1, "train", 0, [short])


def test_a_trajectory_of_another_iteration_is_refused(con: DuckDBPyConnection) -> None:
    with pytest.raises(ValueError, match="r/1/train/q1/0 is not of r/2/train"):
        trajectories.save(con, "r", 2, "train", 0, [ONE])


def test_annotations_come_back_exactly_in_order_and_replace_the_iteration(con: DuckDBPyConnection) -> None:
    second = replace(NOTE, segment=1, reward_parts={})
    other = replace(NOTE, trajectory_id="r/1/train/q0/0")
    annotations.save(con, "r", 1, [second, NOTE])
    annotations.save(con, "r", 2, [NOTE])
    annotations.save(con, "r", 1, [second, NOTE, other])
    assert annotations.load(con, "r", 1) == [other, NOTE, second]
    assert annotations.load(con, "r", 2) == [NOTE]
    annotations.save(con, "r", 1, [])
    assert annotations.load(con, "r", 1) == []


def test_credits_come_back_exactly(con: DuckDBPyConnection) -> None:
    for _ in range(2):
        annotations.save_credits(con, "r", 1, [replace(CREDIT, segment=1), CREDIT])
    assert annotations.load_credits(con, "r", 1) == [CREDIT, replace(CREDIT, segment=1)]


@pytest.mark.parametrize("name", ["token_ids", "action_mask", "logprobs", "rewards"])
def test_an_annotation_with_a_short_list_is_refused(con: DuckDBPyConnection, name: str) -> None:
    short = replace(NOTE, **{name: getattr(NOTE, name)[:2]})
    with pytest.raises(ValueError, match=rf"r/1/train/q1/0, segment 0.*'{name}': 2"):
        annotations.save(con, "r", 1, [short])


def test_a_credit_with_a_short_list_is_refused(con: DuckDBPyConnection) -> None:
    with pytest.raises(ValueError, match="'returns': 0"):
        annotations.save_credits(con, "r", 1, [replace(CREDIT, returns=())])
