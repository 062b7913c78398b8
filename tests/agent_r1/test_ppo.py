"""One PPO update, through its public function, on hand-made annotations (A9, A13, B1-B10, B17, C2-C10)."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from scripted import SMALL
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from agent_r1 import model
from agent_r1.batch import make_batch
from agent_r1.config import Config, parse
from agent_r1.errors import CheckpointError
from agent_r1.model import Policy, ValueHead, load, pad
from agent_r1.ppo import Learner, Update, learner_state, make_learner, update
from agent_r1.questions.records import Json
from agent_r1.rollout import draw
from agent_r1.sections import MaskConfig, RolloutConfig
from agent_r1.trajectory import Annotation, Trajectory


def config(ppo: Mapping[str, Json] | None = None, **sections: Json) -> Config:
    """One epoch of one minibatch without KL, whitening or clipping of gradients; the critic stays as it is."""
    plain: dict[str, Json] = {
        "epochs": 1, "minibatches": 1, "kl_coefficient": 0.0, "max_grad_norm": 1e30, "value_steps": 0,
    }  # fmt: skip
    settings: dict[str, Json] = {"model": SMALL, "advantages": {"whiten": False}, **sections}
    return parse({**settings, "ppo": {**plain, **(ppo or {})}}, "test")


CONFIG = config()


@cache
def _made(seed: int) -> Policy:
    return model.create(config(seed=seed))


def create(settings: Config) -> Policy:
    """A fresh policy of the configuration's seed, copied: making the tokenizer takes a while."""
    made = _made(settings.seed)
    return replace(made, model=copy.deepcopy(made.model), value_head=copy.deepcopy(made.value_head))


def row(name: str, mask: Sequence[int], rewards: Sequence[float], segment: int = 0, start: int = 10) -> Annotation:
    """A segment of successive token ids; log-probabilities are filled in by `sampled_by`."""
    return Annotation(
        trajectory_id=name,
        segment=segment,
        token_ids=tuple(range(start, start + len(mask))),
        action_mask=tuple(bool(one) for one in mask),
        logprobs=(0.0,) * len(mask),
        rewards=tuple(rewards),
        reward_parts={},
    )


def sampled_by(policy: Policy, rows: Sequence[Annotation], temperature: float = 1.0) -> list[Annotation]:
    """The rows with the policy's own log-probabilities, as if it had sampled them."""
    made = []
    for one in rows:
        mask = torch.tensor([one.action_mask])
        with torch.no_grad():
            logprobs = policy.score(torch.tensor([one.token_ids]), mask, temperature).logprobs[0].tolist()
        made.append(replace(one, logprobs=tuple(logprobs)))
    return made


ROWS = [
    row("a", [0, 0, 1, 1, 0, 0, 1], [0, 0, 0, -0.05, 0, 0, 1.0]),
    row("b", [0, 1, 1], [0, 0, -0.1], start=50),
    row("c", [0, 0, 0, 1], [0, 0, 0, 0.3], start=90),
    row("c", [0, 1, 0, 1], [0, 0, 0, 1.0], segment=1, start=200),
]


class ScriptedCritic(ValueHead):
    """Says the given values, one for each action token in the order of the rows."""

    def __init__(self, values: Sequence[float]) -> None:
        super().__init__(16)
        self.said = torch.tensor(values)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.said[: len(hidden)]


def critic(policy: Policy, *values: float) -> Policy:
    return replace(policy, value_head=ScriptedCritic(values))


def run(
    settings: Config, rows: Sequence[Annotation] | None = None, policy: Policy | None = None, iteration: int = 1
) -> tuple[Update, Learner]:
    """An update of a fresh policy on rows that it sampled itself; the reference is what it was before."""
    policy = policy or create(settings)
    reference = create(settings) if settings.ppo.kl_coefficient > 0 else None
    learner = make_learner(policy, settings)
    rows = sampled_by(policy, ROWS, settings.rollout.temperature) if rows is None else rows
    return update(learner, reference, rows, settings, iteration), learner


def weights(learner: Learner) -> dict[str, Tensor]:
    """A copy of every weight."""
    policy = learner.policy
    return {
        name: tensor.detach().clone()
        for module in (policy.model, policy.value_head)
        for name, tensor in module.state_dict().items()
    }


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def plain_logprobs(policy: Policy, one: Annotation, temperature: float = 1.0) -> list[float]:
    """Log-probabilities of the action tokens, by the model's own forward pass of the whole row."""
    ids = torch.tensor([one.token_ids])
    with torch.no_grad():
        after = (policy.model(input_ids=ids).logits[0].double() / temperature).log_softmax(-1)
    return [float(after[place - 1, ids[0, place]]) for place, chosen in enumerate(one.action_mask) if chosen]


# Credit


def test_credit_skips_given_tokens() -> None:
    """B1, from annotations to the credit table: .7; .1 + .95 * .7; .1 + .95 * .765. The first token is a prompt."""
    policy = critic(create(CONFIG), 0.1, 0.2, 0.3)
    done, _ = run(CONFIG, [row("t", [0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1])], policy)
    (credit,) = done.credits
    assert credit.values == pytest.approx((0, 0.1, 0.2, 0, 0, 0.3))
    assert credit.advantages == pytest.approx((0, 0.82675, 0.765, 0, 0, 0.7), abs=1e-6)
    assert credit.returns == pytest.approx((0, 0.92675, 0.965, 0, 0, 1.0), abs=1e-6)


