"""A home with a run made by hand, for reports: few iterations, few questions, texts that want to do harm."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fakes import config

from agent_r1.questions.records import Json, Question
from agent_r1.trajectory import Annotation, CallRecord, Credit, Purpose, Trajectory, Turn
from flows.start import begin
from storage import annotations, metrics, questions, trajectories

AT = datetime(2026, 1, 2, tzinfo=UTC)
EVIL = "</script><img src=http://127.0.0.1:9/x onerror=\"document.title='owned'\"><!--"
HIDDEN = "a\x00\x1b[2Jb\u202egnp\u2028\x85"
ASKED = (
    Question("v1", f"Who? {EVIL}", ("Ann",), hops=2, dataset="world"),
    Question("v2", f"Where? {HIDDEN}", ("Oslo", "Kristiania"), hops=3, dataset="<b>real</b>"),
)
TRAINED = (
    Question("t1", "When? שלום", ("1905",), hops=2, dataset="world"),
    Question("t2", "Why?", (), dataset="world"),
)


def ids(text: str) -> tuple[int, ...]:
    """A token a letter."""
    return tuple(ord(letter) for letter in text)


def decode(tokens: Sequence[int]) -> str:
    """The letters again."""
    return "".join(chr(token) for token in tokens)


def trajectory(run: str, iteration: int, purpose: Purpose, question: str, right: bool) -> Trajectory:
    """A call that finds something, then an answer; a wrong one is that the second call fails."""
    call = CallRecord("lookup", {"entity": EVIL}, ok=right, text=EVIL if right else "nothing found")
    turns = (
        Turn(0, 0, ids("Q?"), ids("call"), (-0.5, -0.25, -0.125, 0.0), "call", (call,), "found"),
        Turn(1, 0, ids("found"), ids("Ann" if right else "Bob"), (-1.0, -2.0, -3.0), "answer"),
    )
    ending, answer = ("answered", "Ann") if right else ("no_answer", None)
    return Trajectory(
        run, iteration, purpose, question, 0, max(iteration - (purpose == "train"), 0), ending, answer,
        float(right), float(right), turns,
    )  # fmt: skip


def annotation(one: Trajectory) -> tuple[Annotation, Credit]:
    """0.25 at the end of the first turn, 1 or nothing at that of the second; values 1 to 14, advantages negative."""
    given = ids("Q?call") + ids("found") + one.turns[1].action_ids
    mask = (False,) * 2 + (True,) * 4 + (False,) * 5 + (True,) * 3
    outcome = one.exact_match
    rewards = (0.0,) * 5 + (0.25,) + (0.0,) * 7 + (outcome,)
    parts = {0: {"evidence": 0.27, "turn": -0.02}, 1: {"outcome": outcome}}
    name, numbers = one.trajectory_id, tuple(float(number) for number in range(1, 15))
    values = tuple(number if chosen else 0.0 for number, chosen in zip(numbers, mask, strict=True))
    return (
        Annotation(name, 0, given, mask, (0.0,) * 14, rewards, parts),
        Credit(name, 0, values, tuple(-value for value in values), values),
    )


def make(home: Path, run: str = "a", iterations: int = 3, **changes: Json) -> Path:
    """A run with as many iterations as are asked for, beside iteration 0; v1 is right from iteration 2 on, v2 never."""
    context = begin(home, run, config(**changes)).context
    purposes: tuple[Purpose, ...] = ("sampled", "greedy")
    with context.store.write() as con:
        questions.save(con, "validation", ASKED)
        questions.save(con, "train", TRAINED)
        for iteration in range(iterations + 1):
            for purpose in purposes:
                made = [
                    trajectory(run, iteration, purpose, each.id, each.id == "v1" and iteration > 1) for each in ASKED
                ]
                trajectories.save(con, run, iteration, purpose, 0, made)
            score = iteration / 4
            values = {
                "eval/sampled/exact_match": score,
                "eval/greedy/exact_match": score / 2,
                "time/evaluate_seconds": 2.0,
            }
            if iteration:
                rollouts = [trajectory(run, iteration, "train", each.id, each.id == "t1") for each in TRAINED]
                marked, credited = zip(*(annotation(one) for one in rollouts), strict=True)
                trajectories.save(con, run, iteration, "train", 0, rollouts)
                annotations.save(con, run, iteration, marked)
                annotations.save_credits(con, run, iteration, credited)
                values |= {
                    "rollout/reward_mean": score,
                    "ppo/kl": float("nan") if iteration == 2 else 0.01,
                    "reward/own": 0.0,
                }
            metrics.save(con, run, iteration, "evaluate", values, AT)
    return home
