"""The embedded sampler against plain forward passes of the whole ids: cache, holes, positions, seeds (A15, C5, C11)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.model import Policy
from agent_r1.sampler import Action, ActionRequest
from agent_r1.seeds import derive, uniforms

TOLERANCE = 1e-4
Step = tuple[int, list[int], bool]
"""(row, new ids, restart)."""


def tokens(count: int, *purpose: str | int) -> list[int]:
    """Seeded ids of a vocabulary of 661."""
    return [derive(1, *purpose, place) % 661 for place in range(count)]


class Play:
    """Plays waves of requests and remembers, for each action, all that stood before it."""

    def __init__(
        self, policy: Policy, end_id: int, temperature: float = 0.7, greedy: bool = False, max_new_tokens: int = 6
    ) -> None:
        self.policy, self.temperature = policy, temperature
        self.session = EmbeddedSampler(policy).session(
            end_ids=(end_id,), temperature=temperature, greedy=greedy, max_new_tokens=max_new_tokens
        )
        self.context: dict[int, list[int]] = {}
        self.turn: dict[int, int] = {}
        self.actions: dict[tuple[int, int], tuple[list[int], Action]] = {}

    def wave(self, steps: Sequence[Step]) -> list[Action]:
        requests = []
        for row, new, restart in steps:
            turn = self.turn[row] = self.turn.get(row, -1) + 1
            self.context[row] = list(new) if restart else self.context[row] + list(new)
            requests.append(ActionRequest(row, tuple(new), derive(9, row, turn), restart))
        actions = self.session.act(requests)
        for (row, _, _), action in zip(steps, actions, strict=True):
            self.actions[row, self.turn[row]] = (list(self.context[row]), action)
            self.context[row] += action.ids
        return actions

    def check(self) -> None:
        """Every log-probability is that of one plain forward pass over the whole ids at the same temperature."""
        for before, action in self.actions.values():
            ids = torch.tensor([before + list(action.ids)])
            with torch.no_grad():
                logits = self.policy.model(input_ids=ids).logits[0].double() / self.temperature
            expected = logits.log_softmax(-1)[range(len(before) - 1, ids.shape[1] - 1), list(action.ids)]
            torch.testing.assert_close(
                torch.tensor(action.logprobs, dtype=torch.float64), expected, atol=TOLERANCE, rtol=0
            )


def waves(end_id: int) -> list[list[Step]]:
    """Four rows; one leaves after the first turn, one after the second, one starts a new segment."""
    del end_id
    return [
        [(row, tokens(length, "prompt", row), True) for row, length in enumerate((3, 17, 1, 8))],
        [(row, tokens(length, "seen", row), False) for row, length in ((0, 5), (1, 1), (3, 9))],
        [(0, tokens(4, "again", 0), False), (3, tokens(6, "anew", 3), True)],
        [(0, tokens(2, "last", 0), False), (3, tokens(1, "last", 3), False)],
    ]


@pytest.fixture(scope="module")
def end_id(policy: Policy) -> int:
    """A token that row 1 samples third and nobody needs to know: rows finish at different steps."""
    play = Play(policy, end_id=-1)
    actions = play.wave(waves(0)[0])
    return actions[1].ids[2]


def test_log_probabilities_are_those_of_a_plain_forward_pass(policy: Policy, end_id: int) -> None:
    play = Play(policy, end_id)
    for steps in waves(end_id):
        play.wave(steps)
    lengths = {len(action.ids) for _, action in play.actions.values()}
    assert len(play.actions) == 11
    assert len(lengths) > 1, "no row finished before another: the test tests nothing"
    play.check()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("greedy", [False, True])
def test_log_probabilities_keep_the_temperature(policy: Policy, end_id: int, temperature: float, greedy: bool) -> None:
    """C5: greedy, too."""
    play = Play(policy, end_id, temperature, greedy)
    for steps in waves(end_id):
        play.wave(steps)
    play.check()


def test_a_batch_says_what_its_rows_say_alone(policy: Policy, end_id: int) -> None:
    """C11."""
    together = Play(policy, end_id)
    for steps in waves(end_id):
        together.wave(steps)
    for row in range(4):
        alone = Play(policy, end_id)
        for steps in waves(end_id):
            alone.wave([step for step in steps if step[0] == row])
        for key, (_, action) in alone.actions.items():
            other = together.actions[key][1]
            assert action.ids == other.ids
            assert action.finished == other.finished
            assert action.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)


def test_rows_that_begin_alike_are_computed_once_and_go_their_own_ways(policy: Policy, end_id: int) -> None:
    prompts = {0: tokens(9, "one"), 1: tokens(5, "other"), 2: tokens(9, "one"), 3: tokens(9, "one")}
    together = Play(policy, end_id)
    with pytest.MonkeyPatch.context() as patch:
        passes: list[int] = []
        forward = Policy.next_logits

        def counted(self: Policy, ids: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
            passes.append(len(ids))
            return forward(self, ids, *rest)  # type: ignore[arg-type]

        patch.setattr(Policy, "next_logits", counted)
        first = together.wave([(row, ids, True) for row, ids in prompts.items()])
    together.wave([(row, tokens(3 + row, "seen", row), False) for row in prompts])
    assert passes[0] == 2
    assert len({action.ids for action in first}) > 2
    together.check()


def test_rows_whose_action_has_ended_are_not_computed_and_go_on_later(policy: Policy) -> None:
    """Whatever row 0 samples first ends actions: with greedy rows that begin alike all but one end at once."""
    first = Play(policy, end_id=-1, greedy=True).wave([(0, tokens(9, "one"), True)])[0].ids[0]
    play = Play(policy, end_id=first, greedy=True)
    prompts = {row: tokens(9 + (row > 2), "one") for row in range(4)}
    with pytest.MonkeyPatch.context() as patch:
        widths: list[int] = []
        forward = Policy.next_logits

        def counted(self: Policy, ids: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
            widths.append(len(ids))
            return forward(self, ids, *rest)  # type: ignore[arg-type]

        patch.setattr(Policy, "next_logits", counted)
        made = play.wave([(row, ids, True) for row, ids in prompts.items()])
    assert [len(action.ids) for action in made[:3]] == [1, 1, 1]
    assert len(made[3].ids) > 1
    assert set(widths[1:]) == {1}
    play.wave([(row, tokens(2, "seen", row), False) for row in prompts])
    play.check()


def test_the_order_of_requests_changes_nothing(policy: Policy, end_id: int) -> None:
    straight, mixed = Play(policy, end_id), Play(policy, end_id)
    orders = [[2, 0, 3, 1], [2, 1, 0], [1, 0], [0, 1]]
    for steps, order in zip(waves(end_id), orders, strict=True):
        straight.wave(steps)
        mixed.wave([steps[place] for place in order])
    for key, (_, action) in straight.actions.items():
        assert action.ids == mixed.actions[key][1].ids
        assert action.logprobs == pytest.approx(mixed.actions[key][1].logprobs, abs=TOLERANCE)
    mixed.check()


def test_the_same_requests_give_the_same_bits(policy: Policy, end_id: int) -> None:
    """G12."""
    one, two = Play(policy, end_id), Play(policy, end_id)
    for steps in waves(end_id):
        assert one.wave(steps) == two.wave(steps)


def test_all_rows_may_restart_in_mid_session(policy: Policy, end_id: int) -> None:
    play = Play(policy, end_id)
    play.wave(waves(end_id)[0])
    play.wave([(row, tokens(5, "anew", row), True) for row in range(4)])
    play.wave([(1, tokens(3, "more"), False), (2, tokens(2, "more"), False)])
    play.check()


def test_positions_count_a_row_s_own_tokens(policy: Policy, end_id: int) -> None:
    """Rotary positions hide a shift; a context near the model's limit would not. The last token is not yet held."""
    play = Play(policy, end_id)
    for steps in waves(end_id):
        play.wave(steps)
        assert play.session.rows == [row for row, _, _ in steps]
        assert play.session.position_B.tolist() == [len(play.context[row]) - 1 for row, _, _ in steps]
        assert play.session.held_B_K.sum(dim=1).tolist() == play.session.position_B.tolist()


