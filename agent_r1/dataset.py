"""The splits of a run's questions and the corpus of each: from the built-in world, or from a question file.

Keeping them is left to the prepare task; the tools over them are opened by environments.open_tools.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from agent_r1.config import Config
from agent_r1.errors import DataError
from agent_r1.execution import running
from agent_r1.questions import iter_questions, load
from agent_r1.questions.records import Passage, Question
from agent_r1.sections import DataConfig, Unscorable
from agent_r1.seeds import derive
from agent_r1.tools.databases import Databases
from agent_r1.world.ask import ask
from agent_r1.world.generate import World, generate, passages

log = logging.getLogger("agent_r1.dataset")


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


def first_question(config: Config) -> Question:
    """A question of the configuration's, to try things out on. DataError where there is none."""
    if config.data.path is not None:
        return next(iter_questions(config.data.path, config.data.format))
    return ask(generate(config.world)["train"], config.world, 1)[0]


def of_file(
    name: str,
    path: Path,
    format: str = "auto",
    unscorable: Unscorable = "refuse",
    databases: Path | None = None,
) -> Split:
    """A whole question file as one split, of questions that can be scored: DataError where the file has none.

    Questions without a gold answer, or marked as not answerable as MuSiQue's twins are, cannot, nor those about a
    database of whose gold queries none runs: "refuse" makes them a DataError that says how many, "skip" leaves them out
    with a warning.
    """
    found = load(path, format)
    answerable = [each for each in found if each.answers and each.metadata.get("answerable") is not False]
    questions, reasons = _runnable(answerable, path, databases)
    if missing := len(found) - len(questions):
        unanswerable = sum(each.metadata.get("answerable") is False for each in found)
        marked = f" ({unanswerable} of them are marked as unanswerable)" if unanswerable else ""
        marked += f" that runs: {reasons[0]}" if reasons else ""
        what = f"{path}: {missing} of {len(found)} questions have no gold answer{marked}"
        if not questions:
            raise DataError(f"{what}: nothing is left to train or score on")
        if unscorable == "refuse":
            raise DataError(f"{what}: set data.unscorable=skip to leave them out")
        log.warning("%s: left out", what)
    return _split(name, questions)


def _runnable(questions: Sequence[Question], path: Path, folder: Path | None) -> tuple[list[Question], list[str]]:
    """The questions that are about no database, or have a gold query that runs on it; what is wrong with the others.

    Gold queries that run come first: demonstrations show the first one.
    """
    named = [each for each in questions if each.database is not None]
    if not named:
        return list(questions), []
    if folder is None:
        raise DataError(f"{path}: its questions are about databases such as {named[0].database!r}: set data.databases")
    kept: list[Question] = []
    wrong: list[str] = []
    with closing(Databases(folder)) as databases:
        for question in questions:
            if question.database is None:
                kept.append(question)
                continue
            try:
                runs = running(question.answers, databases.tool(question.database))
            except DataError as error:
                wrong.append(f"question {question.id!r}: {error}")
            else:
                answers = sorted(question.answers, key=lambda query, runs=runs: query not in runs)
                kept.append(replace(question, answers=tuple(answers)))
    return kept, wrong


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
        questions = tuple(ask(world, asked, sizes[name], each_kind_alike=name == "warm_start"))
        made.append(Split(name, questions, tuple(passages(world, config.world)), world))
    return made


def _of_files(data: DataConfig) -> list[Split]:
    """Training and validation questions. Without a validation file a question's own text decides, whatever the run."""
    assert data.path is not None
    databases = None if data.databases is None else Path(data.databases)
    whole = of_file("train", Path(data.path), data.format, data.unscorable, databases)
    if data.validation_path is not None:
        validation = of_file("validation", Path(data.validation_path), data.format, data.unscorable, databases)
        return [_without(whole, validation, data), validation]
    parts: dict[bool, list[Question]] = {True: [], False: []}
    for question in whole.questions:
        parts[derive(0, "validation", question.plain_text) % 10_000 < data.validation_share * 10_000].append(question)
    held_out, kept = parts[True], parts[False]
    if not held_out or not kept:
        raise DataError(f"{data.path}: {len(whole.questions)} questions are too few for data.validation_share")
    return [_split("train", kept), _split("validation", held_out)]


def _without(train: Split, validation: Split, data: DataConfig) -> Split:
    """The training questions that are not asked in validation too, by id or by text."""
    held_out = {key for question in validation.questions for key in _keys(question)}
    kept = [question for question in train.questions if held_out.isdisjoint(_keys(question))]
    known = {key for question in train.questions for key in _keys(question)}
    if not kept or all(not known.isdisjoint(_keys(question)) for question in validation.questions):
        raise DataError(
            f"data.path {data.path} and data.validation_path {data.validation_path}: all questions of one are in the "
            "other too"
        )
    if dropped := len(train.questions) - len(kept):
        log.warning("%s: %d questions are in %s too: not trained on", data.path, dropped, data.validation_path)
        return _split(train.name, kept)
    return train


def _keys(question: Question) -> tuple[tuple[str, str], ...]:
    return (("id", question.id), ("text", question.plain_text))


def _split(name: str, questions: Sequence[Question]) -> Split:
    corpus = {passage.id: passage for question in questions for passage in question.passages}
    return Split(name, tuple(questions), tuple(corpus.values()))
