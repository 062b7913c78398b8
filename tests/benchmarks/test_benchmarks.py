"""What the benchmarks count and compare, by hand; how fast anything is, no test says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agent_r1 import tiny
from agent_r1.chat import Chat
from agent_r1.questions.records import Json
from agent_r1.tools.protocol import JsonObject, ToolResult
from agent_r1.trajectory import Annotation
from benchmarks import pairs, store
from benchmarks.__main__ import shown, table
from benchmarks.matmul import Shape, update_flop
from benchmarks.overhead import PLACES, Clock, shares
from benchmarks.subjects import TEMPLATE

FAST, SLOW = {"seconds": 2.0, "turns": 12.0}, {"seconds": 4.0, "turns": 8.0}
ECHO = """
import sys
print('{"peak_mib": 1}', flush=True)
for number, _ in enumerate(sys.stdin):
    print('noise\\n{"peak_mib": 2, "n": %d}' % number, flush=True)
"""


class Lookup:
    """A tool that is only described."""

    name = "lookup"

    @property
    def schema(self) -> JsonObject:
        """What templates show of it."""
        return json.loads(
            '{"function": {"name": "lookup", "parameters": {"properties": {"entity": {}, "relation": {}}}}}'
        )

    def call(self, arguments: JsonObject) -> ToolResult:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


def test_ratios_are_of_rates_pair_by_pair() -> None:
    """6 turns a second and 2; then 6 and 6."""
    assert pairs.ratios([FAST, FAST], [SLOW, FAST], "turns") == [3.0, 1.0]
    assert pairs.median_rate([FAST, SLOW, SLOW], "turns") == 2.0


def test_sides_take_turns_and_the_first_round_does_not_count() -> None:
    settings: dict[str, Json] = {"threads": 1}
    command = [sys.executable, "-c", ECHO]
    with pairs.Side(command, Path(), settings) as one, pairs.Side(command, Path(), settings) as other:
        found = pairs.take_turns({"one": one, "other": other}, rounds=2)
    assert found == {name: [{"peak_mib": 2, "n": 1}, {"peak_mib": 2, "n": 2}] for name in ("one", "other")}


def test_a_side_that_dies_says_so() -> None:
    with pytest.raises(RuntimeError, match="exit code 3"):
        pairs.Side([sys.executable, "-c", "raise SystemExit(3)"], Path(), {"threads": 1})


def test_the_update_s_arithmetic_is_six_operations_a_weight_and_token() -> None:
    """One layer 2 wide, 3 inside, one head of 2: 4 maps of 2 x 2 and 3 of 2 x 3 are 34 weights. A row of 4 tokens feeds
    3; they attend to 1 + 2 + 3 places, in two products of 2 each: 24. Two chosen tokens see 2 x 5 logits: 20."""
    shape = Shape(layers=1, width=2, inner=3, heads=1, key_value_heads=1, head=2, vocabulary=5)
    row = Annotation("a", 0, (1, 2, 3, 4), (False, False, True, True), (0.0,) * 4, (0.0,) * 4, {})
    assert update_flop(shape, [row]) == 6 * (34 * 3 + 24 + 20)


def test_a_second_is_in_one_place_only() -> None:
    times = iter([0.0, 1.0, 4.0, 6.0, 7.0, 10.0])
    clock = Clock(lambda: next(times))
    with clock.at("glue"), clock.at("duckdb"):
        pass
    lap = clock.lap()
    assert {place: seconds for place, seconds in lap.items() if seconds} == {"prefect": 4.0, "glue": 4.0, "duckdb": 2.0}
    assert sum(lap.values()) == 10.0


def test_shares_are_medians_over_iterations() -> None:
    """Of 10, 12 and 10 seconds 1, 3 and 1 are DuckDB's."""
    laps = [dict.fromkeys(PLACES, 0.0) | {"compute": 9.0, "duckdb": other} for other in (1.0, 3.0, 1.0)]
    found = shares(laps)
    assert found["iteration_seconds"] == 10.0
    assert found["duckdb/share"] == 0.1
    assert found["prefect+duckdb+mlflow/share"] == found["all but compute/share"] == 0.1


def test_made_up_trajectories_survive_every_way_of_keeping_them(tmp_path: Path) -> None:
    rows = store.flat(store.made_up(3))
    assert rows == store.flat(store.made_up(3))
    store._into_lines(tmp_path / "rows.jsonl", rows)
    store._into_parquet(tmp_path / "rows.parquet", rows)
    kept = store.Store(tmp_path / "store.duckdb")
    store._into_store(kept, rows)
    assert store._out_of_lines(tmp_path / "rows.jsonl") == rows
    assert store._out_of_parquet(tmp_path / "rows.parquet") == rows
    assert store._out_of_store(kept) == rows


def test_a_filled_store_has_as_many_trajectories_and_no_two_alike(tmp_path: Path) -> None:
    """Three iterations of 192 are the least that holds 500."""
    filled = store._filled(tmp_path / "store.duckdb", 500)
    with filled.read() as con:
        counts = con.execute(
            "SELECT count(*), count(DISTINCT trajectory_id), count(DISTINCT (run, iteration)) FROM trajectories"
        ).fetchone()
        turns = con.execute("SELECT count(*) FROM turns SEMI JOIN trajectories USING (trajectory_id, run, iteration)")
        assert counts == (576, 576, 3)
        assert turns.fetchone() == (576 * store.TURNS,)


def test_the_benchmark_s_template_says_what_the_quickstart_s_says() -> None:
    """But for rendered calls, which TRL wants."""
    ours, theirs = tiny.tokenizer(), tiny.tokenizer()
    theirs.chat_template = TEMPLATE.read_text(encoding="utf-8")
    one, other = Chat(ours, [Lookup()], ""), Chat(theirs, [Lookup()], "")
    assert one.prompt("What is the capital of Brelova?") == other.prompt("What is the capital of Brelova?")
    assert one.observation(["Santovik", "yes"]) == other.observation(["Santovik", "yes"])
    call = '{"function": {"name": "lookup", "arguments": {"entity": "Brelova", "relation": "capital"}}}'
    messages = json.loads(f'[{{"role": "assistant", "content": "", "tool_calls": [{call}]}}]')
    text = theirs.apply_chat_template(messages, tokenize=False)
    said = one.call("lookup", {"entity": "Brelova", "relation": "capital"})
    assert text == f"<|im_start|>assistant\n{said}<|im_end|>\n"


def test_the_table_has_a_line_for_each_figure(tmp_path: Path) -> None:
    found = {"ratio/turns": 2.5, "measured": [1]}
    (tmp_path / "rollout-quickstart.json").write_text(json.dumps({"part": "rollout-quickstart", "found": found}))
    (tmp_path / "another.json").write_text("[]")
    assert table(tmp_path).splitlines()[2:] == ["| rollout-quickstart | ratio/turns | 2.5 |"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [("a/share", 0.0123, "1.2%"), ("rows_per_s", 12345.6, "12,346"), ("ratio", 2.187, "2.19")],
)
def test_figures_are_shown_as_people_read_them(key: str, value: float, text: str) -> None:
    assert shown(key, value) == text
