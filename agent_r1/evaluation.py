"""What a set of trajectories says: exact match and F1 by hops and by kind, endings, lengths, and use of the tools.

All functions take trajectories with the questions they attempt, and return metrics by name; docs/metrics.md says what
each means. Storing is left to others.

Where a question was asked with the result of a search before it (methods.py), `given` holds that result by the
question's id: it was in view as well as what the agent's own calls returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from agent_r1.questions.records import Question
from agent_r1.rewards import call_key, evidence_in_view, score_of
from agent_r1.scoring import normalize_answer
from agent_r1.sections import COMPONENTS
from agent_r1.trajectory import Annotation, CallRecord, Ending, Trajectory

Attempted = tuple[Trajectory, Question]
Given = Mapping[str, CallRecord]
NOTHING: Given = {}


@dataclass(frozen=True, slots=True)
class Score:
    """What was answered of one data set's questions: all of them where `hops` is None, else those of so many hops."""

    dataset: str
    hops: int | None
    questions: int
    metrics: Mapping[str, float]


def scores(
    modes: Mapping[str, Sequence[Trajectory]], questions: Mapping[str, Question], given: Given = NOTHING
) -> list[Score]:
    """`eval/<mode>/...` of every mode by data set, in the order of the questions, and then by number of hops.

    A data set whose questions all have as many hops is not shown by hops.
    """
    found = []
    for dataset in dict.fromkeys(question.dataset for question in questions.values()):
        chosen = {key: question for key, question in questions.items() if question.dataset == dataset}
        hops = sorted({question.hops for question in chosen.values() if question.hops is not None})
        alike = len({question.hops for question in chosen.values()}) == 1
        for count in [None] if alike else [None, *hops]:
            part = {key: question for key, question in chosen.items() if count in (None, question.hops)}
            found.append(Score(dataset, count, len(part), _of_modes(modes, part, given)))
    return found


def _of_modes(
    modes: Mapping[str, Sequence[Trajectory]], questions: Mapping[str, Question], given: Given
) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for mode, trajectories in modes.items():
        attempted = [trajectory for trajectory in trajectories if trajectory.question_id in questions]
        metrics |= evaluation_metrics(mode, attempted, questions, given=given)
    return metrics


def evaluation_metrics(
    mode: str,
    trajectories: Sequence[Trajectory],
    questions: Mapping[str, Question],
    group: str = "eval",
    given: Given = NOTHING,
) -> dict[str, float]:
    """`eval/<mode>/...` (or another group's): scores and behaviour; empty for no trajectories."""
    pairs = [(trajectory, questions[trajectory.question_id]) for trajectory in trajectories]
    return _described(f"{group}/{mode}", pairs, given) if pairs else {}


def rollout_metrics(
    trajectories: Sequence[Trajectory],
    questions: Mapping[str, Question],
    annotations: Sequence[Annotation],
    seconds: float,
    components: Sequence[str] = COMPONENTS,
) -> dict[str, float]:
    """`rollout/...` and `reward/<component>` of an iteration; components are means per trajectory.

    Where questions are attempted more than once, rollout/group_zero_variance is the share of them whose attempts all
    earned the same: a group estimator learns nothing from those.

    `seconds` is how long sampling took, for rollout/tokens_per_second, the one value here that a clock decides.
    """
    pairs = [(trajectory, questions[trajectory.question_id]) for trajectory in trajectories]
    if not pairs:
        return {}
    totals: dict[str, float] = dict.fromkeys(components, 0.0)
    for annotation in annotations:
        for parts in annotation.reward_parts.values():
            for name, value in parts.items():
                totals[name] += value
    tokens = sum(trajectory.action_tokens for trajectory in trajectories)
    found = _described("rollout", pairs)
    found["rollout/reward_mean"] = sum(totals.values()) / len(pairs)
    found.update(_group_metrics(trajectories, annotations))
    found["rollout/action_tokens"] = float(tokens)
    found["rollout/tokens_per_second"] = tokens / seconds if seconds > 0 else float("nan")
    found.update({f"reward/{name}": total / len(pairs) for name, total in totals.items()})
    return found