def test_credit_runs_on_across_segments_and_not_across_trajectories() -> None:
    """The same three actions in two segments, given out of order, beside another trajectory (A = -1 - .5).

    Rows are scored from the shortest to the longest, so the critic says .5 first, then .3, then .1 and .2.
    """
    rows = [
        row("t", [0, 0, 1], [0, 0, 1], segment=1, start=70),
        row("u", [0, 1], [0, -1]),
        row("t", [0, 1, 1, 0], [0, 0, 0, 0], segment=0),
    ]
    policy = critic(create(CONFIG), 0.5, 0.3, 0.1, 0.2)
    done, _ = run(CONFIG, rows, policy)
    found = {(credit.trajectory_id, credit.segment): credit.advantages for credit in done.credits}
    assert found["t", 0] == pytest.approx((0, 0.82675, 0.765, 0), abs=1e-6)
    assert found["t", 1] == pytest.approx((0, 0, 0.7), abs=1e-6)
    assert found["u", 0] == pytest.approx((0, -1.5), abs=1e-6)


def test_credit_rows_are_as_long_as_their_annotations_and_zero_where_given() -> None:
    done, _ = run(CONFIG)
    assert len(done.credits) == len(ROWS)
    by_key = {(one.trajectory_id, one.segment): one for one in ROWS}
    for credit in done.credits:
        mask = by_key[credit.trajectory_id, credit.segment].action_mask
        for values in (credit.values, credit.advantages, credit.returns):
            assert len(values) == len(mask)
            assert all(chosen or value == 0.0 for value, chosen in zip(values, mask, strict=True))


