"""The splits of a run's questions and the corpus of each: from the built-in world, or from a question file.

Keeping them is left to the prepare task; the tools over them are opened by environment.open_tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_r1.config import Config, DataConfig
from agent_r1.errors import DataError
from agent_r1.questions import load
from agent_r1.questions.records import Passage, Question
from agent_r1.seeds import derive
from agent_r1.world.ask import ask
from agent_r1.world.generate import World, generate, passages


@dataclass(frozen=True, slots=True)
class Split:
    """Questions of one purpose, the passages that search sees, and the world behind them, if it is the built-in one."""

    name: str
    questions: tuple[Question, ...]
    passages: tuple[Passage, ...]
    world: World | None = None


def splits(config: Config) -> list[Split]:
    """All splits of a configuration. DataError where a file is missing, broken, or too small to be split."""
    return _of_world(config) if config.data.path is None else _of_files(config.data)


def of_file(name: str, path: Path, format: str = "auto") -> Split:
    """A whole question file as one split; questions without a gold answer are left out: a DataError if all lack it."""
    questions = [question for question in load(path, format) if question.answers]
    if not questions:
        raise DataError(f"{path}: no question has a gold answer")
    return _split(name, questions)


def _of_world(config: Config) -> list[Split]:
    sizes = {
        "warm_start": config.world.warm_start,
        "train": config.world.train,
        "validation": config.world.validation,
        "test": config.world.test,
    }
    made = []
    for name, world in generate(config.world).items():
        asked = config.world
        if name == "warm_start":
            kinds = tuple(dict.fromkeys(("compositional", *asked.kinds)))
            asked = asked.model_copy(update={"hops": tuple(sorted({1, *asked.hops})), "kinds": kinds})
        questions = tuple(ask(world, asked, sizes[name]))
        made.append(Split(name, questions, tuple(passages(world, config.world)), world))
    return made


def _of_files(data: DataConfig) -> list[Split]:
    """Training and validation questions. Without a validation file a question's own id decides, whatever the run."""
    assert data.path is not None
    whole = of_file("train", Path(data.path), data.format)
    if data.validation_path is not None:
        return [whole, of_file("validation", Path(data.validation_path), data.format)]
    parts: dict[bool, list[Question]] = {True: [], False: []}
    for question in whole.questions:
        parts[derive(0, "validation", question.id) % 10_000 < data.validation_share * 10_000].append(question)
    held_out, kept = parts[True], parts[False]
    if not held_out or not kept:
        raise DataError(f"{data.path}: {len(whole.questions)} questions are too few for data.validation_share")
    return [_split("train", kept), _split("validation", held_out)]


def _split(name: str, questions: Sequence[Question]) -> Split:
    corpus = {passage.id: passage for question in questions for passage in question.passages}
    return Split(name, tuple(questions), tuple(corpus.values()))
