"""Scripted demonstrations on real questions, for a short supervised warm start of a model that makes no tool calls.

A query holds only what a searcher could know by then: the question, what earlier hops answered (MuSiQue) or the name of
the passage that comes next (HotpotQA, 2WikiMultihopQA). Observations and training are left to others.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection

import numpy as np

from agent_r1 import seeds
from agent_r1.errors import DataError
from agent_r1.formats import hermes
from agent_r1.formats.calls import Write
from agent_r1.questions.records import Json, Question

_PLAIN = frozenset(re.findall(r"\w+", """
    a after also an and are as at be been being both by did do does during for from had has have how in into is it its
    many much of on or s same than that the their this to was were what when where which who whom whose why will with
"""))  # fmt: skip


def demonstration(
    question: Question, seed: int, write: Write = hermes.write, tools: Collection[str] = ("search",)
) -> list[str]:
    """The assistant's texts turn by turn: one call of `search` for every gold passage, then the answer.

    For a question about a database: `schema` and `sql` with a gold query, where these are tools, that query as answer.
    Where `metadata["demonstration"]` lists calls ({"name", "arguments"}) and texts, those instead, and the answer where
    the last is a call. Empty where the question has no gold answer or not all of its evidence. Same question and seed,
    same texts.
    """
    if not question.answers:
        return []
    own = question.metadata.get("demonstration")
    if own is not None:
        return _own(own, question, write)
    if question.database is not None and "sql" not in tools:
        return [_answer(question.answers[0])]
    if question.database is not None:
        looks = [write("schema", {})] if "schema" in tools else []
        return [*looks, write("sql", {"query": question.answers[0]}), _answer(question.answers[0])]
    random = seeds.generator(seed, "demonstration", question.id)
    steps = _steps(question)
    queries = _hop_queries(steps, random) if steps else _title_queries(question, random)
    unanswerable = question.metadata.get("answerable") is False
    if unanswerable or not queries or not question.evidence or not question.answers:
        return []
    calls = [write("search", {"query": query}) for query in queries]
    return [*calls, _answer(question.answers[0])]


def _own(steps: Json, question: Question, write: Write) -> list[str]:
    texts = []
    for step in steps if isinstance(steps, list) else [steps]:
        match step:
            case {"name": str(name), "arguments": dict(arguments)}:
                texts.append(write(name, arguments))
            case str():
                texts.append(step)
            case _:
                what = "expected a list of calls (objects with name and arguments) and texts"
                raise DataError(f"question {question.id!r}: metadata.demonstration: {what}, got {step!r}")
    answered = isinstance(steps, list) and bool(steps) and isinstance(steps[-1], str)
    return texts if answered else [*texts, _answer(question.answers[0])]


def _answer(text: str) -> str:
    return f"<answer>{text.strip()}</answer>"


def _steps(question: Question) -> list[tuple[str, str]]:
    """Sub-questions with their answers; empty where the metadata has none, or another list under that name."""
    steps = question.metadata.get("decomposition")
    found = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    pairs = [(step.get("question"), step.get("answer")) for step in found]
    return [(asked, answer) for asked, answer in pairs if isinstance(asked, str) and isinstance(answer, str)]


def _hop_queries(steps: list[tuple[str, str]], random: np.random.Generator) -> list[str]:
    """The sub-questions, "#1" replaced by the answer of the first and so on; seeded, whole or without plain words."""
    queries: list[str] = []
    answers: list[str] = []
    for asked, answer in steps:
        text = _filled(asked, answers)
        queries.append(_shortened(text) if random.random() < 0.5 else text)
        answers.append(answer)
    return queries


def _filled(text: str, answers: list[str]) -> str:
    def answer(reference: re.Match[str]) -> str:
        hop = int(reference[1])
        return answers[hop - 1] if 1 <= hop <= len(answers) else reference[0]

    filled = re.sub(r"#(\d+)", answer, text.replace(" >> ", " "))
    return " ".join(filled.split()).replace(" ?", "?")


def _title_queries(question: Question, random: np.random.Generator) -> list[str]:
    """A query for every gold passage, those first that the question names; empty where one is not in the context.

    Where the question names none, the first query is its own words. The others are the passage's name and, seeded, up
    to three words of the question that belong to no gold passage's name.
    """
    names = {passage.id: _name(passage.title) for passage in question.passages}
    gold = list(dict.fromkeys(evidence.passage_id for evidence in question.evidence))
    if any(passage not in names for passage in gold):
        return []
    asked = f" {' '.join(_words(question.text.casefold()))} "
    named = {passage: f" {' '.join(_words(names[passage].casefold()))} " in asked for passage in gold}
    taken = {word.casefold() for passage in gold for word in _words(names[passage])}
    extra = [word for word in _words(_shortened(question.text)) if word.casefold() not in taken]
    queries: list[str] = []
    for passage in sorted(gold, key=lambda passage: not named[passage]):
        if not queries and not named[passage]:
            queries.append(_shortened(question.text))
            continue
        count = min(int(random.integers(4)), len(extra))
        kept = sorted(random.choice(len(extra), size=count, replace=False).tolist()) if count else []
        queries.append(" ".join([names[passage], *(extra[position] for position in kept)]))
    return queries


def _name(title: str) -> str:
    """The title as a person would write it: "Always" for "Always (2011 film)", "&" for "&amp;"."""
    return re.sub(r"\s*\([^()]*\)$", "", html.unescape(title)).strip() or html.unescape(title)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _shortened(text: str) -> str:
    """The words of a text that are not plain ones, or the text itself where all are."""
    return " ".join(word for word in _words(text) if word.casefold() not in _PLAIN) or text