def test_values_come_before_their_action() -> None:
    """A13: the value of action t is that of the hidden state of the token before t."""
    policy = create(CONFIG)
    torch.nn.init.normal_(policy.value_head.outer.weight, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([ROWS[0].token_ids])
    with torch.no_grad():
        states = policy.value_head(policy.model.base_model(input_ids=ids).last_hidden_state)[0]
    done, _ = run(CONFIG, sampled_by(policy, ROWS), policy)
    assert done.credits[0].values == pytest.approx(
        (0, 0, float(states[1]), float(states[2]), 0, 0, float(states[5])), abs=1e-5
    )


def test_process_rewards_change_advantages() -> None:
    """B17."""
    policy = create(CONFIG)
    bare = [replace(one, rewards=tuple(reward if reward == 1.0 else 0.0 for reward in one.rewards)) for one in ROWS]
    with_process, _ = run(CONFIG, sampled_by(policy, ROWS), policy)
    without, _ = run(CONFIG, sampled_by(policy, bare), create(CONFIG))
    assert with_process.credits[0].advantages != without.credits[0].advantages
    assert with_process.credits[0].advantages[2] == pytest.approx(-0.05 * 0.95 + 0.95**2, abs=1e-6)
    assert without.credits[0].advantages[2] == pytest.approx(0.95**2, abs=1e-6)


@pytest.mark.parametrize(
    ("estimator", "masked", "passes"), [("reinforce++", True, 1), ("reinforce++", False, 2), ("gae", True, 2)]
)
def test_before_its_step_an_update_scores_only_what_the_sampler_did_not_say(
    monkeypatch: pytest.MonkeyPatch, estimator: str, masked: bool, passes: int
) -> None:
    """A critic's values, and given tokens where the loss sees them; one pass is the step's own."""
    settings = config(advantages={"estimator": estimator, "whiten": False}, masks={"loss": masked})
    rows = sampled_by(create(settings), ROWS)
    scored: list[int] = []
    score = Policy.score
    monkeypatch.setattr(Policy, "score", lambda self, *given: scored.append(1) or score(self, *given))
    run(settings, rows)
    assert len(scored) == passes


def test_whitened_advantages_have_mean_0_and_deviation_1_over_action_tokens() -> None:
    done, _ = run(config(advantages={"whiten": True}))
    chosen = [
        value
        for credit, one in zip(done.credits, ROWS, strict=True)
        for value, is_chosen in zip(credit.advantages, one.action_mask, strict=True)
        if is_chosen
    ]
    assert sum(chosen) == pytest.approx(0, abs=1e-5)
    assert sum(value**2 for value in chosen) / len(chosen) == pytest.approx(1, abs=1e-5)


def test_an_advantage_is_cut_to_its_bound_after_whitening() -> None:
    """Nine rewards of 0 and one of 1: the tenth advantage is (1 - .1) / .3 = 3, the others -1/3; cut to 2 and -1/3."""
    rows = [row(f"t{number}", [0, 1], [0, float(number == 9)]) for number in range(10)]
    settings = config(advantages={"whiten": True, "clip": 2.0})
    done, _ = run(settings, rows, critic(create(settings), *[0.0] * 10))
    found = {credit.trajectory_id: credit.advantages[1] for credit in done.credits}
    assert found["t9"] == pytest.approx(2.0)
    assert found["t0"] == pytest.approx(-1 / 3, abs=1e-5)


def test_equal_rewards_give_no_advantage_and_move_no_policy_weight() -> None:
    """B9: lam 1, a critic that says 0, every trajectory worth .7: whitened advantages are exactly 0.

    B10: with a KL or entropy term such a batch does move weights; here both are off.
    """
    settings = config(advantages={"lam": 1.0, "whiten": True})
    rows = [row(str(number), [0] + [1] * 9, [0.0] * 9 + [0.7], start=number * 20) for number in range(30)]
    policy = create(settings)
    before = copy.deepcopy(policy.model.state_dict())
    done, learner = run(settings, sampled_by(policy, rows), policy)
    assert {value for credit in done.credits for value in credit.advantages} == {0.0}
    assert done.metrics["ppo/steps"] == 1
    assert same(before, learner.policy.model.state_dict())


# Without a critic: the attempts at question "q" earn 1 (in two segments) and .5, both at question "q/0" .3

GROUPS = [
    row("r/1/train/q/0", [0, 1, 0], [0, 0.25, 0]),
    row("r/1/train/q/0", [0, 1, 0, 1], [0, -0.25, 0, 1.0], segment=1, start=40),
    row("r/1/train/q/1", [0, 0, 1], [0, 0, 0.5], start=80),
    row("r/1/train/q/0/0", [0, 1, 1], [0, 0.1, 0.2], start=120),
    row("r/1/train/q/0/1", [0, 1], [0, 0.3], start=160),
]
CRITIC_FREE = ("group_relative", "leave_one_out", "reinforce_plus_plus")
GROUPED = CRITIC_FREE[:2]


def without_critic(estimator: str, ppo: Mapping[str, Json] | None = None, **sections: Json) -> Config:
    advantages: dict[str, Json] = {"estimator": estimator, "whiten": False}
    return config(ppo, **{"advantages": advantages, "rollout": {"attempts": 2}, **sections})


def test_groups_are_the_questions_and_have_as_many_members_as_attempts() -> None:
    """B11: also where one id is the beginning of another."""
    pairs = draw(["q", "q/0", "q/0/1", "p"], RolloutConfig(questions=4, attempts=3), seed=0, iteration=1)
    made = [
        Trajectory("r", 1, "train", name, attempt, 0, "answered", "x", 0.0, 0.0, ()).trajectory_id
        for name, attempt in pairs
    ]
    batch = make_batch([row(name, [0, 1], [0, 0]) for name in made], MaskConfig())
    assert torch.bincount(batch.groups_B).tolist() == [3, 3, 3, 3]
    groups = dict(zip((one.trajectory_id for one in batch.annotations), batch.groups_B.tolist(), strict=True))
    assert all(
        (groups[one] == groups[other]) == (asked == asked_other)
        for one, (asked, _) in zip(made, pairs, strict=True)
        for other, (asked_other, _) in zip(made, pairs, strict=True)
    )


@pytest.mark.parametrize(("estimator", "advantage"), [("group_relative", 0.707105), ("leave_one_out", 0.5)])
def test_every_action_token_has_the_advantage_of_its_trajectory_among_its_group(
    estimator: str, advantage: float
) -> None:
    """Scores 1 and .5: (1 - .75) / (.353553 + 1e-6), 1 - .5; .1 + .2 is .3 but for rounding, so 0 to the last bit."""
    settings = without_critic(estimator)
    done, _ = run(settings, sampled_by(create(settings), GROUPS))
    found = {(credit.trajectory_id[len("r/1/train/") :], credit.segment): credit for credit in done.credits}
    assert found["q/0", 0].advantages == pytest.approx((0, advantage, 0), abs=1e-6)
    assert found["q/0", 1].advantages == pytest.approx((0, advantage, 0, advantage), abs=1e-6)
    assert found["q/1", 0].advantages == pytest.approx((0, 0, -advantage), abs=1e-6)
    assert found["q/0/0", 0].advantages == (0, 0, 0)
    assert found["q/0/1", 0].advantages == (0, 0)
    assert found["q/0", 1].returns == pytest.approx((0, 1, 0, 1))
    assert found["q/1", 0].returns == pytest.approx((0, 0, 0.5))


def test_reinforce_plus_plus_gives_the_discounted_rewards_to_come() -> None:
    """gamma .5 along action tokens, over segments: 1; -.25 + .5; .25 + .125."""
    advantages: dict[str, Json] = {"estimator": "reinforce_plus_plus", "gamma": 0.5, "whiten": False}
    settings = config(advantages=advantages)
    done, _ = run(settings, sampled_by(create(settings), GROUPS[:2]))
    assert done.credits[0].advantages == done.credits[0].returns == pytest.approx((0, 0.375, 0))
    assert done.credits[1].advantages == pytest.approx((0, 0.25, 0, 1))


@pytest.mark.parametrize("estimator", CRITIC_FREE)
def test_without_a_critic_the_value_head_stays_and_nothing_is_said_of_it(estimator: str) -> None:
    settings = without_critic(estimator, {"weight_decay": 0.1, "epochs": 2})
    policy = create(settings)
    torch.nn.init.normal_(policy.value_head.outer.weight, generator=torch.Generator().manual_seed(0))
    before = copy.deepcopy(policy.value_head.state_dict())
    done, learner = run(settings, sampled_by(policy, GROUPS), policy)
    assert done.metrics["ppo/steps"] == 2
    assert same(before, learner.policy.value_head.state_dict())
    assert not {"ppo/value_loss", "ppo/explained_variance"} & set(done.metrics)
    assert {value for credit in done.credits for value in credit.values} == {0.0}


@pytest.mark.parametrize("estimator", GROUPED)
@pytest.mark.parametrize("whiten", [True, False])
def test_equal_rewards_in_all_groups_give_no_gradient(estimator: str, whiten: bool) -> None:
    """B9; each question may earn something else. B10: KL and entropy are off here, they would move the weights."""
    settings = without_critic(estimator, advantages={"estimator": estimator, "whiten": whiten})
    rows = [*GROUPS[:2], replace(GROUPS[2], rewards=(0.0, 0.0, 1.0)), *GROUPS[3:]]
    assert float(gradient(settings, rows=sampled_by(create(settings), rows)).abs().max()) == 0
    unequal = gradient(settings, rows=sampled_by(create(settings), GROUPS))
    assert float(unequal.abs().max()) > 1e-3


def test_a_kl_in_the_reward_counts_in_the_score() -> None:
    """Less the mean of the others: each of two scores less the other, both with their sums of .5 (logprob - ref)."""
    settings = without_critic("leave_one_out", {"kl_coefficient": 0.5, "kl_in": "reward", "kl_estimator": "k1"})
    policy, reference = create(settings), create(config(seed=7))
    rows = sampled_by(policy, [GROUPS[3], GROUPS[4]])
    taken = [0.5 * (sum(plain_logprobs(policy, one)) - sum(plain_logprobs(reference, one))) for one in rows]
    done = update(make_learner(policy, settings), reference, rows, settings, 1)
    expected = (0.3 - taken[0]) - (0.3 - taken[1])
    assert abs(expected) > 0.01
    assert done.credits[0].advantages == pytest.approx((0, expected, expected), abs=1e-4)
    assert done.credits[1].advantages == pytest.approx((0, -expected), abs=1e-4)


def test_advantages_of_groups_are_whitened_where_asked() -> None:
    """Tokens of +.5 (three), -.5 (one) and 0 (three): mean 1/7, mean square 1/7, so (.5 - 1/7) / (6/49) ** .5."""
    settings = without_critic("rloo", advantages={"estimator": "rloo", "whiten": True})
    done, _ = run(settings, sampled_by(create(settings), GROUPS))
    assert done.credits[0].advantages[1] == pytest.approx(1.020621, abs=1e-5)


def test_without_the_advantage_mask_given_tokens_share_their_trajectory_s_advantage() -> None:
    settings = without_critic("rloo", masks={"advantages": False})
    done, _ = run(settings, sampled_by(create(settings), GROUPS[:3]))
    assert done.credits[1].advantages == pytest.approx((0, 0.5, 0.5, 0.5))


# The reference


def k2(policy: Policy, reference: Policy, rows: Sequence[Annotation]) -> float:
    """The mean of r^2 / 2 over action tokens."""
    pairs = [
        (one, other)
        for annotation in rows
        for one, other in zip(plain_logprobs(policy, annotation), plain_logprobs(reference, annotation), strict=True)
    ]
    return sum((one - other) ** 2 / 2 for one, other in pairs) / len(pairs)


def test_kl_to_the_reference_counts_action_tokens_only() -> None:
    """A9."""
    settings = config({"kl_coefficient": 0.5})
    policy, reference = create(settings), create(config(seed=7))
    rows = sampled_by(policy, ROWS)
    expected = k2(policy, reference, rows)
    done = update(make_learner(policy, settings), reference, rows, settings, 1)
    assert expected > 0.1
    assert done.metrics["ppo/kl_reference"] == pytest.approx(expected, rel=1e-4)


def test_the_kl_to_the_reference_is_measured_by_every_estimator_whichever_is_paid() -> None:
    """At the first step r is the difference of the plain log-probabilities; ppo/kl_reference is the one of the loss."""
    settings = config({"kl_coefficient": 0.5, "kl_estimator": "k3"})
    policy, reference = create(settings), create(config(seed=7))
    rows = sampled_by(policy, ROWS[:1])
    pairs = zip(plain_logprobs(policy, rows[0]), plain_logprobs(reference, rows[0]), strict=True)
    r1, r2, r3 = (one - other for one, other in pairs)
    found = update(make_learner(policy, settings), reference, rows, settings, 1).metrics
    assert found["ppo/kl_reference_k1"] == pytest.approx((r1 + r2 + r3) / 3, abs=1e-4)
    assert found["ppo/kl_reference_k2"] == pytest.approx((r1**2 + r2**2 + r3**2) / 6, rel=1e-3)
    k3 = sum(math.exp(-r) - 1 + r for r in (r1, r2, r3)) / 3
    assert found["ppo/kl_reference_k3"] == pytest.approx(k3, rel=1e-3)
    assert found["ppo/kl_reference"] == found["ppo/kl_reference_k3"]


def test_without_a_reference_there_is_no_kl_to_it() -> None:
    assert not any("kl_reference" in name for name in run(config())[0].metrics)


def test_kl_in_the_reward_is_taken_off_each_action_token_s_reward() -> None:
    """gamma = lam = 1 and a critic that says 0: an advantage is the sum of the rewards to come."""
    settings = config(
        {"kl_coefficient": 0.5, "kl_in": "reward", "kl_estimator": "k1"}, advantages={"lam": 1.0, "whiten": False}
    )
    policy, reference = create(settings), create(config(seed=7))
    rows = sampled_by(policy, ROWS[:1])
    taken = [
        0.5 * (one - other)
        for one, other in zip(plain_logprobs(policy, rows[0]), plain_logprobs(reference, rows[0]), strict=True)
    ]
    done = update(make_learner(policy, settings), reference, rows, settings, 1)
    expected = (0.95 - sum(taken), 0.95 - sum(taken[1:]), 1.0 - taken[2])
    assert [done.credits[0].advantages[place] for place in (2, 3, 6)] == pytest.approx(expected, abs=1e-4)


def gradient(settings: Config, reference: Policy | None = None, rows: Sequence[Annotation] | None = None) -> Tensor:
    """The gradient of the first step, all parameters in a row."""
    policy = create(settings)
    learner = make_learner(policy, settings)
    update(learner, reference, rows or sampled_by(policy, ROWS, settings.rollout.temperature), settings, 1)
    parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in learner.policy.model.parameters()]
    return torch.cat([part.flatten() for part in parts])


