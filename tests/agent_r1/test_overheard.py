"""Listening to a trajectory: what is heard is what was said, whole letters at a time, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from test_sampler import tokens  # type: ignore[import-not-found]

from agent_r1.chat import Chat
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.model import Policy
from agent_r1.overheard import OverheardSampler, Spoken
from agent_r1.sampler import ActionRequest
from agent_r1.tool_calls import ParsedTurn


@dataclass
class Notes:
    """Who writes everything down."""

    before: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    turns: list[ParsedTurn] = field(default_factory=list)

    def given(self, text: str) -> None:
        self.before.append(text)

    def said(self, text: str) -> None:
        self.pieces.append(text)

    def acted(self, turn: ParsedTurn) -> None:
        self.turns.append(turn)


def heard(chat: Chat, ids: Sequence[int]) -> list[str]:
    """The pieces of an action, token by token."""
    pieces: list[str] = []
    spoken = Spoken(chat, pieces.append)
    for token in ids:
        spoken.add(token)
    spoken.end(ids)
    return pieces


def byte_ids(policy: Policy, text: bytes) -> list[int]:
    """A token for each byte."""
    vocabulary = policy.tokenizer.get_vocab()
    return [vocabulary[f"<0x{byte:02X}>"] for byte in text]


def test_a_letter_of_several_tokens_is_said_when_it_is_whole(policy: Policy) -> None:
    chat = Chat(policy.tokenizer, [], "")
    ids = byte_ids(policy, "aé漢".encode())
    assert [piece for piece in heard(chat, ids) if piece.strip()] == ["a", "é", "漢"]


def test_bytes_that_never_become_a_letter_are_said_at_the_end(policy: Policy) -> None:
    chat = Chat(policy.tokenizer, [], "")
    ids = byte_ids(policy, b"\x61\xe6")
    assert "\ufffd" in "".join(heard(chat, ids))


def test_listening_changes_no_token_and_hears_every_one(policy: Policy) -> None:
    chat, notes = Chat(policy.tokenizer, [], ""), Notes()
    plain = EmbeddedSampler(policy)
    request = ActionRequest(0, tuple(tokens(9, "prompt")), 5, True)
    options = {"end_ids": chat.end_ids, "temperature": 1.0, "greedy": False, "max_new_tokens": 12}
    (expected,) = plain.session(**options).act([request])  # type: ignore[arg-type]
    (action,) = OverheardSampler(plain, chat, notes).session(**options).act([request])  # type: ignore[arg-type]
    assert action == expected
    assert len(notes.pieces) > 1  # as they came, not at the end
    assert "".join(notes.pieces) == policy.tokenizer.decode(list(action.ids), skip_special_tokens=True)
    assert notes.before == [policy.tokenizer.decode(list(request.new_ids))]
    assert len(notes.turns) == 1


def test_only_the_first_row_of_a_batch_is_heard(policy: Policy) -> None:
    ids: list[int] = []
    session = EmbeddedSampler(policy, ids.append).session(end_ids=(1,), temperature=1.0, greedy=False, max_new_tokens=8)
    requests = [ActionRequest(row, tuple(tokens(4, "batch", row)), row, True) for row in range(3)]
    actions = session.act(requests)
    assert tuple(ids) == actions[0].ids
