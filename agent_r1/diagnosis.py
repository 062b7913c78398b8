"""What is wrong with a run, read off its metrics: every rule that is asked, in the order of its alarm.

Looking is left to alarms.py, fetching a history to flows; docs/metrics.md says what the metrics mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from agent_r1.alarms import (
    CLIPPED,
    ENGINE_GAP,
    REFERENCE_KL,
    UPDATE_KL,
    Alarm,
    collapse,
    evidence_farming,
    exploding,
    few_evaluations,
    groups_alike,
    habit,
    no_entropy,
    no_learning,
    not_finite,
    reward_farming,
    skipped,
    too_high,
    unanswered,
    useless_critic,
)
from agent_r1.history import History


def diagnose(seen: History) -> list[Alarm]:
    """Every alarm that a rule raises; none where there is nothing to be seen."""
    return [alarm for rule in RULES if (alarm := rule(seen)) is not None]


RULES: Sequence[Callable[[History], Alarm | None]] = (
    not_finite,
    collapse,
    no_entropy,
    reward_farming,
    evidence_farming,
    unanswered,
    partial(
        habit,
        "no_call",
        "more warm_start.steps; where it did call, an earlier checkpoint (train --from RUN@I) with cheaper "
        "rewards.turn, rewards.failed and rewards.malformed, or a higher rewards.evidence",
    ),
    partial(
        habit,
        "malformed",
        "more warm_start.steps in the format of calls, a higher ppo.kl_coefficient, a dearer rewards.malformed",
    ),
    partial(
        habit,
        "truncated",
        "a higher rollout.max_new_tokens where the turns make sense (show RUN --iteration I), else as for malformed",
    ),
    partial(habit, "repeated", "a dearer rewards.repeated; a higher rollout.max_observation where results are cut"),
    partial(
        too_high,
        "logprob_gap",
        "rollout/logprob_gap_mean",
        ENGINE_GAP,
        "the same model.dtype for vLLM as for the trainer and no quantisation, the embedded "
        "engine; where it has to be so, a ppo.importance_cap of 2",
    ),
    partial(
        too_high,
        "update_kl",
        "ppo/kl",
        UPDATE_KL,
        "a ppo.target_kl of 0.02, a lower ppo.learning_rate, fewer ppo.epochs or ppo.minibatches",
    ),
    partial(
        too_high,
        "reference_kl",
        "ppo/kl_reference",
        REFERENCE_KL,
        "a higher ppo.kl_coefficient, a lower ppo.learning_rate",
    ),
    partial(
        too_high,
        "clipping",
        "ppo/clip_fraction",
        CLIPPED,
        "a lower ppo.learning_rate, fewer ppo.epochs or ppo.minibatches",
    ),
    exploding,
    skipped,
    useless_critic,
    groups_alike,
    no_learning,
    few_evaluations,
)