def test_kl_in_the_loss_pulls_towards_the_reference_and_leaves_credit_alone() -> None:
    reference = create(config(seed=7))
    none = gradient(config())
    in_loss = gradient(config({"kl_coefficient": 0.5}), reference)
    assert float((none - in_loss).abs().max()) > 1e-4
    settings = config({"kl_coefficient": 0.5})
    policy = create(settings)
    rows = sampled_by(policy, ROWS)
    done = update(make_learner(policy, settings), reference, rows, settings, 1)
    assert done.credits == run(config())[0].credits


def test_kl_in_the_reward_is_not_in_the_loss_too() -> None:
    """Where the reference is the policy, the reward changes nothing: the gradient is that of no KL at all."""
    same_reference = create(config())
    in_reward = gradient(config({"kl_coefficient": 0.5, "kl_in": "reward"}), same_reference)
    torch.testing.assert_close(in_reward, gradient(config()), atol=1e-7, rtol=0)


def test_a_missing_reference_is_refused() -> None:
    settings = config({"kl_coefficient": 0.5})
    policy = create(settings)
    with pytest.raises(ValueError, match="reference"):
        update(make_learner(policy, settings), None, ROWS, settings, 1)


# Masks


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_what_is_stored_at_given_tokens_influences_nothing(bad: float) -> None:
    """C7."""
    settings = config({"kl_coefficient": 0.1, "epochs": 2, "minibatches": 2})
    rows = sampled_by(create(settings), ROWS)
    poisoned = [
        replace(
            one,
            logprobs=tuple(
                value if chosen else bad for value, chosen in zip(one.logprobs, one.action_mask, strict=True)
            ),
        )
        for one in rows
    ]
    clean_update, clean = run(settings, rows)
    bad_update, learner = run(settings, poisoned)
    assert bad_update == clean_update
    assert same(weights(learner), weights(clean))
    assert all(math.isfinite(value) for value in bad_update.metrics.values())