def _group_metrics(trajectories: Sequence[Trajectory], annotations: Sequence[Annotation]) -> dict[str, float]:
    earned: dict[str, list[float]] = {}
    for row in annotations:
        earned.setdefault(row.trajectory_id, []).extend(row.rewards)
    groups: dict[str, list[float]] = {}
    for one in trajectories:
        groups.setdefault(one.question_id, []).append(score_of(earned.get(one.trajectory_id, ())))
    compared = [len(set(rewards)) == 1 for rewards in groups.values() if len(rewards) > 1]
    return {"rollout/group_zero_variance": sum(compared) / len(compared)} if compared else {}


def _described(where: str, pairs: Sequence[Attempted], given: Given = NOTHING) -> dict[str, float]:
    """`<where>/...`: scores over all, by number of hops and by kind; behaviour; shares of endings."""
    found: dict[str, float] = {}
    for name, group in {"": pairs, **_groups(pairs)}.items():
        found[f"exact_match{name}"] = _mean(group, lambda pair: pair[0].exact_match)
        found[f"f1{name}"] = _mean(group, lambda pair: pair[0].f1)
    found.update(_behaviour(pairs, given))
    for ending in get_args(Ending):
        found[f"ending/{ending}"] = _mean(pairs, lambda pair, ending=ending: pair[0].ending == ending)
    return {f"{where}/{name}": value for name, value in found.items()}


def _behaviour(pairs: Sequence[Attempted], given: Given) -> dict[str, float]:
    """Means per trajectory of turns, calls and tokens; shares of trajectories with at least one such thing; evidence.

    Length has two meanings: the tokens that the agent chose, and the span from its first to its last, tool output
    included.
    """
    calls = [[call for turn in trajectory.turns for call in turn.calls] for trajectory, _ in pairs]
    count = max(len(pairs), 1)
    return {
        "turns_mean": _mean(pairs, lambda pair: len(pair[0].turns)),
        "tool_calls_mean": sum(map(len, calls)) / count,
        "action_tokens_mean": _mean(pairs, lambda pair: pair[0].action_tokens),
        "action_tokens_max": float(max((trajectory.action_tokens for trajectory, _ in pairs), default=0)),
        "action_span_mean": _mean(pairs, lambda pair: pair[0].action_span),
        "no_call": sum(not made for made in calls) / count,
        "answered": _mean(pairs, lambda pair: pair[0].ending == "answered"),
        "truncated": _mean(pairs, lambda pair: pair[0].ending == "truncated"),
        "malformed": sum(any(call.malformed for call in made) for made in calls) / count,
        "failed": sum(any(not call.ok and not call.malformed for call in made) for made in calls) / count,
        "repeated": sum(_repeats(made) for made in calls) / count,
        "evidence": _mean(pairs, lambda pair: _evidence_share(pair, given.get(pair[1].id))),
        "gold_in_view": _mean(pairs, lambda pair: _gold_in_view(pair, given.get(pair[1].id))),
    }


def _repeats(calls: Sequence[CallRecord]) -> bool:
    keys = [call_key(call) for call in calls if not call.malformed]
    return len(set(keys)) < len(keys)


def _evidence_share(pair: Attempted, given: CallRecord | None) -> float:
    trajectory, question = pair
    calls = [call for turn in trajectory.turns for call in turn.calls]
    seen = evidence_in_view(calls if given is None else [given, *calls], question)
    return len(seen) / max(len(question.evidence), 1)


def _gold_in_view(pair: Attempted, given: CallRecord | None) -> float:
    """Whether a gold answer stands in what the tools returned: then a wrong answer is not the tools' fault."""
    trajectory, question = pair
    texts = [turn.observation_text for turn in trajectory.turns]
    seen = f" {normalize_answer(' '.join(texts if given is None else [given.text, *texts]))} "
    return float(any(f" {gold} " in seen for answer in question.answers if (gold := normalize_answer(answer))))


def _groups(pairs: Sequence[Attempted]) -> dict[str, list[Attempted]]:
    groups: dict[str, list[Attempted]] = {}
    for pair in pairs:
        if pair[1].hops is not None:
            groups.setdefault(f"/hops_{pair[1].hops}", []).append(pair)
        if pair[1].kind:
            groups.setdefault(f"/kind_{pair[1].kind}", []).append(pair)
    return dict(sorted(groups.items()))


def _mean(pairs: Sequence[Attempted], value: Callable[[Attempted], float]) -> float:
    return sum(value(pair) for pair in pairs) / max(len(pairs), 1)
