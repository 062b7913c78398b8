"""What is read off credit that was given, by hand; giving it is tried through whole updates in test_ppo.py."""

from __future__ import annotations

import pytest
import torch

from agent_r1 import credit
from agent_r1.batch import Batch, make_batch
from agent_r1.config import parse
from agent_r1.credit import Credited, credit_rows, explained_variance, give_credit, micro_batches
from agent_r1.model import Policy, Scores
from agent_r1.sections import MaskConfig
from agent_r1.trajectory import Annotation


def batch(*masks: list[int], settings: MaskConfig | None = None) -> Batch:
    """Trajectories a, b, ... of one segment each."""
    rows = [
        Annotation(name, 0, (1,) * len(mask), tuple(map(bool, mask)), (0.0,) * len(mask), (0.0,) * len(mask), {})
        for name, mask in zip("abcd", masks, strict=False)
    ]
    return make_batch(rows, settings or MaskConfig())


def credited(made: Batch, values: list[list[float]], targets: list[list[float]]) -> Credited:
    """Credit with returns that are not the targets, and no reference."""
    zeros = torch.zeros(made.ids_S_T.shape)
    return Credited(
        old_logprobs=zeros,
        importance=zeros + 1,
        reference_logprobs=None,
        values=torch.tensor(values),
        advantages=zeros + 2,
        returns=zeros + 9,
        targets=torch.tensor(targets),
        value_mask=made.loss_mask_S_T & made.credit_mask_S_T,
        spread=0.0,
    )


@pytest.mark.parametrize(("values", "explained"), [((1.0, 3.0), 1.0), ((1.0, 1.0), 0.0), ((1.0, 2.0), 0.75)])
def test_explained_variance_is_of_the_targets_over_action_tokens(values: tuple[float, float], explained: float) -> None:
    """Targets 1 and 3. Values 1 and 3 explain all; 1 and 1 nothing; 1 and 2 leave .25 of 1. Given tokens say 7."""
    made = batch([0, 0, 1], [0, 1, 0])
    seen = credited(made, [[7, 7, values[0]], [7, values[1], 7]], [[0, 0, 1.0], [0, 3.0, 0]])
    assert explained_variance(made, seen) == pytest.approx(explained)


def test_where_returns_differ_by_rounding_there_is_nothing_to_explain() -> None:
    """An update without any reward once reported -3e13."""
    made = batch([0, 1], [0, 1])
    assert explained_variance(made, credited(made, [[7, 0.5], [7, 0.1]], [[0, 1e-8], [0, 0.0]])) == 0.0


def test_the_value_loss_is_half_the_mean_squared_error_to_the_targets_over_action_tokens() -> None:
    """Errors 1 and 2: (1 + 4) / 2 / 2."""
    made = batch([0, 0, 1], [0, 1, 0])
    assert credited(made, [[7, 7, 0.0], [7, 1.0, 7]], [[0, 0, 1.0], [0, 3.0, 0]]).value_loss == pytest.approx(1.25)
    nothing = batch([0, 0])
    assert credited(nothing, [[7, 7]], [[0, 0]]).value_loss == 0.0


def test_rows_of_the_credit_table_are_zero_on_given_tokens_unless_a_mask_lets_them_through() -> None:
    made = batch([0, 0, 1], [0, 1])
    first, second = credit_rows(made, credited(made, [[7, 7, 1.0], [7, 3.0, 0]], [[0.0] * 3] * 2))
    assert (first.values, first.advantages, first.returns) == ((0, 0, 1), (0, 0, 2), (0, 0, 9))
    assert (second.trajectory_id, second.values) == ("b", (0, 3))
    made = batch([0, 0, 1], settings=MaskConfig(advantages=False))
    assert credit_rows(made, credited(made, [[7, 7, 1.0]], [[0.0] * 3]))[0].values == (0, 7, 1)


def test_micro_batches_hold_rows_of_about_one_length() -> None:
    made = batch([0] * 5, [0] * 2, [0] * 4, [0] * 3)
    parts = micro_batches(made, torch.arange(4), parse({"ppo": {"micro_batch": 2}}, "test"))
    assert [part.tolist() for part in parts] == [[1, 3], [2, 0]]


@pytest.mark.parametrize(
    ("estimator", "loss_mask", "passes"), [("gae", True, 1), ("leave_one_out", True, 0), ("leave_one_out", False, 1)]
)
def test_the_policy_is_asked_only_where_a_critic_or_a_given_token_needs_it(
    estimator: str, loss_mask: bool, passes: int, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    asked: list[Policy] = []

    def score_all(asker: Policy, batch: Batch, *_: object) -> Scores:
        asked.append(asker)
        return Scores(*(torch.zeros(batch.ids_S_T.shape) for _ in Scores._fields))

    monkeypatch.setattr(credit, "_score_all", score_all)
    config = parse({"advantages": {"estimator": estimator}, "rollout": {"attempts": 2}}, "test")
    give_credit(policy, None, batch([0, 1, 1], [0, 1, 0], settings=MaskConfig(loss=loss_mask)), config)
    assert len(asked) == passes