def test_rows_of_other_lengths_in_the_batch_change_no_gradient_but_the_mean() -> None:
    """Padding is no token: the gradient of two rows together is the token-weighted mean of each alone (B20)."""
    policy = create(CONFIG)
    long, short = sampled_by(policy, ROWS[:2])
    together = gradient(CONFIG, rows=[long, short])
    parts = (3 * gradient(CONFIG, rows=[long]) + 2 * gradient(CONFIG, rows=[short])) / 5
    torch.testing.assert_close(together, parts, atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_micro_batch_changes_no_gradient(size: int) -> None:
    """C3: and one larger than the batch is the batch."""
    reference = create(config(seed=7))
    settings = {"kl_coefficient": 0.1, "entropy_coefficient": 0.01, "dual_clip": 3.0}
    whole = gradient(config({**settings, "micro_batch": 1000}), reference)
    parts = gradient(config({**settings, "micro_batch": size}), reference)
    assert float(whole.abs().max()) > 1e-3
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=0)


def test_a_micro_batch_changes_no_credit_and_no_metric() -> None:
    one, _ = run(config({"micro_batch": 1}))
    all_at_once, _ = run(config({"micro_batch": 1000}))
    for name, value in all_at_once.metrics.items():
        assert one.metrics[name] == pytest.approx(value, abs=1e-5), name
    for left, right in zip(one.credits, all_at_once.credits, strict=True):
        assert left.advantages == pytest.approx(right.advantages, abs=1e-5)


def test_without_the_loss_mask_given_tokens_are_trained_as_if_chosen() -> None:
    """The ablation: credit stays on action tokens, the loss's mean counts 7 + 3 + 4 + 4 - 4 tokens."""
    batch = make_batch(ROWS, MaskConfig(loss=False))
    assert int(batch.loss_mask_S_T.sum()) == 14
    assert torch.equal(batch.credit_mask_S_T, batch.action_mask_S_T)
    assert not batch.loss_mask_S_T[:, 0].any()
    assert not (batch.loss_mask_S_T & ~batch.real_S_T).any()
    masked, unmasked = gradient(config()), gradient(config(masks={"loss": False}))
    assert float((masked - unmasked).abs().max()) > 1e-4
    done, _ = run(config(masks={"loss": False}))
    assert done.metrics["ppo/kl"] == pytest.approx(0, abs=1e-6), "given tokens are compared with themselves"
    assert done.metrics["ppo/action_tokens"] == 8


def test_without_the_loss_mask_the_critic_still_learns_on_tokens_with_credit_alone() -> None:
    """Values .25 at every real token; the only return is 1: a given token's value is no error of the critic's."""
    settings = config(masks={"loss": False})
    policy = critic(create(settings), *[0.25] * 3)
    annotated = sampled_by(create(settings), [row("t", [0, 0, 1, 0], [0, 0, 1, 0])])
    learner = make_learner(policy, settings)
    done = update(learner, None, annotated, settings, 1)
    assert done.metrics["ppo/value_loss"] == pytest.approx(0.28125), "(1 - .25)^2 / 2, over one token"


