"""Rules that look at a run's metrics: each is an alarm, with what it saw and what to try, or nothing.

Pure functions of a history, beneath the thresholds that they share. Which are asked is left to diagnosis.py.
"""

from __future__ import annotations

import math
from itertools import takewhile
from statistics import fmean, median
from typing import NamedTuple

from agent_r1.history import LISTED, RECENT, History, Point, change, listed, now, said

SCORE_TO_LOSE = 0.1  # a best below it is noise: with 100 questions two deviations are about that
COLLAPSED = 0.5  # of the best score; healthy runs were seen to dip to 0.79 of it and to recover
FALLING = 0.75  # of the best score: below what healthy runs were seen to dip to
NO_ENTROPY = 0.01  # nats a token: next to no second choice; healthy small policies ended at 0.013
FALL = 0.1  # of a share between two windows: two deviations with 64 trajectories an iteration
RISE = 0.05  # of reward or evidence against such a fall, with which both should have fallen
CALLS_RISE = 1.1  # times as many calls against such a fall
MOSTLY = 0.5  # share of trajectories: the larger part is wasted
SHARE_RISE = 0.2  # of such a share between two windows: no noise does that
UPDATE_KL = 0.1  # nats a token: usual targets are 0.01 to 0.05; beyond, the clipped ratio is no guide
ENGINE_GAP = 0.05  # nats a token: bfloat16 was measured at 0.02, other weights than the trained ones at 0.1 and more
REFERENCE_KL = 1.0  # nats a token: the reference finds each token e times less likely, so its skill is gone
CLIPPED = 0.3  # share of tokens; up to 0.2 is usual, and clipped ones have no gradient
GRADIENT_JUMP = 10.0  # times the median before: clipping bounds its length, not where it points
SKIPPED = 0.01  # share of steps: one of them is an accident, a hundredth a pattern
CRITIC_PATIENCE = 5  # iterations that a new critic has to become better than a constant
GROUPS_ALIKE = 0.7  # share of questions that teach a group estimator nothing; late in training half is usual
LEARNING_PATIENCE = 8  # iterations after which something should have been learned
LEARNED = 0.05  # rise of the score, both means of three evaluations: less is noise
GOOD = 0.9  # a score that leaves little to learn
FEW_EVALUATIONS = 3  # two say that there is a difference, not whether it lasts


class Alarm(NamedTuple):
    """A finding: its name, the numbers that were seen, what to try."""

    name: str
    seen: str
    advice: str


def not_finite(seen: History) -> Alarm | None:
    """A metric was no number. The speed is none where sampling took no time."""
    found = {
        key: [iteration for iteration, value in sorted(values.items()) if not math.isfinite(value)]
        for key, values in sorted(seen.values.items())
        if key != "rollout/tokens_per_second"
    }
    which = [f"{key} at {listed(iterations)}" for key, iterations in found.items() if iterations]
    if not which:
        return None
    more = f" and {len(which) - LISTED} other metrics" if len(which) > LISTED else ""
    return Alarm(
        "not_finite",
        f"not a number: {'; '.join(which[:LISTED])}{more}",
        "a lower ppo.learning_rate, model.dtype float32; look at the iteration before the first of them",
    )


def collapse(seen: History) -> Alarm | None:
    """The last score is far below the best."""
    points = seen.series(seen.score)
    best = max(points, key=_value, default=None)
    if best is None or best.value < SCORE_TO_LOSE or points[-1].value >= COLLAPSED * best.value:
        return None
    return Alarm(
        "collapse",
        f"{seen.score} is {points[-1]} and was {best}",
        f"start from the best checkpoint (train --from RUN@{best.iteration}) with a lower ppo.learning_rate, a "
        "ppo.target_kl of 0.02 or a higher ppo.kl_coefficient; where ppo/advantage_max is above 8, more "
        "rollout.questions",
    )


def no_entropy(seen: History) -> Alarm | None:
    """Next to no entropy is left while the score falls."""
    entropy, points = seen.series("ppo/entropy"), seen.series(seen.score)
    best = max(points, key=_value, default=None)
    if best is None or not entropy or entropy[-1].value >= NO_ENTROPY:
        return None
    if best.value < SCORE_TO_LOSE or points[-1].value >= FALLING * best.value:
        return None
    return Alarm(
        "no_entropy",
        f"ppo/entropy is {entropy[-1]}, and {seen.score} is {points[-1]} and was {best}",
        f"start from an earlier checkpoint (train --from RUN@{best.iteration}) with a ppo.entropy_coefficient of "
        "0.001, a higher ppo.clip_high or a higher rollout.temperature",
    )


def reward_farming(seen: History) -> Alarm | None:
    """The reward rises while answers get worse: something else pays."""
    reward, right = (change(seen.series(f"rollout/{name}")) for name in ("reward_mean", "exact_match"))
    if reward is None or right is None or reward.rise < RISE or right.rise > -FALL:
        return None
    return Alarm(
        "reward_farming",
        f"rollout/reward_mean rose {reward}, while rollout/exact_match fell {right}",
        "see which reward/<component> rose, and lower its price, above all rewards.evidence",
    )


def evidence_farming(seen: History) -> Alarm | None:
    """More evidence or more calls, and fewer answers."""
    answered = change(seen.series("rollout/answered"))
    if answered is None or answered.rise > -FALL:
        return None
    evidence, calls = (change(seen.series(f"rollout/{name}")) for name in ("evidence", "tool_calls_mean"))
    if evidence is not None and evidence.rise >= RISE:
        rose = f"rollout/evidence rose {evidence}"
    elif calls is not None and calls.after > CALLS_RISE * calls.before:
        rose = f"rollout/tool_calls_mean rose {calls}"
    else:
        return None
    return Alarm(
        "evidence_farming",
        f"{rose}, while rollout/answered fell {answered}",
        "lower rewards.evidence, dearer rewards.turn and rewards.unanswered; a higher rollout.max_turns where the "
        "turns run out",
    )