def test_an_action_ends_with_the_end_token_or_is_cut_off(policy: Policy, end_id: int) -> None:
    play = Play(policy, end_id)
    for steps in waves(end_id):
        for action in play.wave(steps):
            assert len(action.ids) == len(action.logprobs) <= 6
            assert action.finished == (action.ids[-1] == end_id)
            assert end_id not in action.ids[:-1]
            assert action.finished or len(action.ids) == 6


def test_a_row_cut_off_at_the_limit_can_go_on(policy: Policy) -> None:
    play = Play(policy, end_id=-1, max_new_tokens=3)
    play.wave([(0, tokens(4, "a"), True), (1, tokens(2, "b"), True)])
    play.wave([(0, tokens(2, "c"), False), (1, [], False)])
    assert all(len(action.ids) == 3 and not action.finished for _, action in play.actions.values())
    play.check()


def test_each_of_several_end_tokens_ends_an_action(policy: Policy) -> None:
    """The third and the fifth token of an action that nothing ends."""
    (free,) = Play(policy, end_id=-1).wave([(0, tokens(4, "prompt"), True)])
    first, last = free.ids[2], free.ids[4]
    assert {first, last}.isdisjoint(free.ids[:2]), "the tokens of this seed repeat: it tests nothing"
    for ends, length in (((last, first), 3), ((first, last), 3), ((last,), 5), ((-1, first), 3)):
        session = EmbeddedSampler(policy).session(end_ids=ends, temperature=0.7, greedy=False, max_new_tokens=6)
        (action,) = session.act([ActionRequest(0, tuple(tokens(4, "prompt")), derive(9, 0, 0), True)])
        assert (action.ids, action.finished) == (free.ids[:length], True)