def test_without_the_advantage_mask_credit_runs_through_given_tokens() -> None:
    """L2, and B1's naive numbers: d = .1, 8.8, 0, -8.7, .7 with values .1, .2, 9, 9, .3 at every token.

    A5 = .7, A4 = -8.7 + .95 * .7 = -8.035, A3 = .95 * A4 = -7.63325, A2 = 8.8 + .95 * A3 = 1.5484125,
    A1 = .1 + .95 * A2 = 1.57099.
    """
    settings = config(masks={"advantages": False})
    policy = critic(create(settings), 0.1, 0.2, 9.0, 9.0, 0.3)
    annotated = [row("t", [0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1])]
    learner = make_learner(policy, settings)
    batch = make_batch(annotated, settings.masks)
    assert batch.credit_mask_S_T.tolist() == [[False, True, True, True, True, True]]
    assert batch.loss_mask_S_T.tolist() == [[False, True, True, False, False, True]]
    done = update(learner, None, annotated, settings, 1)
    assert done.credits[0].advantages == pytest.approx((0, 1.57099, 1.54841, -7.63325, -8.035, 0.7), abs=1e-4)


# Steps


def test_a_rewarded_action_becomes_likelier_and_a_punished_one_less_likely() -> None:
    settings = config({"learning_rate": 1e-3})
    policy = create(settings)
    good, bad = row("good", [0, 1, 1], [0, 0, 1.0]), row("bad", [0, 1, 1], [0, 0, -1.0], start=300)
    rows = sampled_by(policy, [good, bad])
    before = [sum(plain_logprobs(policy, one)) for one in rows]
    run(settings, rows, policy)
    after = [sum(plain_logprobs(policy, one)) for one in rows]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_observation_tokens_carry_no_loss() -> None:
    """Other tool text after the last action: the same gradient; between actions it is seen, so another one."""
    policy = create(CONFIG)
    one = row("t", [0, 1, 1, 0, 0, 1, 0, 0], [0, 0, 0.5, 0, 0, 1.0, 0, 0])
    after, between = list(one.token_ids), list(one.token_ids)
    after[6:8] = [500, 501]
    between[3:5] = [500, 501]
    base, last, inner = (
        gradient(CONFIG, rows=sampled_by(policy, [replace(one, token_ids=tuple(ids))]))
        for ids in (one.token_ids, after, between)
    )
    torch.testing.assert_close(last, base, atol=1e-7, rtol=0)
    assert float((inner - base).abs().max()) > 1e-4


def test_an_update_without_an_action_token_takes_no_step_and_is_counted() -> None:
    """C2."""
    settings = config({"epochs": 3, "minibatches": 2}, advantages={"whiten": True})
    policy = create(settings)
    before = copy.deepcopy(policy.model.state_dict())
    empty = [row("a", [0, 0], [0, 0]), row("b", [0, 0, 0], [0, 0, 0])]
    done, learner = run(settings, empty, policy)
    assert done.metrics["ppo/skipped_updates"] == 6
    assert done.metrics["ppo/steps"] == 0
    assert all(math.isfinite(value) for value in done.metrics.values())
    assert same(before, learner.policy.model.state_dict())
    assert done.credits[0].advantages == (0.0, 0.0)


def test_an_iteration_without_any_row_is_counted_too() -> None:
    done, _ = run(config({"epochs": 3, "minibatches": 2}), [])
    assert done == Update({"ppo/skipped_updates": 6.0}, [])


def test_a_minibatch_without_action_tokens_is_skipped_and_the_others_are_not() -> None:
    rows = [row("a", [0, 0], [0, 0]), row("b", [0, 1], [0, 1.0])]
    done, _ = run(config({"epochs": 2, "minibatches": 2}), rows)
    assert (done.metrics["ppo/skipped_updates"], done.metrics["ppo/steps"]) == (2, 2)


def test_a_gradient_that_is_not_finite_takes_no_step_and_is_counted() -> None:
    policy = create(CONFIG)
    rows = sampled_by(policy, [row("a", [0, 1, 1], [0, 0, 3e38])])
    before = copy.deepcopy(policy.model.state_dict())
    done, learner = run(CONFIG, rows, policy)
    assert (done.metrics["ppo/skipped_updates"], done.metrics["ppo/steps"]) == (1, 0)
    assert same(before, learner.policy.model.state_dict())
    assert not learner.optimizer.state


@pytest.mark.parametrize("mask", [[0, 1], [0, 0, 0, 1]])
def test_an_action_of_one_token_is_trained(mask: list[int]) -> None:
    """C10: the response is the end token alone."""
    policy = create(CONFIG)
    done, _ = run(CONFIG, sampled_by(policy, [row("a", mask, [0.0] * (len(mask) - 1) + [1.0])]), policy)
    assert done.metrics["ppo/steps"] == 1
    assert done.credits[0].advantages[-1] == 1.0


def test_every_epoch_takes_a_step_for_each_minibatch_and_no_more_than_there_are_segments() -> None:
    assert run(config({"epochs": 3, "minibatches": 2}))[0].metrics["ppo/steps"] == 6
    assert run(config({"epochs": 3, "minibatches": 50}))[0].metrics["ppo/steps"] == 12


