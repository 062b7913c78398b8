"""Rewards read off the state transition of each turn, and the outcome. Gold is known here and nowhere near the tools.

Every component counts at most once a turn; evidence is paid once for each piece, and taken back where the trajectory
does not answer; the potential is taken back by every ending. So calling more never pays by itself. Prices are the
configuration's; 0 leaves a component out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence

from agent_r1.masks import segments
from agent_r1.own import own_rewards
from agent_r1.questions.records import Json, Question
from agent_r1.sections import COMPONENTS, RewardConfig
from agent_r1.trajectory import INTENDED, Annotation, CallRecord, Trajectory, Turn

COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def components(prices: RewardConfig) -> tuple[str, ...]:
    """The names of all rewards, one's own last."""
    return (*COMPONENTS, *(own.name for own in prices.own))


def score_of(rewards: Iterable[float]) -> float:
    """A trajectory's score: the sum of its rewards, so that sums which are equal but for rounding are equal."""
    return round(math.fsum(rewards), 9)


def annotate(trajectory: Trajectory, question: Question, prices: RewardConfig) -> list[Annotation]:
    """The flat rows of a trajectory, one for each segment (none where it has no turn).

    A turn's reward sits on its last action token, the outcome on the last action token of all; the sum over all rows
    is the sum over all components.
    """
    parts = reward_parts(trajectory, question, prices)
    rows = []
    for segment in segments(trajectory.turns):
        rewards = [0.0] * len(segment.token_ids)
        for turn, place in segment.last_action.items():
            rewards[place] = sum(parts[turn].values())
        rows.append(
            Annotation(
                trajectory_id=trajectory.trajectory_id,
                segment=segment.index,
                token_ids=segment.token_ids,
                action_mask=segment.action_mask,
                logprobs=segment.logprobs,
                rewards=tuple(rewards),
                reward_parts={turn: parts[turn] for turn in segment.last_action},
            )
        )
    return rows


def reward_parts(trajectory: Trajectory, question: Question, prices: RewardConfig) -> dict[int, dict[str, float]]:
    """The priced components of each turn that are not 0; over all turns, evidence sums to 0 without an answer.

    The potential is the share of gold evidence in view (shaping by Ng, Harada and Russell 1999, undiscounted): each
    turn is paid its rise, the last one its fall to 0, the potential after any ending. It sums to 0.
    """
    parts: dict[int, dict[str, float]] = {}
    pieces = evidence_by_turn(trajectory.turns, question)
    earlier: set[str] = set()
    last_turn = trajectory.turns[-1].index if trajectory.turns else None
    cut_off = last_turn if trajectory.ending == "truncated" else None
    answering = last_turn if trajectory.ending == "answered" else None
    gold = max(len(question.evidence), 1)
    for turn, found in zip(trajectory.turns, pieces, strict=True):
        keys = [call_key(call) for call in turn.calls if not call.malformed]
        parts[turn.index] = {
            "evidence": prices.evidence * found / gold,
            "potential": prices.potential * found / gold,
            "turn": prices.turn * (bool(turn.calls) and turn.index != answering),
            "malformed": prices.malformed * (any(call.malformed for call in turn.calls) or turn.index == cut_off),
            "failed": prices.failed * any(not call.ok and not call.malformed for call in turn.calls),
            "repeated": prices.repeated * (len(set(keys)) < len(keys) or not earlier.isdisjoint(keys)),
            "environment": prices.environment * turn.reward,
        }
        earlier.update(keys)
    if trajectory.turns:
        last = parts[trajectory.turns[-1].index]
        last["outcome"] = prices.outcome * trajectory.exact_match
        last["potential"] -= prices.potential * sum(pieces) / gold
        if trajectory.ending not in INTENDED:
            last["unanswered"] = prices.unanswered * (trajectory.ending != "environment_failed")
            last["evidence"] -= prices.evidence * sum(pieces) / gold
        for own in prices.own:
            for turn, value in zip(trajectory.turns, own_rewards(own.function, trajectory, question), strict=True):
                parts[turn.index][own.name] = own.price * value
    return {turn: {name: value for name, value in of.items() if value != 0} for turn, of in parts.items()}


def evidence_by_turn(turns: Sequence[Turn], question: Question) -> list[int]:
    """How many pieces of gold evidence each turn brought newly into view."""
    seen: set[int] = set()
    counts = []
    for turn in turns:
        new = evidence_in_view(turn.calls, question) - seen
        seen |= new
        counts.append(len(new))
    return counts


def evidence_in_view(calls: Iterable[CallRecord], question: Question) -> set[int]:
    """The pieces of gold evidence that the results of these calls show."""
    return {piece for call in calls if call.ok for piece in _in_view(call, question)}


def _in_view(call: CallRecord, question: Question) -> set[int]:
    """The gold pieces that a call's result shows: by its sources, or, for SQL, by the facts in its text.

    A fact (subject, relation, object) is shown by a query that names its relation and whose result has its object, if
    one of both has its subject. Comments in the query do not count, nor does an object that the query says itself: a
    query can have every text of its own in its result.
    """
    if call.sources:
        shown = {(source.passage_id, source.sentence) for source in call.sources}
        whole = {passage for passage, sentence in shown if sentence is None}
        return {
            index
            for index, gold in enumerate(question.evidence)
            if gold.passage_id in whole
            or (gold.passage_id, gold.sentence) in shown
            or (gold.sentence is None and any(passage == gold.passage_id for passage, _ in shown))
        }
    query = call.arguments.get("query")
    facts = question.metadata.get("facts")
    if call.name != "sql" or not isinstance(query, str) or not isinstance(facts, list):
        return set()
    asked = COMMENT.sub(" ", query)
    return {
        index
        for index, fact in enumerate(facts)
        if isinstance(fact, list)
        and len(fact) == 3
        and _says(asked, fact[1])
        and _says(call.text, fact[2])
        and not _says(asked, fact[2])
        and (_says(asked, fact[0]) or _says(call.text, fact[0]))
    }


def _says(text: str, word: Json) -> bool:
    return re.search(rf"(?<!\w){re.escape(str(word))}(?!\w)", text) is not None


def call_key(call: CallRecord) -> str:
    """What makes two calls the same: the tool and its arguments, whatever their order."""
    return json.dumps([call.name, dict(call.arguments)], sort_keys=True, ensure_ascii=False)
