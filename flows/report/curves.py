"""Which curves a report draws, and the points of each: metrics of a run, and of the other seeds of its variant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_r1.questions.records import Json
from flows.tables import REWARD
from storage.metrics import MetricRow

Series = dict[int, float]
SPREAD = 2  # lines of a chart in which other seeds still find room


@dataclass(frozen=True)
class Spec:
    """A chart: metrics by what they are called there, or all whose names begin so, but those that are always 0."""

    title: str
    unit: str
    about: str
    keys: Mapping[str, str] | str
    share: bool = False  # from 0 to 1


@dataclass(frozen=True)
class Line:
    """One metric by iteration; `seeds` are the same of other runs."""

    name: str
    key: str
    points: Series
    seeds: Sequence[Series] = ()


@dataclass(frozen=True)
class Chart:
    """A chart with something to draw."""

    spec: Spec
    lines: Sequence[Line]

    def record(self) -> dict[str, Json]:
        """For the page's script. What is not finite is a gap."""
        lines: list[Json] = [
            {"name": one.name, "points": _pairs(one.points), "seeds": [_pairs(each) for each in one.seeds]}
            for one in self.lines
        ]
        spec = self.spec
        return {"title": spec.title, "unit": spec.unit, "about": spec.about, "share": spec.share, "lines": lines}


CHARTS = (
    Spec("Exact match on validation", "share of questions", "Sampled at temperature 1, and greedy.",
         {"sampled": "eval/sampled/exact_match", "greedy": "eval/greedy/exact_match"}, share=True),
    Spec("Sampled exact match by hops", "share of questions", "Validation questions by the number of facts needed.",
         "eval/sampled/exact_match/hops_", share=True),
    Spec("Greedy exact match by hops", "share of questions", "The same, answered greedily.",
         "eval/greedy/exact_match/hops_", share=True),
    Spec("Exact match on the test split", "share of questions", "Asked once, after the last iteration.",
         {"sampled": "test/sampled/exact_match", "greedy": "test/greedy/exact_match"}, share=True),
    Spec("Reward of a trajectory", "reward", "Mean over the rollouts of an iteration.", {"reward": REWARD}),
    Spec("Reward by component", "reward", "What the mean reward is made of.", "reward/"),
    Spec("How rollouts end", "share of trajectories", "They add up to 1.", "rollout/ending/", share=True),
    Spec("How validation ends", "share of trajectories", "Sampled answers. They add up to 1.",
         "eval/sampled/ending/", share=True),
    Spec("Turns and tool calls", "per trajectory", "Means over the rollouts.",
         {"turns": "rollout/turns_mean", "tool calls": "rollout/tool_calls_mean"}),
    Spec("Manners", "share of trajectories", "Rollouts with at least one such call; no call: without any.",
         {"no call": "rollout/no_call", "malformed": "rollout/malformed", "failed": "rollout/failed",
          "repeated": "rollout/repeated"}, share=True),
    Spec("Evidence", "share", "Gold evidence that came into view; trajectories that saw a gold answer.",
         {"evidence": "rollout/evidence", "gold in view": "rollout/gold_in_view"}, share=True),
    Spec("Length", "tokens", "Tokens that the agent chose in a trajectory, on average.",
         {"chosen tokens": "rollout/action_tokens_mean"}),
    Spec("KL of the update", "nats per token", "How far an update goes from the policy that sampled; look above 0.1.",
         {"KL": "ppo/kl"}),
    Spec("KL to checkpoint 0", "nats per token", "What training moved in all; look above 1.",
         {"KL": "ppo/kl_reference"}),
    Spec("Clip fraction", "share of tokens", "Tokens past a bound that counts; look above 0.3.",
         {"clipped": "ppo/clip_fraction"}),
    Spec("Explained variance", "of the critic's targets", "1: all of it; 0: no better than a constant.",
         {"explained": "ppo/explained_variance"}),
    Spec("Entropy", "nats per token", "Of the policy's choices; look near 0 while scores fall.",
         {"entropy": "ppo/entropy"}),
    Spec("Gradient norm", "length", "Before it is scaled down.", {"norm": "ppo/grad_norm"}),
    Spec("Sampler against trainer", "nats", "Distance of their log-probabilities of the same tokens.",
         {"mean": "rollout/logprob_gap_mean", "largest": "rollout/logprob_gap_max"}),
    Spec("Time by stage", "seconds", "Of each iteration.", "time/"),
)  # fmt: skip


def charts(rows: Sequence[MetricRow], others: Sequence[Sequence[MetricRow]] = ()) -> list[Chart]:
    """Those of CHARTS for which the run has values; `others` are the runs of other seeds."""
    own, siblings = _series(rows), [_series(each) for each in others]
    found: list[Chart] = []
    for spec in CHARTS:
        keys = _keys(spec, own)
        spread = siblings if len(keys) <= SPREAD else []
        lines = [
            Line(name, key, own[key], [each[key] for each in spread if each.get(key)]) for name, key in keys.items()
        ]
        if lines:
            found.append(Chart(spec, lines))
    return found


def _keys(spec: Spec, own: Mapping[str, Series]) -> dict[str, str]:
    if not isinstance(spec.keys, str):
        return {name: key for name, key in spec.keys.items() if own.get(key)}
    names = [key for key in sorted(own) if key.startswith(spec.keys) and any(own[key].values())]
    return {_name(spec.keys, key): key for key in names}


def _name(prefix: str, key: str) -> str:
    if prefix.endswith("hops_"):
        return f"{key.removeprefix(prefix)} hops"
    return key.removeprefix(prefix).removesuffix("_seconds").replace("_", " ")


def _series(rows: Sequence[MetricRow]) -> dict[str, Series]:
    found: dict[str, Series] = {}
    for row in rows:
        if row.value is not None and math.isfinite(row.value):
            found.setdefault(row.key, {})[row.iteration] = row.value
    return found


def _pairs(points: Series) -> list[Json]:
    return [[iteration, float(f"{value:.4g}")] for iteration, value in sorted(points.items())]