def unanswered(seen: History) -> Alarm | None:
    """The policy does not answer, or answers less and less."""
    key, points = _behaviour(seen, "answered")
    fall = change(points)
    if points and now(points) <= 1 - MOSTLY:
        what = f"{key} is {said(points)}"
    elif fall is not None and fall.rise <= -SHARE_RISE:
        what = f"{key} fell {fall}"
    else:
        return None
    return Alarm(
        "unanswered",
        what,
        "see which ending/<ending> it is: truncated asks for a higher rollout.max_new_tokens, max_turns for a higher "
        "rollout.max_turns, context_full for a higher rollout.max_context, no_answer for more warm_start.steps or a "
        "dearer rewards.unanswered",
    )


def habit(name: str, advice: str, seen: History) -> Alarm | None:
    """Most trajectories do it, or more and more."""
    key, points = _behaviour(seen, name)
    rise = change(points)
    if points and now(points) >= MOSTLY:
        return Alarm(name, f"{key} is {said(points)}", advice)
    if rise is not None and rise.rise >= SHARE_RISE:
        return Alarm(name, f"{key} rose {rise}", advice)
    return None


def too_high(name: str, key: str, limit: float, advice: str, seen: History) -> Alarm | None:
    """A metric is at its limit or above."""
    points = seen.series(key)
    return Alarm(name, f"{key} is {said(points)}", advice) if points and now(points) >= limit else None


def exploding(seen: History) -> Alarm | None:
    """The gradient is many times as long as before."""
    norms = seen.series("ppo/grad_norm")
    before, recent = norms[:-RECENT], norms[-RECENT:]
    if len(before) < RECENT:
        return None
    usual, largest = median(point.value for point in before), max(recent, key=_value)
    if usual <= 0 or largest.value < GRADIENT_JUMP * usual:
        return None
    return Alarm(
        "exploding",
        f"ppo/grad_norm is {largest}, and {usual:.3g} in the median before",
        "a lower ppo.learning_rate or ppo.max_grad_norm; model.dtype float32 where it was bfloat16",
    )


def skipped(seen: History) -> Alarm | None:
    """Steps were not taken: there was nothing to learn from, or a gradient was not finite."""
    missed, taken = seen.series("ppo/skipped_updates"), seen.series("ppo/steps")
    count = sum(point.value for point in missed)
    steps = count + sum(point.value for point in taken)
    if count <= SKIPPED * steps:
        return None
    where = listed([point.iteration for point in missed if point.value > 0])
    return Alarm(
        "skipped",
        f"{count:g} of {steps:g} steps were skipped, at {where}",
        "fewer ppo.minibatches where trajectories are few; else a lower ppo.learning_rate, or model.dtype float32",
    )


def useless_critic(seen: History) -> Alarm | None:
    """The critic has been no better than a constant for many iterations."""
    points = seen.series("ppo/explained_variance")
    useless = list(takewhile(lambda point: point.value <= 0, reversed(points)))
    if len(useless) < CRITIC_PATIENCE:
        return None
    return Alarm(
        "useless_critic",
        f"ppo/explained_variance is {points[-1]}, and never above 0 since iteration {useless[-1].iteration}",
        "more ppo.value_steps, or a higher ppo.value_learning_rate; early in a run there may be nothing to foresee",
    )


def groups_alike(seen: History) -> Alarm | None:
    """Many questions have attempts of equal reward, where an estimator compares them."""
    if not seen.grouped:
        return None
    advice = (
        "questions that are neither always nor never answered (world.hops), more rollout.attempts, a higher "
        "rollout.temperature"
    )
    return too_high("groups_alike", "rollout/group_zero_variance", GROUPS_ALIKE, advice, seen)


def no_learning(seen: History) -> Alarm | None:
    """Nothing was learned in many iterations, and there was something to learn."""
    points = seen.series(seen.score)
    if not seen.evaluated or len(points) <= RECENT or points[-1].iteration - points[0].iteration < LEARNING_PATIENCE:
        return None
    means = [fmean(point.value for point in points[i : i + RECENT]) for i in range(len(points) - RECENT + 1)]
    if max(means) - means[0] >= LEARNED or means[0] >= GOOD:
        return None
    return Alarm(
        "no_learning",
        f"{seen.score} is {points[-1]} and was {points[0]}; means of {RECENT} evaluations rose by "
        f"{max(means) - means[0]:.3g} at most",
        "where rollout/exact_match is near 0, more warm_start.steps, a higher rewards.evidence or easier world.hops; "
        "else a higher ppo.learning_rate or more rollout.questions",
    )


def few_evaluations(seen: History) -> Alarm | None:
    """Too little was measured to say how the score goes."""
    count = len(seen.series(seen.score))
    if count >= FEW_EVALUATIONS or seen.last == 0 or not seen.evaluated:
        return None
    return Alarm(
        "few_evaluations",
        f"values of {seen.score} up to iteration {seen.last}: {count}, too few to say how it goes",
        "more iterations, or a smaller evaluation.every",
    )


def _behaviour(seen: History, name: str) -> tuple[str, list[Point]]:
    """The metric of the rollouts, or of the evaluations where there was no rollout yet."""
    key = f"rollout/{name}" if seen.series(f"rollout/{name}") else f"eval/sampled/{name}"
    return key, seen.series(key)


def _value(point: Point) -> float:
    return point.value
