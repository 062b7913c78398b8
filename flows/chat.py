"""chat: questions typed or read from stdin, each answered anew by the rollout of training, shown as it happens."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent_r1.config import Config, load
from agent_r1.dataset import Split
from agent_r1.errors import ConfigError
from agent_r1.questions.records import Question
from agent_r1.tool_calls import ParsedTurn
from agent_r1.trajectory import CallRecord, Trajectory
from flows import evaluation
from flows.configs import find_config
from flows.evaluate_command import OF_WORLD, SPLITS, set_target
from tasks.answer import Asked, split_of
from tasks.chat import Talk, open_talk

HELP = "Each question begins anew. /example asks one of the split, /again the last one, /quit ends."


@dataclass(frozen=True)
class Options:
    """As they are given; temperature 0 is greedy."""

    target: str
    question: str | None
    split: str
    settings: Sequence[str]
    temperature: float
    seed: int | None
    home: Path
    as_json: bool


@dataclass
class Shown:
    """Shows what happens: chosen tokens in one colour, what the world gave in another. Nothing steers the terminal."""

    console: Console
    streamed: bool = field(default=False, init=False)

    def said(self, text: str) -> None:
        """See Listener."""
        self.streamed = True
        self.console.print(Text(visible(text), style="bold magenta"), end="", soft_wrap=True)

    def acted(self, turn: ParsedTurn) -> None:
        """See Listener."""
        if not self.streamed:  # by an engine that does not stream
            self.said(turn.text)
        self.streamed = False
        self.console.print()

    def told(self, calls: Sequence[CallRecord], seconds: float) -> None:
        """See Listener."""
        for call in calls:
            name = "malformed call" if call.malformed else f"{call.name}({json.dumps(dict(call.arguments))})"
            line = f"  {name} -> {call.text}  [{'ok' if call.ok else 'failed'}, {seconds:.2f} s]"
            self.console.print(Text(visible(line), style="green" if call.ok else "red"), soft_wrap=True)


def visible(text: str) -> str:
    """Text that cannot steer a terminal: control characters are shown by their escapes."""
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)


def chat(options: Options) -> None:
    """Answer one question, those of stdin's lines, or those that are typed."""
    if options.split not in SPLITS:
        raise ConfigError(f"--split {options.split}: expected {', '.join(SPLITS)}")
    home = options.home.expanduser().absolute()
    target = evaluation.resolve(home, options.target, load(find_config(OF_WORLD)))
    target = set_target(target, options.settings, [])
    split = split_of(target.config, Asked(None, options.split))
    config = target.config if options.seed is None else _seeded(target.config, options.seed)
    console = Console(file=sys.stderr if options.as_json else sys.stdout, highlight=False)
    typed = options.question is None and sys.stdin.isatty()
    with open_talk(home, target.policy, config, split, options.temperature) as talk:
        if typed:
            tools = ", ".join(tool.name for tool in talk.environments.tools) or "none"
            console.print(Text(f"{target.name}, tools: {tools}, {options.split} split. {HELP}"), soft_wrap=True)
        made = [_answer(talk, *one, console, typed) for one in _questions(options, split, console)]
    if options.as_json:
        print(json.dumps([each for each in made if each is not None], ensure_ascii=False, indent=1))


def _seeded(config: Config, seed: int) -> Config:
    return config.model_copy(update={"seed": seed})


def _questions(options: Options, split: Split, console: Console) -> Iterator[tuple[Question, int]]:
    """Each question and the number of the attempt at it."""
    count: dict[str, int] = {}
    last, examples = None, 0
    for line in _lines(options, console):
        if line == "/quit":
            return
        if line == "/again" and last is None:
            console.print(Text("nothing was asked yet"))
            continue
        if line == "/example":
            last = split.questions[examples % len(split.questions)]
            examples += 1
            console.print(Text(visible(last.text), style="cyan"), soft_wrap=True)
        elif line != "/again":
            if line.startswith("/"):
                console.print(Text(HELP), soft_wrap=True)
                continue
            known = next((each for each in split.questions if each.text == line), None)
            last = known or Question(f"chat/{line}", line)
        assert last is not None
        yield last, count.setdefault(last.id, 0)
        count[last.id] += 1


def _lines(options: Options, console: Console) -> Iterator[str]:
    if options.question is not None:
        yield options.question
        return
    while True:
        if sys.stdin.isatty():
            try:
                line = console.input("> ")
            except EOFError:
                return
        else:
            line = sys.stdin.readline()
            if not line:
                return
        if line.strip():
            yield line.strip()


def _answer(talk: Talk, question: Question, attempt: int, console: Console, typed: bool) -> object:
    """The transcript. Ctrl-C stops the answer; where questions are typed the next one can be asked."""
    try:
        made = talk.ask(question, attempt, Shown(console))
    except KeyboardInterrupt:
        if not typed:
            raise
        console.print(Text("\n(stopped)"))
        return None
    gold = (
        f", gold {' | '.join(question.answers)}: {'right' if made.exact_match else 'wrong'}" if question.answers else ""
    )
    ending = f"[{made.ending}, {len(made.turns)} turns, {made.action_tokens} tokens{gold}]"
    console.print(Text(visible(ending), style="dim"), soft_wrap=True)
    return _transcript(question, made)


def _transcript(question: Question, made: Trajectory) -> dict[str, object]:
    return {
        "question": question.text, "gold": list(question.answers), "answer": made.answer, "ending": made.ending,
        "exact_match": made.exact_match if question.answers else None, "turns": [asdict(turn) for turn in made.turns],
    }  # fmt: skip
