"""Text to tokens, once: what the world says is encoded here, and special strings inside it stay plain text.

What the model says is never encoded: its ids are stored as sampled. Parsing its text is left to tool_calls.py.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from datetime import date
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agent_r1.errors import CheckpointError, ConfigError
from agent_r1.formats import choose, plain
from agent_r1.questions.records import Json
from agent_r1.tool_calls import ParsedTurn, parse
from agent_r1.tools.protocol import Described, JsonObject

_SLOT = "SLOT{}TOLS"
_CONTROL = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<answer>", "</answer>", "<think>",
    "</think>", "<|python_tag|>", "<|eom_id|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
)  # fmt: skip
_CLOSED = "</think>"
_NOW = re.compile(r"""strftime_now\((["'])(.*?)\1\)""")
_TODAY = date(2024, 7, 26)  # what Llama's templates say where they know no date: a prompt must not change overnight
Tokenizer = PreTrainedTokenizerBase
Past = tuple[Sequence[int], Sequence[str]]
"""A turn that was: its action's tokens, and the texts of the results after it."""


class Chat:
    """The chat format of a tokenizer with tools.

    `end_id` is the token that ends a turn in the template; the model may sample any of `end_ids`. Template pieces are
    encoded with their special tokens; a question or a tool's text is encoded on its own, so its first and last token
    can differ from those of the whole text encoded at once (a full stop before a new line is one token to some). The
    text is the same, but for blanks at a question's ends that some templates strip.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Described],
        system_prompt: str,
        tool_format: str = "auto",
        thinking: bool = True,
    ) -> None:
        template = str(tokenizer.chat_template)
        if not thinking and "enable_thinking" not in template:
            raise ConfigError("model.thinking: the chat template of model.path has no way to switch thinking off")
        self.tokenizer = tokenizer
        self._thinking = thinking
        tokens = tokenizer.get_vocab()
        self._format = choose(template, frozenset(tokens), tool_format)
        self._schemas = [json.loads(json.dumps(dict(tool.schema))) for tool in tools]
        self._names = [tool.name for tool in tools]
        self._system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        controls = {*_CONTROL, *(token.content for token in tokenizer.added_tokens_decoder.values())}
        # A lookahead finds those that begin inside another one, too.
        self._controls = re.compile(f"(?={'|'.join(re.escape(text) for text in controls if len(text) > 1)})")
        self.end_id = self._find_end()
        self.end_ids = (self.end_id, *(tokens[end] for end in self._format.ENDS if end in tokens))
        self._quotes_results = self._find_quotes()

    def prompt(self, question: str) -> list[int]:
        """The tokens before the first action: system text, tools, the question, the start of the assistant's turn."""
        return _joined(self._around_question, [self.plain(question)])

    def observation(self, texts: Sequence[str]) -> list[int]:
        """The tokens between the end of an action and the next: one tool message for each text."""
        return _joined(self._between(len(texts)), [self._result(text) for text in texts])

    def reply(self, text: str) -> list[int]:
        """The tokens between the end of an action and the next where the user says something."""
        return _joined(self._around_reply, [self.plain(text)])

    def without_thinking(self, question: str, turns: Sequence[Past]) -> list[int]:
        """The tokens before the next action in a context without the thinking of earlier ones, all of them given.

        It is the template's own rendering of such turns; of an action the ids that were sampled after its thinking
        stand in it, and the template's end of a turn.
        """
        messages, filled = [_message("user", 0)], [self.plain(question)]
        for action_ids, texts in turns:
            messages.append(_message("assistant", len(messages)))
            filled.append(self._after_thinking(action_ids))
            messages += [_message("tool", len(messages) + number) for number in range(len(texts))]
            filled += [self._result(text) for text in texts]
        return _joined([self._template(piece) for piece in self._render(messages)], filled)

    def parse(self, action_ids: Sequence[int], finished: bool = True) -> ParsedTurn:
        """What an action says, read in the model's own call format."""
        return parse(self.text(action_ids), self._format.NAME, finished)

    def call(self, name: str, arguments: JsonObject) -> str:
        """The text of a call as the model would write it, for demonstrations."""
        return self._format.write(name, arguments)

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
        head = 16 * limit + 1024  # characters that are looked at: a huge text is not encoded whole, which takes minutes
        while head < len(text) and len(self._result(text[:head])) <= 2 * limit + 64:  # a cut word has more tokens
            head *= 2
        if head >= len(text) and len(self._result(text)) <= limit:
            return text, len(text)
        room = max(limit - len(self._result(note)), 0)
        low, high = 0, min(head, len(text))
        while low < high:
            middle = (low + high + 1) // 2
            if len(self._result(text[:middle])) <= room:
                low = middle
            else:
                high = middle - 1
        return text[:low] + note, low

    def text(self, action_ids: Sequence[int]) -> str:
        """What the model said, without the end of its turn."""
        return self._decode(self._endless(action_ids))

    def thinks(self, action_ids: Sequence[int]) -> bool:
        """Whether an action has thinking that a later context could leave out."""
        return _CLOSED in self.text(action_ids)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _endless(self, action_ids: Sequence[int]) -> Sequence[int]:
        return action_ids[:-1] if action_ids and action_ids[-1] in self.end_ids else action_ids

    def _after_thinking(self, action_ids: Sequence[int]) -> list[int]:
        """The ids after the last </think> and the line breaks behind it, as sampled.

        Only what shares a token with the tag is encoded anew: a tokenizer without that tag may join it to what follows.
        """
        ids = list(self._endless(action_ids))
        tags = self._decode(ids).count(_CLOSED)
        first = bisect_left(range(len(ids)), tags, key=lambda count: self._decode(ids[:count]).count(_CLOSED))
        joined = self._decode(ids[:first]).rpartition(_CLOSED)[2] if tags else ""
        rest = [*self._template(joined.lstrip("\n")), *ids[first:]]
        while tags and rest and not self._decode(rest[:1]).strip("\n"):
            rest = rest[1:]
        return rest

    def _result(self, text: str) -> list[int]:
        """A result's tokens; where the template shows it as a string of JSON, so are they."""
        return self.plain(json.dumps(text, ensure_ascii=False)[1:-1] if self._quotes_results else text)

    def _template(self, text: str) -> list[int]:
        if not text:
            return []
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: list[dict[str, str]]) -> list[str]:
        """The template's text around the slots of the messages."""
        text = _rendered(self.tokenizer, [*self._system, *messages], self._schemas, self._thinking)
        pieces = re.split(_SLOT.format(r"\d+"), text)
        if len(pieces) != len(messages) + 1:
            raise ConfigError("model.path: its chat template does not show every message once")
        if missing := [name for name in self._names if name not in pieces[0] + pieces[1]]:
            raise ConfigError(f"model.path: its chat template does not show the tool {missing[0]!r}")
        return pieces

    @cached_property
    def _around_question(self) -> list[list[int]]:
        return [self._template(piece) for piece in self._render([_message("user", 0)])]

    @lru_cache(maxsize=32)  # noqa: B019 - a chat lives as long as the rollout that made it
    def _between(self, results: int) -> list[list[int]]:
        return self._after_action([_message("tool", 2 + number) for number in range(results)])

    @cached_property
    def _around_reply(self) -> list[list[int]]:
        return self._after_action([_message("user", 2)])

    def _after_action(self, messages: list[dict[str, str]]) -> list[list[int]]:
        pieces = self._render([_message("user", 0), _message("assistant", 1), *messages])[2:]
        encoded = [self._template(piece) for piece in pieces]
        if encoded[0][:1] != [self.end_id]:
            raise ConfigError("model.path: its chat template does not end the assistant's turn with one token")
        return [encoded[0][1:], *encoded[1:]]

    def _find_end(self) -> int:
        """The token that ends the assistant's turn: the first one after its text, before the next message."""
        pieces = self._render([_message("user", 0), _message("assistant", 1), _message("tool", 2)])
        first = self._template(pieces[2])[:1]
        token = self.tokenizer.added_tokens_decoder.get(first[0]) if first else None
        if token is None or not token.special:
            raise ConfigError("model.path: its chat template ends the assistant's turn with no special token")
        return first[0]

    def _find_quotes(self) -> bool:
        """Whether the template shows results as strings of JSON, as Llama's do."""
        result = {"role": "tool", "content": _SLOT.format(2) + '"'}
        return self._render([_message("user", 0), _message("assistant", 1), result])[3].startswith('\\"')


def _message(role: str, number: int) -> dict[str, str]:
    return {"role": role, "content": _SLOT.format(number)}


def _joined(pieces: Sequence[list[int]], filled: Sequence[list[int]]) -> list[int]:
    """The template's pieces with what stands between them."""
    return [token for piece, filling in zip(pieces, [*filled, []], strict=True) for token in (*piece, *filling)]


def _rendered(
    tokenizer: PreTrainedTokenizerBase,
    messages: list[dict[str, str]],
    schemas: Sequence[dict[str, Json]],
    thinking: bool = True,
) -> str:
    """The template's text of a conversation, on the same day always; ConfigError where it refuses the messages."""
    problem: Exception | None = None
    for offered in [schemas] if schemas else [None, []]:  # Hermes 3's loops over them, Llama's asks whether none
        try:
            text = tokenizer.apply_chat_template(
                messages,
                tools=None if offered is None else list(offered),
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=thinking,
                chat_template=_NOW.sub(lambda match: repr(_TODAY.strftime(match[2])), str(tokenizer.chat_template)),
            )
        except (TemplateError, TypeError, RecursionError) as error:
            # It may do with a message, or with a parameter's type, what that is not made for.
            problem = error
        else:
            return str(text)
    raise ConfigError(f"model.path: its chat template cannot show a conversation with tools: {problem}") from problem


def load_tokenizer(folder: Path | str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder or hub id."""
    try:
        return AutoTokenizer.from_pretrained(str(folder))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: no tokenizer could be loaded: {str(error).splitlines()[0]}") from error


def give_template(tokenizer: PreTrainedTokenizerBase, tool_format: str = "auto") -> None:
    """Leave the tokenizer with one template that knows tools: its own, or its own taught by formats/plain.py.

    One that has none but speaks ChatML has ChatML's. Of several named templates the one for tools is taken.
    """
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("tool_use", template.get("default"))
    if not template:
        if "<|im_start|>" not in tokenizer.get_vocab():
            raise ConfigError("model.path: its tokenizer has no chat template and does not speak ChatML")
        template = files("agent_r1.templates").joinpath("chatml.jinja").read_text(encoding="utf-8")
    tokenizer.chat_template = template
    if tool_format == "plain" or "tools" not in template:
        tokenizer.chat_template = plain.teach(template, _has_system_role(tokenizer))


def _has_system_role(tokenizer: PreTrainedTokenizerBase) -> bool:
    try:
        return _SLOT.format(0) in _rendered(tokenizer, [_message("system", 0), _message("user", 1)], [])
    except ConfigError:
        return False