def test_one_new_token_is_enough(policy: Policy, end_id: int) -> None:
    play = Play(policy, end_id, max_new_tokens=1)
    play.wave([(0, [5], True), (1, tokens(3, "b"), True)])
    play.wave([(1, [7], False)])
    play.check()


def test_pad_ids_are_tokens_like_others(policy: Policy, end_id: int) -> None:
    """A15: in a prompt, and given between actions."""
    pad = policy.tokenizer.pad_token_id
    assert isinstance(pad, int)
    play = Play(policy, end_id)
    play.wave([(0, [pad, 4, pad, pad], True), (1, tokens(9, "b"), True)])
    play.wave([(0, [pad, pad, 3], False), (1, [pad], False)])
    play.check()


def test_greedy_takes_the_likeliest_token_whatever_the_seed(policy: Policy) -> None:
    play = Play(policy, end_id=-1, greedy=True)
    play.wave(waves(0)[0])
    for before, action in play.actions.values():
        ids = torch.tensor([before + list(action.ids)])
        with torch.no_grad():
            likeliest = policy.model(input_ids=ids).logits[0].argmax(-1)
        assert tuple(likeliest[len(before) - 1 : -1].tolist()) == action.ids


def test_each_token_is_the_inverse_transform_of_its_own_random_number(policy: Policy) -> None:
    play = Play(policy, end_id=-1, temperature=1.3, max_new_tokens=4)
    play.wave([(0, tokens(5, "prompt"), True)])
    before, action = play.actions[0, 0]
    ids = torch.tensor([before + list(action.ids)])
    with torch.no_grad():
        probabilities = (policy.model(input_ids=ids).logits[0].double() / 1.3).softmax(-1).numpy()
    for step, number in enumerate(uniforms(derive(9, 0, 0), 4)):
        below = np.cumsum(probabilities[len(before) - 1 + step])
        token = action.ids[step]
        assert (below[token - 1] if token else 0.0) - 1e-6 <= number <= below[token] + 1e-6


def test_tokens_are_drawn_as_often_as_they_are_likely(policy: Policy) -> None:
    prompt, count = tuple(tokens(6, "prompt")), 4000
    session = EmbeddedSampler(policy).session(end_ids=(-1,), temperature=0.4, greedy=False, max_new_tokens=1)
    actions = session.act([ActionRequest(row, prompt, derive(3, row), restart=True) for row in range(count)])
    counts = np.bincount([action.ids[0] for action in actions], minlength=661)
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1]
    expected = (logits.double() / 0.4).softmax(-1).numpy() * count
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 2).all()


def test_a_row_that_left_cannot_come_back(policy: Policy, end_id: int) -> None:
    play = Play(policy, end_id)
    play.wave(waves(end_id)[0])
    play.wave(waves(end_id)[1])
    with pytest.raises(KeyError):
        play.session.act([ActionRequest(0, (1,), 0), ActionRequest(2, (1,), 0)])


def test_no_request_no_action(policy: Policy, end_id: int) -> None:
    assert Play(policy, end_id).session.act([]) == []
