"""A sampler that is listened to: what one trajectory is given and says, as text, while it happens.

The tokens go through unchanged, so a trajectory is the same with a listener and without. Showing it is left to the
listener, which an embedded sampler tells each token; another engine's actions are heard when they are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent_r1.chat import Chat
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.sampler import Action, ActionRequest, Sampler, Session
from agent_r1.tool_calls import ParsedTurn

BROKEN = "\ufffd"


class Listener(Protocol):
    """Who is told, in this order, turn by turn."""

    def given(self, text: str) -> None:
        """What the world put before the action: the prompt at first, then observations."""
        ...

    def said(self, text: str) -> None:
        """A further piece of the action; all pieces are its text without special tokens."""
        ...

    def acted(self, turn: ParsedTurn) -> None:
        """The action is whole; its calls are about to be run."""
        ...


@dataclass(frozen=True, slots=True)
class OverheardSampler:
    """A Sampler for sessions of a single trajectory."""

    sampler: Sampler
    chat: Chat
    listener: Listener

    def session(self, *, end_ids: tuple[int, ...], temperature: float, greedy: bool, max_new_tokens: int) -> Session:
        """See Sampler.session."""
        spoken = Spoken(self.chat, self.listener.said)
        heard = replace(self.sampler, heard=spoken.add) if isinstance(self.sampler, EmbeddedSampler) else self.sampler
        inner = heard.session(end_ids=end_ids, temperature=temperature, greedy=greedy, max_new_tokens=max_new_tokens)
        return _OverheardSession(inner, self.chat, self.listener, spoken)


@dataclass(slots=True)
class Spoken:
    """Tokens of an action to pieces of its text: letters that are not whole yet wait for their other tokens."""

    chat: Chat
    say: Callable[[str], None]
    ids: list[int] = field(default_factory=list)
    text: str = ""

    def add(self, token: int) -> None:
        """One more token."""
        self.ids.append(token)
        now = str(self.chat.tokenizer.decode(self.ids, skip_special_tokens=True))
        if not now.endswith(BROKEN):
            self._tell(now)

    def end(self, ids: Sequence[int]) -> None:
        """The action is whole: what was not told yet."""
        self._tell(str(self.chat.tokenizer.decode(list(ids), skip_special_tokens=True)))
        self.ids.clear()
        self.text = ""

    def _tell(self, now: str) -> None:
        told = 0  # all of it, but where the tokenizer tidies what stood before
        for before, after in zip(self.text, now, strict=False):
            if before != after:
                break
            told += 1
        if told < len(now):
            self.say(now[told:])
        self.text = now


@dataclass(slots=True)
class _OverheardSession:
    """See Session."""

    inner: Session
    chat: Chat
    listener: Listener
    spoken: Spoken

    def act(self, requests: Sequence[ActionRequest]) -> list[Action]:
        """See Session.act. ValueError for more than one trajectory."""
        (request,) = requests
        self.listener.given(str(self.chat.tokenizer.decode(list(request.new_ids), skip_special_tokens=False)))
        (action,) = self.inner.act(requests)
        self.spoken.end(action.ids)
        self.listener.acted(self.chat.parse(action.ids, action.finished))
        return [action]
