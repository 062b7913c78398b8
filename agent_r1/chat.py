"""Text to tokens, once: what the world says is encoded here, and special strings inside it stay plain text.

What the model says is never encoded: its ids are stored as sampled. Parsing its text is left to tool_calls.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agent_r1.errors import CheckpointError, ConfigError
from agent_r1.tools.protocol import Tool

_SLOT = "SLOT{}TOLS"
_CONTROL = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<answer>", "</answer>")


class Chat:
    """The chat format of a tokenizer with tools.

    `end_id` is the token that the model must sample to end its turn. Template pieces are encoded with their special
    tokens; a question or a tool's text is encoded on its own, so its first and last token can differ from those of the
    whole text encoded at once (a full stop before a new line is one token to some). The text is the same.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: Sequence[Tool], system_prompt: str) -> None:
        self.tokenizer = tokenizer
        self._schemas = [json.loads(json.dumps(dict(tool.schema))) for tool in tools]
        self._system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        controls = {*_CONTROL, *(token.content for token in tokenizer.added_tokens_decoder.values())}
        # A lookahead finds those that begin inside another one, too.
        self._controls = re.compile(f"(?={'|'.join(re.escape(text) for text in controls if len(text) > 1)})")
        self.end_id = self._find_end()

    def prompt(self, question: str) -> list[int]:
        """The tokens before the first action: system text, tools, the question, the start of the assistant's turn."""
        before, after = self._render([{"role": "user", "content": _SLOT.format(0)}])
        return [*self._template(before), *self.plain(question), *self._template(after)]

    def observation(self, texts: Sequence[str]) -> list[int]:
        """The tokens between an action that ended with `end_id` and the next: one tool message for each text."""
        ids: list[int] = []
        pieces = self._between(len(texts))
        for piece, text in zip(pieces, [*texts, ""], strict=True):
            ids.extend(piece)
            ids.extend(self.plain(text))
        return ids

    def action(self, text: str) -> list[int]:
        """A demonstration's action: its text, in which tags are the model's own, and the end of the turn."""
        return [*self._template(text), self.end_id]

    def plain(self, text: str) -> list[int]:
        """Tokens of a text from outside; no string in it becomes a control token."""
        ids: list[int] = []
        start = 0
        for match in self._controls.finditer(text):
            ids.extend(self._template(text[start : match.start() + 1]))
            start = match.start() + 1
        ids.extend(self._template(text[start:]))
        return ids

    def cut(self, text: str, limit: int, note: str = " [cut]") -> tuple[str, int]:
        """The text as shown within `limit` tokens, and how many of its characters are shown."""
        if len(self.plain(text)) <= limit:
            return text, len(text)
        room = max(limit - len(self.plain(note)), 0)
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if len(self.plain(text[:middle])) <= room:
                low = middle
            else:
                high = middle - 1
        return text[:low] + note, low

    def text(self, action_ids: Sequence[int]) -> str:
        """What the model said, without the end of its turn."""
        ids = action_ids[:-1] if action_ids and action_ids[-1] == self.end_id else action_ids
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _template(self, text: str) -> list[int]:
        if not text:
            return []
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: list[dict[str, str]]) -> list[str]:
        """The template's text around the slots of the messages."""
        text = str(
            self.tokenizer.apply_chat_template(
                [*self._system, *messages],
                tools=self._schemas or None,
                tokenize=False,
                add_generation_prompt=True,
            )
        )
        pieces = re.split(_SLOT.format(r"\d+"), text)
        slots = sum(message["content"].startswith("SLOT") for message in messages)
        if len(pieces) != slots + 1:
            raise ConfigError("model.path: its chat template does not show every message once")
        return pieces

    @lru_cache(maxsize=32)  # noqa: B019 - a chat lives as long as the rollout that made it
    def _between(self, results: int) -> list[list[int]]:
        tool_messages = [{"role": "tool", "content": _SLOT.format(2 + number)} for number in range(results)]
        user_and_action = [
            {"role": "user", "content": _SLOT.format(0)},
            {"role": "assistant", "content": _SLOT.format(1)},
        ]
        pieces = self._render([*user_and_action, *tool_messages])[2:]
        encoded = [self._template(piece) for piece in pieces]
        if encoded[0][:1] != [self.end_id]:
            raise ConfigError("model.path: its chat template does not end the assistant's turn with one token")
        return [encoded[0][1:], *encoded[1:]]

    def _find_end(self) -> int:
        """The token that ends the assistant's turn: the first one after its text, before the next message."""
        pieces = self._render(
            [
                {"role": "user", "content": _SLOT.format(0)},
                {"role": "assistant", "content": _SLOT.format(1)},
                {"role": "tool", "content": _SLOT.format(2)},
            ]
        )
        first = self._template(pieces[2])[:1]
        if not first or first[0] not in self.tokenizer.all_special_ids:
            raise ConfigError("model.path: its chat template ends the assistant's turn with no special token")
        return first[0]


def load_tokenizer(folder: Path | str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder or hub id, with a chat template that knows tools (ours if its own has none)."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: no tokenizer could be loaded: {str(error).splitlines()[0]}") from error
    give_template(tokenizer)
    return tokenizer


def give_template(tokenizer: PreTrainedTokenizerBase) -> None:
    """Set our ChatML template with tools where the tokenizer speaks ChatML and its template knows no tools."""
    template = tokenizer.chat_template
    if isinstance(template, str) and "tools" in template:
        return
    if "<|im_start|>" not in tokenizer.get_vocab():
        raise ConfigError("model.path: its chat template knows no tools and it does not speak ChatML")
    tokenizer.chat_template = files("agent_r1.templates").joinpath("chatml_tools.jinja").read_text(encoding="utf-8")
