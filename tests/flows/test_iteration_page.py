"""The page of an iteration in Prefect: what it shows, and that a model's text cannot become a part of it."""

from __future__ import annotations

from datetime import UTC, datetime

from agent_r1.questions.records import Question
from agent_r1.trajectory import Trajectory, Turn
from flows.iteration_page import key, page, plain
from storage.metrics import MetricRow

AT = datetime(2026, 12, 1, tzinfo=UTC)
EVIL = "</pre><script>alert(1)</script>\n```\n# heading\n![x](http://evil/x.png)\x1b[31m"


def trajectory(text: str) -> Trajectory:
    turn = Turn(
        index=0, segment=0, given_ids=(1,), action_ids=(2,), action_logprobs=(0.0,), action_text=text, calls=(),
        observation_text=text,
    )  # fmt: skip
    return Trajectory("a", 2, "sampled", "q", 0, 1, "answered", text, 0.0, 0.0, (turn,))


def question(text: str) -> Question:
    return Question(id="q", text=text, answers=("gold",), evidence=(), passages=(), hops=2, dataset="d", metadata={})


def test_metrics_stand_beside_those_of_the_iteration_before() -> None:
    rows = [MetricRow(1, "ppo/kl", 0.5, AT, "update"), MetricRow(2, "ppo/kl", 0.25, AT, "update")]
    text = page("a", 2, rows, None, None)
    assert text.startswith("# a, iteration 2\n")
    assert "| ppo/kl | 0.25 | 0.5 |" in text


def test_what_the_model_wrote_is_code_or_plain_letters() -> None:
    lines = page("a", 2, [], trajectory(EVIL), question(EVIL)).splitlines()
    for line in lines:
        if not line.startswith("    "):  # an indented line is code: nothing in it can end it
            assert "<script" not in line
            assert "![x](" not in line
            assert not line.startswith("```")
    assert "    </pre><script>alert(1)</script>" in lines
    assert all("\x1b" not in line for line in lines)


def test_plain_text_keeps_its_letters_and_is_one_line() -> None:
    assert plain("a <b>\n[c](d) | e_f") == r"a &lt;b\> \[c\]\(d\) \| e\_f"


def test_a_key_is_what_prefect_allows() -> None:
    assert key("My.Run_1") == "my-run-1-iteration"
