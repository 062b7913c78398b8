"""The flat rows that training reads, and the credits that PPO leaves for them. Computing both is left to agent_r1."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
from duckdb import DuckDBPyConnection

from agent_r1.trajectory import Annotation, Credit
from storage.rows import BOOLS, FLOATS, INTS, insert, same_lengths, texts, to_json

WANTED = """run = $run AND ($iteration IS NULL OR iteration = $iteration)
            AND ($ids IS NULL OR trajectory_id IN (SELECT unnest($ids::VARCHAR[])))"""


def save(con: DuckDBPyConnection, run: str, iteration: int, annotations: Sequence[Annotation]) -> None:
    """Replace the annotations of an iteration. ValueError names one whose lists differ in length."""
    rows = annotations
    for row in rows:
        same_lengths(
            f"annotation {row.trajectory_id}, segment {row.segment}",
            token_ids=row.token_ids,
            action_mask=row.action_mask,
            logprobs=row.logprobs,
            rewards=row.rewards,
        )
    columns = {
        "token_ids": pa.array([row.token_ids for row in rows], INTS),
        "action_mask": pa.array([row.action_mask for row in rows], BOOLS),
        "logprobs": pa.array([row.logprobs for row in rows], FLOATS),
        "rewards": pa.array([row.rewards for row in rows], FLOATS),
        "reward_parts": texts(to_json(row.reward_parts) for row in rows),
    }
    _replace(con, "annotations", run, iteration, rows, columns)


def load(
    con: DuckDBPyConnection, run: str, iteration: int | None = None, ids: Sequence[str] | None = None
) -> list[Annotation]:
    """The annotations of an iteration, or of the trajectories of these ids, by trajectory id and segment."""
    rows = con.execute(
        f"""SELECT trajectory_id, segment, token_ids, action_mask, logprobs, rewards, reward_parts FROM annotations
            WHERE {WANTED} ORDER BY trajectory_id, segment""",
        _keys(run, iteration, ids),
    ).fetchall()
    return [
        Annotation(
            trajectory_id=trajectory_id,
            segment=segment,
            token_ids=tuple(token_ids),
            action_mask=tuple(action_mask),
            logprobs=tuple(logprobs),
            rewards=tuple(rewards),
            reward_parts={int(turn): parts for turn, parts in json.loads(reward_parts).items()},
        )
        for trajectory_id, segment, token_ids, action_mask, logprobs, rewards, reward_parts in rows
    ]


def reward_parts(
    con: DuckDBPyConnection, run: str, iteration: int, trajectory_ids: Sequence[str]
) -> dict[str, dict[int, dict[str, float]]]:
    """By trajectory, turn and component what was paid; nothing of trajectories that are not annotated."""
    rows = con.execute(
        """SELECT trajectory_id, reward_parts FROM annotations
           WHERE run = ? AND iteration = ? AND trajectory_id IN (SELECT unnest(?::VARCHAR[]))""",
        [run, iteration, list(trajectory_ids)],
    ).fetchall()
    found: dict[str, dict[int, dict[str, float]]] = {}
    for trajectory_id, parts in rows:
        found.setdefault(trajectory_id, {}).update({int(turn): each for turn, each in json.loads(parts).items()})
    return found


def save_credits(con: DuckDBPyConnection, run: str, iteration: int, credits: Sequence[Credit]) -> None:
    """Replace the credits of an iteration. ValueError names one whose lists differ in length."""
    for row in credits:
        same_lengths(
            f"credit {row.trajectory_id}, segment {row.segment}",
            values=row.values,
            advantages=row.advantages,
            returns=row.returns,
        )
    columns = {
        "values": pa.array([row.values for row in credits], FLOATS),
        "advantages": pa.array([row.advantages for row in credits], FLOATS),
        "returns": pa.array([row.returns for row in credits], FLOATS),
    }
    _replace(con, "credits", run, iteration, credits, columns)


def load_credits(
    con: DuckDBPyConnection, run: str, iteration: int | None = None, ids: Sequence[str] | None = None
) -> list[Credit]:
    """The credits of an iteration, or of the trajectories of these ids, by trajectory id and segment."""
    rows = con.execute(
        f"""SELECT trajectory_id, segment, "values", advantages, returns FROM credits
            WHERE {WANTED} ORDER BY trajectory_id, segment""",
        _keys(run, iteration, ids),
    ).fetchall()
    return [
        Credit(trajectory_id, segment, tuple(values), tuple(advantages), tuple(returns))
        for trajectory_id, segment, values, advantages, returns in rows
    ]


def _keys(run: str, iteration: int | None, ids: Sequence[str] | None) -> dict[str, object]:
    return {"run": run, "iteration": iteration, "ids": None if ids is None else list(ids)}


def _replace(
    con: DuckDBPyConnection,
    table: str,
    run: str,
    iteration: int,
    rows: Sequence[Annotation] | Sequence[Credit],
    columns: dict[str, pa.Array],
) -> None:
    keys = {
        "run": texts(run for _ in rows),
        "iteration": pa.array([iteration for _ in rows], pa.int32()),
        "trajectory_id": texts(row.trajectory_id for row in rows),
        "segment": pa.array([row.segment for row in rows], pa.int32()),
    }
    con.execute(f"DELETE FROM {table} WHERE run = ? AND iteration = ?", [run, iteration])
    insert(con, table, {**keys, **columns})
