"""Trajectories as Parquet, a file an iteration and purpose, straight out of DuckDB: memory holds one iteration's rows.

Where the files go, and what else is exported, is left to the caller.
"""

from __future__ import annotations

from pathlib import Path

from duckdb import DuckDBPyConnection

CALLS = '[{"name": "VARCHAR", "arguments": "JSON", "ok": "BOOLEAN", "text": "VARCHAR", "malformed": "BOOLEAN"}]'
_MESSAGE = "struct_pack(role := {}, content := {}, tool_calls := {}, name := {})"
_NO_CALLS = "CAST([] AS STRUCT(name VARCHAR, arguments VARCHAR)[])"
_ASKED = _MESSAGE.format("'user'", "question", _NO_CALLS, "NULL::VARCHAR")
_CALLED = "lambda c: {name: c.name, arguments: c.arguments::VARCHAR}"
_MADE = f"list_transform(list_filter(calls, lambda c: NOT c.malformed), {_CALLED})"
_SAID = _MESSAGE.format("'assistant'", "action_text", _MADE, "NULL::VARCHAR")
_TOLD = _MESSAGE.format("'tool'", "c.text", _NO_CALLS, "c.name")
_REPLY = _MESSAGE.format("'user'", "observation_text", _NO_CALLS, "NULL::VARCHAR")
_ROWS = f"""
WITH wanted AS (
    SELECT t.*, q.dataset, q.split, q.hops, q.text AS question, q.answers AS gold
    FROM trajectories t LEFT JOIN questions q USING (question_id)
    WHERE t.run = $run AND t.iteration = $iteration AND t.purpose = $purpose
), turn AS (
    SELECT u.*, from_json(u.tool_calls, '{CALLS}') AS calls
    FROM turns u SEMI JOIN wanted USING (trajectory_id) WHERE u.run = $run AND u.iteration = $iteration
), said AS (
    SELECT trajectory_id, flatten(list(list_concat([{_SAID}], CASE
        WHEN observation_text = '' THEN []
        WHEN array_to_string(list_transform(calls, lambda c: c.text), chr(10)) = observation_text
            THEN list_transform(calls, lambda c: {_TOLD})
        ELSE [{_REPLY}] END) ORDER BY turn)) AS messages
    FROM turn GROUP BY trajectory_id
), spoken AS (
    SELECT trajectory_id, segment,
        flatten(list(list_concat(given_ids, action_ids) ORDER BY turn)) AS token_ids,
        flatten(list(list_concat(list_transform(given_ids, lambda i: false), list_transform(action_ids, lambda i: true))
            ORDER BY turn)) AS action_mask,
        flatten(list(list_concat(list_transform(given_ids, lambda i: 0.0::DOUBLE), action_logprobs) ORDER BY turn))
            AS logprobs
    FROM turn GROUP BY trajectory_id, segment
)
SELECT w.run, w.iteration, w.purpose, w.trajectory_id, coalesce(s.segment, 0) AS segment, w.question_id, w.dataset,
    w.split, w.hops, w.question, w.gold, w.attempt, w.checkpoint, w.ending, w.turns, w.answer, w.exact_match, w.f1,
    list_concat([{_ASKED}], coalesce(m.messages, [])) AS messages,
    s.token_ids, s.action_mask, s.logprobs, a.rewards, c."values", c.advantages, c.returns
FROM wanted w
LEFT JOIN said m USING (trajectory_id)
LEFT JOIN spoken s USING (trajectory_id)
LEFT JOIN annotations a ON a.run = w.run AND a.iteration = w.iteration AND a.trajectory_id = w.trajectory_id
    AND a.segment = s.segment
LEFT JOIN credits c ON c.run = w.run AND c.iteration = w.iteration AND c.trajectory_id = w.trajectory_id
    AND c.segment = s.segment
ORDER BY w.question_id, w.attempt, segment
"""


def write_trajectories(con: DuckDBPyConnection, run: str, folder: Path) -> dict[str, int]:
    """Write PURPOSE/ITERATION.parquet (zstd) for all of a run, a row a segment; how many rows each purpose has."""
    found = con.execute(
        "SELECT DISTINCT purpose, iteration FROM trajectories WHERE run = ? ORDER BY purpose, iteration", [run]
    ).fetchall()
    counts: dict[str, int] = {}
    for purpose, iteration in found:
        path = folder / purpose / f"{iteration:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        quoted = str(path).replace("'", "''")
        keys = {"run": run, "iteration": iteration, "purpose": purpose}
        done = con.execute(f"COPY ({_ROWS}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)", keys).fetchone()
        counts[purpose] = counts.get(purpose, 0) + (0 if done is None else int(done[0]))
    return counts
