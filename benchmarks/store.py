"""The store: rows in and out against JSONL and Parquet, and an iteration's cost as the store grows.

Trajectories are made up: four turns, about two hundred tokens, the length of a quickstart's and what a search prompt
makes longer is left out. Only storing them is measured.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agent_r1.seeds import generator
from agent_r1.trajectory import Annotation, CallRecord, Trajectory, Turn
from storage import annotations, trajectories
from storage.database import Store

RUN = "benchmark"
TURNS, GIVEN, ACTION = 4, 32, 18
FIELDS = [field.name for field in fields(Annotation)]
ITERATION = 192
"""Trajectories of a quickstart iteration."""


def made_up(count: int, run: str = RUN, iteration: int = 1) -> list[Trajectory]:
    """Trajectories with the shape of real ones, alike for one run and iteration."""
    rng = generator(0, "benchmark", run, iteration)
    return [_trajectory(number, run, iteration, rng) for number in range(count)]


def _trajectory(number: int, run: str, iteration: int, rng: np.random.Generator) -> Trajectory:
    turns = tuple(_turn(index, rng) for index in range(TURNS))
    return Trajectory(
        run, iteration, "train", f"question-{number:07d}", 0, iteration - 1, "answered", "Brelova", 1.0, 1.0, turns
    )


def _turn(index: int, rng: np.random.Generator) -> Turn:
    given, action = (int(rng.integers(size // 2, size * 3 // 2)) for size in (GIVEN, ACTION))
    call = CallRecord("lookup", {"entity": "Brelova", "relation": "director"}, True, "Santovik")
    return Turn(
        index=index,
        segment=0,
        given_ids=tuple(rng.integers(0, 760, given).tolist()),
        action_ids=tuple(rng.integers(0, 760, action).tolist()),
        action_logprobs=tuple((-rng.exponential(1.0, action)).tolist()),
        action_text='<tool_call>\n{"name": "lookup", "arguments": {"entity": "Brelova", "relation": "director"}}\n',
        calls=(call,),
        observation_text="Santovik",
    )


def flat(rows: Sequence[Trajectory]) -> list[Annotation]:
    """The annotations of made-up trajectories."""
    return [_annotation(row) for row in rows]


def _annotation(row: Trajectory) -> Annotation:
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    for turn in row.turns:
        ids += [*turn.given_ids, *turn.action_ids]
        mask += [False] * len(turn.given_ids) + [True] * len(turn.action_ids)
        logprobs += [0.0] * len(turn.given_ids) + list(turn.action_logprobs)
    rewards = [0.0] * (len(ids) - 1) + [1.0]
    parts = {turn.index: {"turn": -0.02} for turn in row.turns}
    return Annotation(row.trajectory_id, 0, tuple(ids), tuple(mask), tuple(logprobs), tuple(rewards), parts)


def formats(count: int, rounds: int) -> dict[str, float]:
    """Annotation rows a second into and out of the store, JSONL and zstd Parquet, and megabytes; medians.

    In and out mean from and to the product's own records, as a stage needs them.
    """
    rows = flat(made_up(count))
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="agent-r1-bench-") as name:
            for key, value in _once(rows, Path(name)).items():
                found.setdefault(key, []).append(value)
    return {key: statistics.median(values) for key, values in found.items()}


def _once(rows: Sequence[Annotation], folder: Path) -> dict[str, float]:
    store, lines, columns = Store(folder / "store.duckdb"), folder / "rows.jsonl", folder / "rows.parquet"
    with store.write():
        pass  # an empty store: making the tables is not measured
    found: dict[str, float] = {}
    ways: list[tuple[str, Path, Callable[[], None], Callable[[], list[Annotation]]]] = [
        ("store", store.path, lambda: _into_store(store, rows), lambda: _out_of_store(store)),
        ("jsonl", lines, lambda: _into_lines(lines, rows), lambda: _out_of_lines(lines)),
        ("parquet", columns, lambda: _into_parquet(columns, rows), lambda: _out_of_parquet(columns)),
    ]
    for name, path, write, read in ways:
        found[f"{name}/rows_in_per_s"] = len(rows) / _seconds(write)
        found[f"{name}/rows_out_per_s"] = len(rows) / _seconds(read)
        found[f"{name}/mib"] = path.stat().st_size / 2**20
    return found


def _into_store(store: Store, rows: Sequence[Annotation]) -> None:
    with store.write() as con:
        annotations.save(con, RUN, 1, rows)


def _out_of_store(store: Store) -> list[Annotation]:
    with store.read() as con:
        return annotations.load(con, RUN, 1)


def _into_lines(path: Path, rows: Sequence[Annotation]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({name: getattr(row, name) for name in FIELDS}) + "\n" for row in rows)


def _out_of_lines(path: Path) -> list[Annotation]:
    with path.open(encoding="utf-8") as file:
        return [_record(json.loads(line)) for line in file]


def _into_parquet(path: Path, rows: Sequence[Annotation]) -> None:
    columns = {
        "trajectory_id": [row.trajectory_id for row in rows],
        "segment": [row.segment for row in rows],
        "token_ids": pa.array([row.token_ids for row in rows], pa.list_(pa.int32())),
        "action_mask": pa.array([row.action_mask for row in rows], pa.list_(pa.bool_())),
        "logprobs": pa.array([row.logprobs for row in rows], pa.list_(pa.float64())),
        "rewards": pa.array([row.rewards for row in rows], pa.list_(pa.float64())),
        "reward_parts": [json.dumps(row.reward_parts) for row in rows],
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def _out_of_parquet(path: Path) -> list[Annotation]:
    rows = pq.read_table(path).to_pylist()
    return [_record({**row, "reward_parts": json.loads(row["reward_parts"])}) for row in rows]


def _record(row: dict) -> Annotation:
    lists = {name: tuple(row[name]) for name in ("token_ids", "action_mask", "logprobs", "rewards")}
    parts = {int(turn): of for turn, of in row["reward_parts"].items()}
    return Annotation(trajectory_id=row["trajectory_id"], segment=row["segment"], reward_parts=parts, **lists)


def growth(sizes: Sequence[int], rounds: int, folder: Path) -> dict[str, float]:
    """Seconds of one iteration's load (trajectories, annotations) and insert in stores of so many trajectories.

    The stores take turns, so that a busy moment meets both; medians.
    """
    stores = {size: _filled(folder / f"{size}.duckdb", size) for size in sizes}
    found: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for size, store in stores.items():
            for what, seconds in _iteration(store).items():
                if number:
                    found.setdefault(f"{what}/{size}", []).append(seconds)
    medians = {f"{key}_seconds": statistics.median(values) for key, values in found.items()}
    small, large = min(sizes), max(sizes)
    ratios = [b / a for a, b in zip(found[f"iteration/{small}"], found[f"iteration/{large}"], strict=True)]
    sizes_mib = {f"store/{size}_mib": store.path.stat().st_size / 2**20 for size, store in stores.items()}
    return {**medians, **sizes_mib, "iteration/ratio": statistics.median(ratios)}


def _iteration(store: Store) -> dict[str, float]:
    """What a new iteration does with its rows, in the transactions in which its stages do it."""
    with store.read() as con:
        last = con.execute("SELECT max(iteration) FROM trajectories WHERE run = ?", [RUN]).fetchone()
    assert last is not None
    iteration = last[0] + 1
    rows = made_up(ITERATION, iteration=iteration)
    marked = flat(rows)

    def insert() -> None:
        for shard in range(3):
            with store.write() as con:
                trajectories.save(con, RUN, iteration, "train", shard, rows[shard * 64 : shard * 64 + 64])
        with store.write() as con:
            annotations.save(con, RUN, iteration, marked)

    def load() -> None:
        with store.read() as con:
            assert len(trajectories.load(con, RUN, iteration, "train")) == len(rows)
        with store.read() as con:
            assert len(annotations.load(con, RUN, iteration)) == len(marked)

    inserting, loading = _seconds(insert), _seconds(load)
    return {"insert": inserting, "load": loading, "iteration": inserting + loading}


def _filled(path: Path, size: int) -> Store:
    """A store of `size` trajectories with their turns and annotations: one iteration of them, many times over."""
    store = Store(path)
    if path.exists():
        return store
    rows = made_up(ITERATION)
    with store.write() as con:
        trajectories.save(con, RUN, 1, "train", 0, rows)
        annotations.save(con, RUN, 1, flat(rows))
    for first in range(1, -(-size // ITERATION), 500):
        with store.write() as con:
            for table in ("trajectories", "turns", "annotations"):
                con.execute(
                    f"""INSERT INTO {table} SELECT * REPLACE (i.run AS run, i.iteration AS iteration,
                            replace(trajectory_id, $run || '/1/', i.run || '/' || i.iteration || '/') AS trajectory_id)
                        FROM (SELECT $run || '-' || (range // 100) AS run, 2 + range % 100 AS iteration
                              FROM range($first, $last)) i, {table} t
                        WHERE t.run = $run AND t.iteration = 1""",
                    {"run": RUN, "first": first, "last": min(first + 500, -(-size // ITERATION))},
                )
    return store


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
