"""A trajectory as an MLflow trace: the question, a chat span a turn, a tool span a call. Only a form of what is stored.

When turns happened is not stored. So a trace begins when its stage ended, and spans are laid out in order: a
millisecond for each token that the agent chose, one for each tool call. Writing traces is left to tracking.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mlflow.entities import Span, SpanType, TraceInfo, TraceLocation, TraceState
from mlflow.tracing.constant import SpanAttributeKey, TokenUsageKey, TraceMetadataKey, TraceTagKey

from agent_r1.questions.records import Json, Question
from agent_r1.trajectory import Trajectory, Turn

PREVIEW = 1000  # characters, MLflow's limit
MILLISECOND = 1_000_000  # in nanoseconds


@dataclass(frozen=True)
class Traced:
    """A trajectory to show: its question, when its stage ended, its rewards by turn and component where it has them."""

    trajectory: Trajectory
    question: Question
    at: datetime
    rewards: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


def info(traced: Traced, run_id: str, experiment: str) -> TraceInfo:
    """What the list of traces shows. The same trajectory in the same MLflow run has the same id whenever it is made."""
    trajectory = traced.trajectory
    tags = {
        TraceTagKey.TRACE_NAME: trajectory.question_id[:250],
        TraceTagKey.SPANS_LOCATION: "TRACKING_STORE",
        "run": trajectory.run,
        "iteration": str(trajectory.iteration),
        "purpose": trajectory.purpose,
        "question": trajectory.question_id,
        "ending": trajectory.ending,
        "exact_match": f"{trajectory.exact_match:g}",
    }
    return TraceInfo(
        trace_id=trace_id(run_id, trajectory),
        trace_location=TraceLocation.from_experiment_id(experiment),
        request_time=int(traced.at.timestamp() * 1000),
        state=TraceState.OK,
        request_preview=traced.question.text[:PREVIEW],
        response_preview=(trajectory.answer or f"({trajectory.ending})")[:PREVIEW],
        client_request_id=trajectory.trajectory_id,
        execution_duration=_length(trajectory.turns),
        trace_metadata={TraceMetadataKey.SOURCE_RUN: run_id},
        tags=tags,
    )


def spans(traced: Traced, run_id: str) -> list[Span]:
    """The trace's spans: the question to its answer, and inside it chat and tool spans in the order of the turns."""
    trajectory = traced.trajectory
    draw = _Drawing(trace_id(run_id, trajectory), int(traced.at.timestamp() * 1000))
    total = sum(sum(parts.values()) for parts in traced.rewards.values())
    answered: dict[str, Json] = {
        "answer": trajectory.answer,
        "gold": list(traced.question.answers),
        "exact_match": trajectory.exact_match,
        "f1": trajectory.f1,
        "ending": trajectory.ending,
    }
    about: dict[str, Json] = {
        "trajectory": trajectory.trajectory_id,
        "checkpoint": trajectory.checkpoint,
        **({"reward": round(total, 6)} if traced.rewards else {}),
    }
    root = draw.span("trajectory", SpanType.AGENT, _length(trajectory.turns), {"question": traced.question.text})
    draw.close(root, answered, about)
    said: list[Json] = [{"role": "user", "content": traced.question.text}]
    for turn in trajectory.turns:
        chat = draw.span(f"turn {turn.index}", SpanType.CHAT_MODEL, max(len(turn.action_ids), 1), {"messages": said})
        message: Json = {"role": "assistant", "content": turn.action_text}
        draw.close(
            chat, {"choices": [{"index": 0, "message": message}]}, _of_turn(turn, traced.rewards.get(turn.index))
        )
        draw.move(max(len(turn.action_ids), 1))
        for call in turn.calls:
            tool = draw.span(call.name or "malformed call", SpanType.TOOL, 1, dict(call.arguments))
            draw.close(tool, {"result": call.text}, {"ok": call.ok, "malformed": call.malformed}, failed=not call.ok)
            draw.move(1)
        said = [{"role": "tool", "content": turn.observation_text}] if turn.observation_text else []
    return [Span.from_dict(each) for each in draw.drawn]


def trace_id(run_id: str, trajectory: Trajectory) -> str:
    """As MLflow's own look."""
    return f"tr-{hashlib.sha256(f'{run_id} {trajectory.trajectory_id}'.encode()).hexdigest()[:32]}"


class _Drawing:
    """Spans of one trace as MLflow's dictionaries, each beginning where the last one ended; the first is the root."""

    def __init__(self, trace: str, start: int) -> None:
        self.drawn: list[dict] = []
        self._trace = trace
        self._now = start

    def span(self, name: str, kind: str, length: int, inputs: Mapping[str, Json]) -> dict:
        """A span of so many milliseconds, from now on."""
        number = len(self.drawn)
        span = {
            "trace_id": _base64(self._trace.removeprefix("tr-")),
            "span_id": _span_id(self._trace, number),
            "parent_span_id": _span_id(self._trace, 0) if number else None,
            "name": name,
            "start_time_unix_nano": self._now * MILLISECOND,
            "end_time_unix_nano": (self._now + length) * MILLISECOND,
            "status": {"code": "OK"},
            "attributes": {
                SpanAttributeKey.REQUEST_ID: _json(self._trace),
                SpanAttributeKey.SPAN_TYPE: _json(kind),
                SpanAttributeKey.INPUTS: _json(dict(inputs)),
            },
        }
        self.drawn.append(span)
        return span

    def close(
        self, span: dict, outputs: Mapping[str, Json], attributes: Mapping[str, Json], *, failed: bool = False
    ) -> None:
        """What came of it."""
        span["attributes"] |= {key: _json(value) for key, value in attributes.items()}
        span["attributes"][SpanAttributeKey.OUTPUTS] = _json(dict(outputs))
        if failed:
            span["status"] = {"code": "ERROR"}

    def move(self, length: int) -> None:
        """So many milliseconds later."""
        self._now += length


def _of_turn(turn: Turn, rewards: Mapping[str, float] | None) -> dict[str, Json]:
    given, chosen = len(turn.given_ids), len(turn.action_ids)
    usage: dict[str, Json] = {
        TokenUsageKey.INPUT_TOKENS: given,
        TokenUsageKey.OUTPUT_TOKENS: chosen,
        TokenUsageKey.TOTAL_TOKENS: given + chosen,
    }
    mean = sum(turn.action_logprobs) / chosen if chosen else None
    return {
        SpanAttributeKey.CHAT_USAGE: usage,
        "segment": turn.segment,
        "logprob_mean": mean,
        **({"rewards": dict(rewards)} if rewards is not None else {}),
    }


def _length(turns: Sequence[Turn]) -> int:
    """Milliseconds of the layout."""
    return max(sum(max(len(turn.action_ids), 1) + len(turn.calls) for turn in turns), 1)


def _span_id(trace: str, number: int) -> str:
    return _base64(hashlib.sha256(f"{trace} {number}".encode()).hexdigest()[:16])


def _base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