def test_target_kl_stops_the_update_before_the_step_that_passes_it() -> None:
    policy = create(CONFIG)
    rows = [replace(one, logprobs=tuple(value - 3 for value in one.logprobs)) for one in sampled_by(policy, ROWS)]
    settings = config({"epochs": 2, "minibatches": 2, "target_kl": 1.0})
    before = copy.deepcopy(policy.model.state_dict())
    done, learner = run(settings, rows, policy)
    assert (done.metrics["ppo/stopped_early"], done.metrics["ppo/steps"]) == (1, 0)
    assert same(before, learner.policy.model.state_dict())
    loose, _ = run(config({"epochs": 2, "minibatches": 2, "target_kl": 100.0}), rows)
    assert (loose.metrics["ppo/stopped_early"], loose.metrics["ppo/steps"]) == (0, 4)


def test_target_kl_stops_after_the_policy_has_moved() -> None:
    done, _ = run(config({"epochs": 20, "learning_rate": 0.05, "target_kl": 0.01}))
    assert done.metrics["ppo/stopped_early"] == 1
    assert 1 <= done.metrics["ppo/steps"] < 20


def test_the_first_ratio_is_one_at_the_temperature_of_sampling() -> None:
    """C5: KL to the sampling policy is 0 with log-probabilities at the same temperature, and not at another."""
    settings = config(rollout={"temperature": 0.7})
    policy = create(settings)
    right, _ = run(settings, sampled_by(policy, ROWS, 0.7), create(settings))
    wrong, _ = run(settings, sampled_by(policy, ROWS, 1.0), create(settings))
    assert right.metrics["ppo/kl"] == pytest.approx(0, abs=1e-6)
    assert right.metrics["ppo/clip_fraction"] == 0
    assert wrong.metrics["ppo/kl"] > 1e-3


def test_learning_rates_rise_over_the_warm_up() -> None:
    settings = config({"warmup_updates": 4, "learning_rate": 0.4, "value_learning_rate": 0.8})
    for iteration, scale in ((1, 0.25), (3, 0.75), (4, 1.0), (9, 1.0)):
        _, learner = run(settings, iteration=iteration)
        rates = [one.param_groups[0]["lr"] for one in (learner.optimizer, learner.critic_optimizer)]
        assert rates == pytest.approx([0.4 * scale, 0.8 * scale])


def test_gradients_are_clipped_to_max_grad_norm() -> None:
    clipped = gradient(config({"max_grad_norm": 1e-3}))
    assert float(clipped.norm()) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(("whiten", "largest"), [(False, 5.0), (True, math.sqrt(3))])
def test_the_spread_of_advantages_before_whitening_and_the_largest_after(whiten: bool, largest: float) -> None:
    """A critic that says 0, rewards 1, 1, 1 and 5: mean 2, deviations -1, -1, -1 and 3, their square mean 3."""
    settings = config(advantages={"whiten": whiten})
    rows = [row(name, [0, 1, 0], [0, reward, 0]) for name, reward in zip("abcd", (1.0, 1.0, 1.0, 5.0), strict=True)]
    done, _ = run(settings, rows, critic(create(settings), 0.0, 0.0, 0.0, 0.0))
    assert done.metrics["ppo/advantage_std"] == pytest.approx(math.sqrt(3), abs=1e-5)
    assert done.metrics["ppo/advantage_max"] == pytest.approx(largest, abs=1e-5)


def test_the_promised_metrics_are_there() -> None:
    done, _ = run(config({"kl_coefficient": 0.1}))
    names = "policy_loss value_loss kl entropy clip_fraction explained_variance grad_norm skipped_updates"
    assert {f"ppo/{name}" for name in names.split()} <= set(done.metrics)
    assert 0 < done.metrics["ppo/entropy"] <= math.log(760)


def test_the_value_loss_is_half_the_mean_squared_error_over_action_tokens() -> None:
    """A new critic says 0. Returns (lam 1): a .95 .95 1, b -.1 -.1, c 1.3 1 1."""
    done, _ = run(config(advantages={"lam": 1.0, "whiten": False}))
    squares = [0.95**2, 0.95**2, 1, 0.01, 0.01, 1.3**2, 1, 1]
    assert done.metrics["ppo/value_loss"] == pytest.approx(sum(squares) / 16, abs=1e-5)


def test_the_critic_learns_what_was_earned_whatever_the_lambda_of_advantages() -> None:
    """VC-PPO: lam 0 sees one step only, so returns are 0, 0 and 1; the critic's targets are 1, 1, 1 (loss .5)."""
    rows = [row("t", [0, 1, 1, 1], [0, 0, 0, 1.0])]
    settings = config({"value_steps": 300, "value_learning_rate": 0.01}, advantages={"lam": 0.0, "whiten": False})
    policy = create(settings)
    done, learner = run(settings, sampled_by(policy, rows), policy)
    assert done.credits[0].returns == pytest.approx((0, 0, 0, 1))
    assert done.metrics["ppo/value_loss"] == pytest.approx(0.5)
    ids, mask = torch.tensor([rows[0].token_ids]), torch.tensor([rows[0].action_mask])
    assert learner.policy.score(ids, mask, 1.0).values[mask].tolist() == pytest.approx([1, 1, 1], abs=0.1)


def test_without_value_steps_the_critic_stays_as_it_is_and_nothing_is_computed_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = config({"value_steps": 0, "weight_decay": 0.1})
    policy = create(settings)
    before = copy.deepcopy(policy.value_head.state_dict())
    monkeypatch.delattr(Policy, "states")
    run(settings, policy=policy)
    assert same(before, policy.value_head.state_dict())


