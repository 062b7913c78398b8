"""Trajectories and their turns, token by token as sampled. Marking and pricing them is left to annotate."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from duckdb import DuckDBPyConnection

from agent_r1.questions.records import Json
from agent_r1.tools.protocol import Source
from agent_r1.trajectory import CallRecord, Purpose, Trajectory, Turn
from storage.rows import FLOATS, INTS, insert, same_lengths, texts, to_json

TURN = "turn, segment, given_ids, action_ids, action_logprobs, action_text, tool_calls, observation_text, reward"


@dataclass(frozen=True, slots=True)
class Outline:
    """A trajectory without its turns: what it takes to choose some. `given` and `chosen` are numbers of tokens."""

    trajectory_id: str
    iteration: int
    purpose: Purpose
    question_id: str
    exact_match: float
    dataset: str | None
    hops: int | None
    given: int
    chosen: int


def save(
    con: DuckDBPyConnection,
    run: str,
    iteration: int,
    purpose: Purpose,
    shard: int,
    trajectories: Sequence[Trajectory],
) -> None:
    """Replace the rows of one shard. ValueError names a trajectory of another run, iteration or purpose, or one with
    a turn whose action ids and log-probabilities differ in number."""
    for trajectory in trajectories:
        _check(trajectory, run, iteration, purpose)
    _delete(con, run, iteration, purpose, shard)
    _insert_trajectories(con, shard, trajectories)
    _insert_turns(con, trajectories)


def load(
    con: DuckDBPyConnection,
    run: str,
    iteration: int,
    purpose: Purpose,
    shard: int | None = None,
    limit: int | None = None,
) -> list[Trajectory]:
    """The trajectories of an iteration, or of one of its shards, by question and attempt, as they were saved.

    With `limit` only the first so many.
    """
    where = "run = $run AND iteration = $iteration AND purpose = $purpose AND ($shard IS NULL OR shard = $shard)"
    keys = {"run": run, "iteration": iteration, "purpose": purpose, "shard": shard, "limit": limit}
    wanted = f"FROM trajectories WHERE {where} ORDER BY question_id, attempt LIMIT $limit"
    turns: dict[str, list[Turn]] = defaultdict(list)
    for trajectory_id, *columns in con.execute(
        f"""SELECT trajectory_id, {TURN}
            FROM turns SEMI JOIN (SELECT trajectory_id {wanted}) USING (trajectory_id)
            WHERE run = $run AND iteration = $iteration ORDER BY trajectory_id, turn""",
        keys,
    ).fetchall():
        turns[trajectory_id].append(_turn(*columns))
    rows = con.execute(
        f"SELECT trajectory_id, question_id, attempt, checkpoint, ending, answer, exact_match, f1 {wanted}",
        keys,
    ).fetchall()
    return [
        Trajectory(run, iteration, purpose, *columns, turns=tuple(turns[trajectory_id]))
        for trajectory_id, *columns in rows
    ]


def outlines(con: DuckDBPyConnection, run: str) -> list[Outline]:
    """Every trajectory of a run without its turns, by iteration, purpose, question and attempt."""
    rows = con.execute(
        """SELECT trajectory_id, iteration, purpose, question_id, exact_match, dataset, hops,
                  coalesce(given, 0)::BIGINT, coalesce(chosen, 0)::BIGINT
           FROM trajectories
           LEFT JOIN (SELECT trajectory_id, sum(len(given_ids)) AS given, sum(len(action_ids)) AS chosen
                      FROM turns WHERE run = $run GROUP BY trajectory_id) USING (trajectory_id)
           LEFT JOIN questions USING (question_id)
           WHERE run = $run ORDER BY iteration, purpose, question_id, attempt""",
        {"run": run},
    ).fetchall()
    return [Outline(*columns) for columns in rows]


def some(con: DuckDBPyConnection, run: str, ids: Sequence[str]) -> list[Trajectory]:
    """The trajectories of these ids, in that order; those that the run does not have are left out."""
    keys = {"run": run, "ids": list(ids)}
    wanted = "run = $run AND trajectory_id IN (SELECT unnest($ids::VARCHAR[]))"
    turns: dict[str, list[Turn]] = defaultdict(list)
    for trajectory_id, *columns in con.execute(
        f"SELECT trajectory_id, {TURN} FROM turns WHERE {wanted} ORDER BY trajectory_id, turn", keys
    ).fetchall():
        turns[trajectory_id].append(_turn(*columns))
    found = {
        trajectory_id: Trajectory(run, *columns, turns=tuple(turns[trajectory_id]))
        for trajectory_id, *columns in con.execute(
            f"""SELECT trajectory_id, iteration, purpose, question_id, attempt, checkpoint, ending, answer, exact_match,
                       f1
                FROM trajectories WHERE {wanted}""",
            keys,
        ).fetchall()
    }
    return [found[each] for each in ids if each in found]


def ending_with(con: DuckDBPyConnection, run: str, wanted: str) -> list[tuple[str, int, Purpose]]:
    """(id, iteration, purpose) of the run's trajectories whose id ends so, one that equals it first."""
    rows = con.execute(
        "SELECT trajectory_id, iteration, purpose FROM trajectories WHERE run = ? AND suffix(trajectory_id, ?) "
        "ORDER BY trajectory_id = ? DESC, trajectory_id",
        [run, wanted, wanted],
    ).fetchall()
    return [(name, iteration, purpose) for name, iteration, purpose in rows]


