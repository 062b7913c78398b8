"""The command `chat`: questions asked one after the other, what is said and called meanwhile, and how each ended.

Answering is left to tasks/talk.py; reading and sampling follow the same loop as training.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from agent_r1.config import load
from agent_r1.errors import ConfigError
from agent_r1.questions.records import Json, Question
from agent_r1.seeds import generator
from flows.configs import find_config
from flows.evaluate_command import OF_WORLD, SPLITS, with_settings
from flows.evaluation import Target, resolve
from flows.tables import finite, visible

if TYPE_CHECKING:
    from agent_r1.dataset import Split
    from agent_r1.tool_calls import ParsedTurn
    from agent_r1.trajectory import Trajectory, Turn

HELP = "a question, /example for one of this world, /again for the last one, /quit or Ctrl-D to end"
COMMANDS = ("/example", "/again")
SHORT = 1000  # characters of a prompt that is shown
Ask = Callable[[Question, int], "Trajectory"]


@dataclass(frozen=True)
class Options:
    """As they are given. Without `questions` they are read from the terminal, or a line each from what is piped in."""

    target: str
    questions: Sequence[str]
    split: str
    settings: Sequence[str]
    temperature: float
    home: Path
    as_json: bool


class Heard:
    """Shows what a trajectory is given and says: given text dim, chosen text bold, calls with their times."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._since: float | None = None

    def begin(self) -> None:
        """A new question."""
        self._since = None

    def given(self, text: str) -> None:
        """Observations with the seconds that the tools took; of a long prompt how long it is."""
        if self._since is None:
            self._line(text.strip() if len(text) <= SHORT else f"(a prompt of {len(text)} characters)", "dim")
            return
        took = time.monotonic() - self._since
        self._line(f"{visible(text.strip())}  ({took:.2f} s)", "dim")

    def said(self, text: str) -> None:
        """A piece of the action, at once."""
        self._console.print(Text(visible(text), style="bold magenta"), end="", soft_wrap=True)

    def acted(self, turn: ParsedTurn) -> None:
        """The turn is over; the tools that it calls begin."""
        self._console.print()
        self._since = time.monotonic()
        for call in [] if turn.answer else turn.calls:
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            self._line(f"calling {call.name} {arguments} ...", "cyan")

    def _line(self, text: str, style: str) -> None:
        self._console.print(Text(visible(text), style=style), soft_wrap=True)


def chat(options: Options, console: Console) -> None:
    """Ask until there is nothing left to ask."""
    if options.split not in SPLITS:
        raise ConfigError(f"--split {options.split}: expected train, validation or test")
    if options.temperature < 0:
        raise ConfigError(f"--temperature {options.temperature:g}: expected 0 (the likeliest tokens) or more")
    home = options.home.expanduser().absolute()
    target = _target(home, options)

    from tasks.answer import Asked, split_of
    from tasks.talk import open_talk

    split = split_of(target.config, Asked(None, options.split))
    listener = Heard(Console(quiet=True) if options.as_json else console)
    interactive = not options.questions and sys.stdin.isatty()
    with open_talk(home, target.policy, target.config, split, options.temperature == 0, listener) as ask:
        if interactive:
            console.print(Text(f"{target.name}, in the world of {options.split}: {HELP}"), soft_wrap=True)
        asked: Counter[str] = Counter()
        for text in _asked(options.questions, interactive):
            if text.startswith("/") and text not in COMMANDS:
                console.print(Text(f"{visible(text)}: expected {HELP}"), soft_wrap=True)
                continue
            question = _question(text, split, asked)
            if question is None:
                console.print(Text("nothing was asked yet"))
                continue
            if interactive and text.startswith("/"):
                console.print(Text(visible(question.text), style="bold"), soft_wrap=True)
            listener.begin()
            number = asked[question.id]
            asked[question.id] += 1
            try:
                trajectory = ask(question, number)
            except KeyboardInterrupt:
                if not interactive:
                    raise
                console.print(Text("\nstopped; the next question begins anew", style="yellow"))
                continue
            if options.as_json:
                print(json.dumps(finite(transcript(question, trajectory)), ensure_ascii=False), flush=True)
            else:
                console.print(Text(_ended(question, trajectory), style="green"), soft_wrap=True)


def transcript(question: Question, trajectory: Trajectory) -> dict[str, Json]:
    """All of an attempt for programs; the scores are None where no gold answer is known."""
    known = bool(question.answers)
    turns: list[Json] = [_turn(turn) for turn in trajectory.turns]
    return {
        "question": question.text,
        "gold": list(question.answers),
        "answer": trajectory.answer,
        "ending": trajectory.ending,
        "exact_match": trajectory.exact_match if known else None,
        "f1": trajectory.f1 if known else None,
        "turns": turns,
    }


def _turn(turn: Turn) -> Json:
    calls: list[Json] = [
        {"name": each.name, "arguments": dict(each.arguments), "ok": each.ok, "result": each.text}
        for each in turn.calls
    ]
    return {
        "action": turn.action_text,
        "calls": calls,
        "observation": turn.observation_text,
        "given_ids": [*turn.given_ids],
        "action_ids": [*turn.action_ids],
        "action_logprobs": [*turn.action_logprobs],
    }


def _target(home: Path, options: Options) -> Target:
    target = resolve(home, options.target, load(find_config(OF_WORLD)))
    settings = [*options.settings]
    if options.temperature:
        settings.append(f"rollout.temperature={options.temperature}")
    return with_settings(target, settings, [])


def _asked(questions: Sequence[str], interactive: bool) -> Iterator[str]:
    """What is asked, in order; blank lines are nothing. Ctrl-C and Ctrl-D at the prompt end it."""
    if questions:
        yield from questions
    elif not interactive:
        yield from (_decoded(line).strip() for line in sys.stdin if line.strip())
    else:
        import readline  # noqa: F401 - input() then has a history and can be edited

        while True:
            try:
                line = input("> ").strip()
            except (EOFError, KeyboardInterrupt):
                print()
                return
            if line == "/quit":
                return
            if line:
                yield line


def _decoded(line: str) -> str:
    """Bytes that are no UTF-8 as signs: a tokenizer takes no halves of characters."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _question(text: str, split: Split, asked: Counter[str]) -> Question | None:
    """The split's own question where it has that one, with its gold answers and its database, else one without."""
    if text == "/example":
        place = generator(len(asked), "example").integers(len(split.questions))
        return split.questions[int(place)]
    if text == "/again":
        last = next(reversed(asked), None)
        return None if last is None else _by_id(last, split)
    bare = Question(id=f"asked:{text}", text=text)
    return next((each for each in split.questions if each.plain_text == bare.plain_text), bare)


def _by_id(question_id: str, split: Split) -> Question:
    known = next((each for each in split.questions if each.id == question_id), None)
    return known or Question(id=question_id, text=question_id.removeprefix("asked:"))


def _ended(question: Question, trajectory: Trajectory) -> str:
    answer = "no answer" if trajectory.answer is None else f"answer {visible(trajectory.answer)}"
    calls = sum(len(turn.calls) for turn in trajectory.turns)
    line = f"{answer} ({trajectory.ending}, {len(trajectory.turns)} turns, {calls} calls)"
    if question.answers:
        line += f"; {'right' if trajectory.exact_match else 'gold is ' + visible(' | '.join(question.answers))}"
    return line
