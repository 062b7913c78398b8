"""An environment that rewrites the context: the agent sees the question and what it found, not all it said and saw.

`environment: agent_r1.forgetting:Forgetting`. Every turn begins a new segment, as short as its first; an example for
environments of one's own that summarise or drop what is old.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_r1.environment import Step
from agent_r1.questions.records import Question
from agent_r1.tool_calls import ParsedTurn
from agent_r1.trajectory import CallRecord

KEPT = 8  # results, the latest ones


class Forgetting:
    """Keeps the results of calls that worked, one line each; a turn's failures are seen by the next turn alone."""

    def __init__(self) -> None:
        self._question = ""
        self._found: list[str] = []

    def reset(self, question: Question, seed: int) -> str:
        """See Environment."""
        del seed
        self._question = question.text
        return self._question

    def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
        """See Environment."""
        del turn
        if not results:
            return Step()
        self._found += [_note(result) for result in results if result.ok and _note(result) not in self._found]
        failures = [result.text for result in results if not result.ok]
        return Step(context="\n".join([self._question, *self._found[-KEPT:], *failures]))


def _note(result: CallRecord) -> str:
    """What was asked and what came back, on one line."""
    asked = " ".join(str(value) for value in result.arguments.values())
    return f"{asked}: {' '.join(result.text.split())}"