def _check(trajectory: Trajectory, run: str, iteration: int, purpose: Purpose) -> None:
    name = trajectory.trajectory_id
    if (trajectory.run, trajectory.iteration, trajectory.purpose) != (run, iteration, purpose):
        raise ValueError(f"trajectory {name} is not of {run}/{iteration}/{purpose}")
    for turn in trajectory.turns:
        what = f"trajectory {name}, turn {turn.index}"
        same_lengths(what, action_ids=turn.action_ids, action_logprobs=turn.action_logprobs)


def _delete(con: DuckDBPyConnection, run: str, iteration: int, purpose: Purpose, shard: int) -> None:
    keys = {"run": run, "iteration": iteration, "purpose": purpose, "shard": shard}
    where = "run = $run AND iteration = $iteration AND purpose = $purpose AND shard = $shard"
    con.execute(
        f"""DELETE FROM turns WHERE run = $run AND iteration = $iteration
            AND trajectory_id IN (SELECT trajectory_id FROM trajectories WHERE {where})""",
        keys,
    )
    con.execute(f"DELETE FROM trajectories WHERE {where}", keys)


def _insert_trajectories(con: DuckDBPyConnection, shard: int, rows: Sequence[Trajectory]) -> None:
    columns = {
        "run": texts(row.run for row in rows),
        "iteration": pa.array([row.iteration for row in rows], pa.int32()),
        "purpose": texts(row.purpose for row in rows),
        "question_id": texts(row.question_id for row in rows),
        "attempt": pa.array([row.attempt for row in rows], pa.int32()),
        "trajectory_id": texts(row.trajectory_id for row in rows),
        "shard": pa.array([shard for _ in rows], pa.int32()),
        "checkpoint": pa.array([row.checkpoint for row in rows], pa.int32()),
        "ending": texts(row.ending for row in rows),
        "turns": pa.array([len(row.turns) for row in rows], pa.int32()),
        "answer": texts(row.answer for row in rows),
        "exact_match": pa.array([row.exact_match for row in rows], pa.float64()),
        "f1": pa.array([row.f1 for row in rows], pa.float64()),
    }
    insert(con, "trajectories", columns)


def _insert_turns(con: DuckDBPyConnection, trajectories: Sequence[Trajectory]) -> None:
    rows = [(trajectory, turn) for trajectory in trajectories for turn in trajectory.turns]
    columns = {
        "run": texts(trajectory.run for trajectory, _ in rows),
        "iteration": pa.array([trajectory.iteration for trajectory, _ in rows], pa.int32()),
        "trajectory_id": texts(trajectory.trajectory_id for trajectory, _ in rows),
        "turn": pa.array([turn.index for _, turn in rows], pa.int32()),
        "segment": pa.array([turn.segment for _, turn in rows], pa.int32()),
        "action_text": texts(turn.action_text for _, turn in rows),
        "tool_calls": texts(to_json([_call_json(call) for call in turn.calls]) for _, turn in rows),
        "observation_text": texts(turn.observation_text for _, turn in rows),
        "given_ids": pa.array([turn.given_ids for _, turn in rows], INTS),
        "action_ids": pa.array([turn.action_ids for _, turn in rows], INTS),
        "action_logprobs": pa.array([turn.action_logprobs for _, turn in rows], FLOATS),
        "reward": pa.array([turn.reward for _, turn in rows], pa.float64()),
    }
    insert(con, "turns", columns)


def _turn(
    index: int,
    segment: int,
    given_ids: list[int],
    action_ids: list[int],
    action_logprobs: list[float],
    action_text: str,
    tool_calls: str,
    observation_text: str,
    reward: float,
) -> Turn:
    return Turn(
        index=index,
        segment=segment,
        given_ids=tuple(given_ids),
        action_ids=tuple(action_ids),
        action_logprobs=tuple(action_logprobs),
        action_text=action_text,
        calls=tuple(_call(**call) for call in json.loads(tool_calls)),
        observation_text=observation_text,
        reward=reward,
    )


def _call_json(call: CallRecord) -> dict[str, Json]:
    sources: list[Json] = [
        {"passage_id": source.passage_id, "sentence": source.sentence, "start": source.start, "end": source.end}
        for source in call.sources
    ]
    return {
        "name": call.name,
        "arguments": dict(call.arguments),
        "ok": call.ok,
        "text": call.text,
        "sources": sources,
        "malformed": call.malformed,
    }


def _call(
    name: str, arguments: dict[str, Json], ok: bool, text: str, sources: list[dict[str, Json]], malformed: bool
) -> CallRecord:
    return CallRecord(name, arguments, ok, text, tuple(_source(source) for source in sources), malformed)


def _source(source: dict) -> Source:
    return Source(source["passage_id"], source["sentence"], source["start"], source["end"])