def test_steps_of_the_critic_that_are_skipped_are_counted_with_the_policy_s() -> None:
    """A reward of 3e38 makes the policy's step and the three of the critic infinite."""
    settings = config({"value_steps": 3})
    policy = create(settings)
    before = copy.deepcopy(policy.value_head.state_dict())
    done, _ = run(settings, sampled_by(policy, [row("a", [0, 1, 1], [0, 0, 3e38])]), policy)
    assert done.metrics["ppo/skipped_updates"] == 4
    assert same(before, policy.value_head.state_dict())


# Doing it again


def test_an_update_is_the_same_bit_for_bit_whatever_was_drawn_before() -> None:
    settings = config({"epochs": 2, "minibatches": 3, "kl_coefficient": 0.1, "value_steps": 3})
    torch.manual_seed(1)
    first_update, first = run(settings)
    torch.manual_seed(2)
    torch.rand(5)
    second_update, second = run(settings)
    assert first_update == second_update
    assert same(weights(first), weights(second))


def test_minibatches_follow_from_seed_and_iteration() -> None:
    settings = config({"epochs": 1, "minibatches": 4})
    third = weights(run(settings, iteration=3)[1])
    assert same(third, weights(run(settings, iteration=3)[1]))
    assert not same(third, weights(run(settings, iteration=4)[1]))


def test_an_update_draws_no_dropout() -> None:
    """The ratio compares with the network that sampled; random numbers of torch's own would be lost on resume."""
    shape = LlamaConfig(
        vocab_size=700, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        attention_dropout=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    network = LlamaForCausalLM(shape).eval()
    plain = create(CONFIG)
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        policy = replace(plain, model=copy.deepcopy(network), value_head=copy.deepcopy(plain.value_head))
        done, learner = run(CONFIG, sampled_by(policy, ROWS), policy)
        assert done.metrics["ppo/kl"] == pytest.approx(0, abs=1e-6)
        found.append(weights(learner))
    assert same(*found)


def test_a_learner_that_was_saved_and_loaded_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    """G10: weights, critic and optimizer."""
    settings = config({"epochs": 2, "minibatches": 2, "value_steps": 3})
    _, straight = run(settings)
    straight.policy.save(tmp_path)
    file = io.BytesIO()
    torch.save(learner_state(straight), file)
    file.seek(0)
    resumed = make_learner(load(tmp_path, settings), settings, torch.load(file, weights_only=True))
    rows = sampled_by(straight.policy, ROWS)
    one = update(straight, None, rows, settings, 2)
    other = update(resumed, None, rows, settings, 2)
    assert one == other
    assert same(weights(straight), weights(resumed))
    fresh = make_learner(load(tmp_path, settings), settings)
    update(fresh, None, rows, settings, 2)
    assert not same(weights(fresh), weights(straight)), "the optimizer's state makes no difference: it tests nothing"


@pytest.mark.parametrize("state", [{}, {"optimizer": {"state": {}, "param_groups": []}}])
def test_an_optimizer_state_of_another_model_is_a_checkpoint_error(state: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="optimizer"):
        make_learner(create(CONFIG), CONFIG, state)


def test_the_policy_that_samples_next_is_the_one_that_was_updated() -> None:
    """C12's kind: logits change after a step."""
    policy = create(CONFIG)
    before = plain_logprobs(policy, ROWS[0])
    _, learner = run(CONFIG, sampled_by(policy, ROWS), policy)
    assert learner.policy.model is policy.model
    assert plain_logprobs(policy, ROWS[0]) != before


# The batch


def test_joined_segments_stand_in_order_and_split_gives_them_back() -> None:
    rows = [
        row("t", [0, 1], [0, 0], segment=1),
        row("u", [0, 1, 1, 0], [0, 0, 0, 0]),
        row("t", [0, 1, 1], [0, 0, 0], segment=0),
    ]
    batch = make_batch(rows, MaskConfig())
    assert [(one.trajectory_id, one.segment) for one in batch.annotations] == [("t", 0), ("t", 1), ("u", 0)]
    values = pad([[1, 2, 3], [4, 5], [6, 7, 8, 9]])
    joined = batch.join(values)
    assert joined.tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 0]]
    assert batch.split(joined).tolist() == values.tolist()
    assert batch.action_mask_S_T.tolist() == [
        [False, True, True, False],
        [False, True, False, False],
        [False, True, True, False],
    ]


Break = Callable[[Annotation], Annotation]


@pytest.mark.parametrize(
    "broken",
    [
        lambda one: replace(one, rewards=one.rewards[:-1]),
        lambda one: replace(one, logprobs=(*one.logprobs, 0.0)),
        lambda one: replace(one, action_mask=one.action_mask[1:]),
    ],
)
def test_lists_of_different_lengths_are_refused(broken: Break) -> None:
    """A2."""
    with pytest.raises(ValueError, match="b segment 0: its lists have lengths"):
        make_batch([ROWS[0], broken(ROWS[1])], MaskConfig())


def test_a_reward_on_a_given_token_is_refused() -> None:
    """B3: it cannot be dropped without a word."""
    with pytest.raises(ValueError, match="given token"):
        run(CONFIG, [row("a", [0, 1, 0, 0], [0, 0, 0, -1.0])])
