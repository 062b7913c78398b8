"""Trajectories as a page holds them: tokens as places in a table of texts, numbers in thousandths, repeats once.

The names of the keys are short because there are many; packing is undone by trajectories.js, which uses the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agent_r1.questions.records import Json, Question
from agent_r1.trajectory import Annotation, CallRecord, Credit, Trajectory, Turn
from flows.report.texts import cut, visible

Decode = Callable[[Sequence[int]], str]
T = TypeVar("T", bound=Hashable)
BROKEN = "\ufffd"  # what half a character decodes to
LONGEST_CHARACTER = 8  # tokens
TOKENS = 1500  # of either kind that are shown of a turn
SHORT, LONG = 400, 4000  # characters that are shown of an answer or a result, and of a question


class Table(Generic[T]):
    """Different things by their places, in the order in which they were met."""

    def __init__(self) -> None:
        self._places: dict[T, int] = {}

    def place(self, thing: T) -> int:
        """Where it is, which is the end if it is new."""
        return self._places.setdefault(thing, len(self._places))

    def things(self) -> list[T]:
        """All of them."""
        return list(self._places)


@dataclass(frozen=True)
class Worth:
    """What annotate and update made of a turn's chosen tokens; empty lists where there is none."""

    rewards: Sequence[float]
    values: Sequence[float]
    advantages: Sequence[float]
    parts: Mapping[str, float]


def pack(
    trajectories: Sequence[Trajectory],
    annotations: Sequence[Annotation],
    credits: Sequence[Credit],
    questions: Mapping[str, Question],
    decode: Decode,
) -> dict[str, Json]:
    """Everything that the page's browser reads."""
    marked = _by_trajectory(annotations)
    credited = {(credit.trajectory_id, credit.segment): credit for credit in credits}
    texts, given, asked = Table[str](), Table[tuple[int, ...]](), Table[str]()
    pieces = Pieces(decode)
    packed: list[Json] = []
    for each in trajectories:
        rows = marked.get(each.trajectory_id, [])
        worth = worths(each, rows, credited)
        turns: list[Json] = []
        for turn in each.turns:
            shown = pieces.of(turn.given_ids[:TOKENS])
            before = given.place(tuple(texts.place(piece) for piece in shown))
            chosen: list[Json] = [texts.place(piece) for piece in pieces.of(turn.action_ids[:TOKENS])]
            turns.append(_turn(turn, before, chosen, worth.get(turn.index)))
        packed.append(
            {
                "id": visible(each.trajectory_id),
                "q": asked.place(each.question_id),
                "i": each.iteration,
                "p": each.purpose,
                "k": each.attempt,
                "c": each.checkpoint,
                "e": each.ending,
                "a": None if each.answer is None else cut(each.answer, SHORT),
                "m": int(each.exact_match == 1),
                "f": _thousandths(each.f1),
                "r": _thousandths(sum(sum(row.rewards) for row in rows)) if rows else None,
                "t": turns,
            }
        )
    return {
        "trajectories": packed,
        "questions": [_question(name, questions.get(name)) for name in asked.things()],
        "given": [[*row] for row in given.things()],
        "texts": [*texts.things()],
    }


def worths(
    trajectory: Trajectory, marked: Sequence[Annotation], credited: Mapping[tuple[str, int], Credit]
) -> dict[int, Worth]:
    """By turn. The True places of a segment's mask are its turns' chosen tokens, one turn after the other."""
    found: dict[int, Worth] = {}
    for row in marked:
        places = [place for place, chosen in enumerate(row.action_mask) if chosen]
        credit = credited.get((row.trajectory_id, row.segment))
        done = 0
        for turn in trajectory.turns:
            if turn.segment == row.segment:
                here = places[done : done + len(turn.action_ids)]
                done += len(here)
                found[turn.index] = Worth(
                    [row.rewards[place] for place in here],
                    [] if credit is None else [credit.values[place] for place in here],
                    [] if credit is None else [credit.advantages[place] for place in here],
                    row.reward_parts.get(turn.index, {}),
                )
    return found


class Pieces:
    """Tokens to the texts that they add, one each. What several tokens make together is the last one's text."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._known: dict[int, str] = {}

    def of(self, ids: Sequence[int]) -> list[str]:
        """One text a token, "" for one that begins a character which a later token ends."""
        found: list[str] = []
        start = 0
        while start < len(ids):
            end, text = start + 1, self._one(ids[start])
            while BROKEN in text and end < len(ids) and end - start < LONGEST_CHARACTER:
                end += 1
                text = self._decode(ids[start:end])
            if BROKEN in text:  # it never becomes a character: each shows what it is by itself
                end, text = start + 1, self._one(ids[start])
            found += [""] * (end - start - 1) + [visible(text)]
            start = end
        return found

    def _one(self, token: int) -> str:
        """Some tokenizers drop the space before a first word: so the token is decoded behind itself."""
        if token not in self._known:
            alone, twice = self._decode([token]), self._decode([token, token])
            behind = twice[len(alone) :] if twice.startswith(alone) else alone
            self._known[token] = alone if BROKEN in alone else behind
        return self._known[token]


def _turn(turn: Turn, given: int, chosen: list[Json], worth: Worth | None) -> dict[str, Json]:
    count = len(chosen)
    rest = max(len(turn.given_ids) - TOKENS, 0), len(turn.action_ids) - count
    packed: dict[str, Json] = {
        "g": given,
        "a": chosen,
        "l": [_thousandths(each) for each in turn.action_logprobs[:count]],
        **({"s": turn.segment} if turn.segment else {}),
        **({"x": [*rest]} if any(rest) else {}),
        **({"o": [_call(call) for call in turn.calls]} if turn.calls else {}),
        **({"n": _thousandths(turn.reward)} if turn.reward else {}),
    }
    if worth is not None:
        paid: list[Json] = [[place, _thousandths(each)] for place, each in enumerate(worth.rewards[:count]) if each]
        packed |= {"w": paid, "b": {visible(name): _thousandths(each) for name, each in worth.parts.items() if each}}
        if worth.values or worth.advantages:
            packed["v"] = [_thousandths(each) for each in worth.values[:count]]
            packed["d"] = [_thousandths(each) for each in worth.advantages[:count]]
    return packed


def _call(call: CallRecord) -> Json:
    arguments = json.dumps(call.arguments, ensure_ascii=False) if call.arguments else ""
    how = "malformed" if call.malformed else "ok" if call.ok else "failed"
    return [cut(call.name, SHORT), cut(arguments, SHORT), how, cut(call.text, SHORT)]


def _question(name: str, question: Question | None) -> Json:
    if question is None:
        return {"id": visible(name), "text": visible(name), "answers": [], "hops": None, "dataset": ""}
    answers: list[Json] = [cut(answer, SHORT) for answer in question.answers[:20]]
    text = cut(question.text, LONG)
    dataset = visible(question.dataset)
    return {"id": visible(name), "text": text, "answers": answers, "hops": question.hops, "dataset": dataset}


def _thousandths(value: float) -> int | None:
    return round(value * 1000) if math.isfinite(value) else None


def _by_trajectory(rows: Sequence[Annotation]) -> dict[str, list[Annotation]]:
    found: dict[str, list[Annotation]] = {}
    for row in rows:
        found.setdefault(row.trajectory_id, []).append(row)
    return found
