"""Scripted demonstrations on the built-in world: good ones, and sloppy ones that hide the skill as pretraining does.

A demonstration is the text of each action; what the tools answer is found out by running them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from agent_r1.formats import hermes
from agent_r1.formats.calls import Write
from agent_r1.questions.records import Question
from agent_r1.world.ask import query
from agent_r1.world.relations import TABLES, table_of

Observe = Callable[[str], str]
"""Runs the calls of an action's text and returns what the agent sees."""

_YEARS = {relation.name for relations in TABLES.values() for relation in relations if relation.target == "year"}
STOP_EARLY = 0.5
WRONG_RELATION = 0.85


def facts_of(question: Question) -> list[tuple[str, str, str]]:
    """The (subject, relation, object) facts of a world's question, in hop order."""
    facts = question.metadata["facts"]
    assert isinstance(facts, list)
    return [(str(f[0]), str(f[1]), str(f[2])) for f in facts if isinstance(f, list)]


def expert(question: Question, tool: str, write: Write = hermes.write) -> Iterator[str]:
    """The actions of a good demonstration: a call for each hop, the choice between two left to SQL, then the answer."""
    facts = facts_of(question)
    for subject, relation, _ in facts:
        yield call(tool, subject, relation, write)
    if _left_to_sql(question, tool):
        yield write(tool, {"query": _choice(facts)})
    yield f"<answer>{question.answers[0]}</answer>"


def _left_to_sql(question: Question, tool: str) -> bool:
    return tool == "sql" and question.kind in ("comparison", "bridge_comparison")


def _choice(facts: Sequence[tuple[str, str, str]]) -> str:
    """The query whose result is the answer: which of two is earlier, or whether they are one. It names no year."""
    (one, relation, found), (other, _, also_found) = [fact for fact in facts if fact[1] == facts[-1][1]]
    if relation not in _YEARS:
        return f"SELECT if('{found}' = '{also_found}', 'yes', 'no')"
    earlier = f"min_by(name, {relation})"
    first, second = dict.fromkeys(subject for subject, asked, _ in facts if asked == facts[0][1])
    if first != one:  # a bridge: the earlier person leads back to the film
        earlier = f"if({earlier} = '{one}', '{first}', '{second}')"
    return f"SELECT {earlier} FROM {table_of(relation)} WHERE name IN ('{one}', '{other}')"


def sloppy(
    question: Question, tool: str, observe: Observe, rng: np.random.Generator, write: Write = hermes.write
) -> Iterator[str]:
    """Actions that often ask for another relation of the question, or answer with what they have: rarely right."""
    facts = facts_of(question)
    relations = [relation for _, relation, _ in facts]
    answer = facts[0][0]
    chosen: list[tuple[str, str, str]] = []
    instead: dict[str, str] = {}  # what was found where a good demonstration finds a fact's object
    for subject, relation, value in facts:
        entity = instead.get(subject, subject)
        asked = relations[rng.integers(len(relations))] if rng.random() < WRONG_RELATION else relation
        seen = observe(text := call(tool, entity, asked, write))
        yield text
        answer = instead[value] = _found(seen, tool, entity, asked) or entity
        chosen.append((entity, asked, answer))
        if rng.random() < STOP_EARLY:
            break
    else:
        if _left_to_sql(question, tool):
            found = [(instead.get(subject, subject), relation, instead[value]) for subject, relation, value in facts]
            seen = observe(text := write(tool, {"query": _choice(found)}))
            yield text
            answer = _found(seen, tool, "", "") or answer
    yield f"<answer>{answer if question.database is None else query(chosen)}</answer>"


def _found(seen: str, tool: str, entity: str, relation: str) -> str | None:
    """The value that a tool's answer names, None where it names none."""
    if seen.startswith("error"):
        return None
    if tool == "lookup":
        return None if seen.startswith("nothing") else seen
    if tool == "sql":
        return None if seen.endswith(("(no rows)", "\nNULL")) else seen.splitlines()[-1]
    phrasings = {each for relations in TABLES.values() for r in relations if r.name == relation for each in r.phrasings}
    says = rf"The (?:{'|'.join(map(re.escape, sorted(phrasings)))}) of {re.escape(entity)} is (\w+)\."
    match = re.search(says, seen)
    return match and match[1]


def call(tool: str, entity: str, relation: str, write: Write = hermes.write) -> str:
    """The text of one call that asks for a relation of an entity, for any of the world's tools."""
    if tool == "lookup":
        arguments = {"entity": entity, "relation": relation}
    elif tool == "sql":
        arguments = {"query": f"SELECT {relation} FROM {table_of(relation)} WHERE name = '{entity}'"}
    else:
        arguments = {"query": f"{entity} {relation.replace('_', ' ')}"}
    return write(tool, arguments)


def demonstrating_tool(tools: Sequence[str]) -> str:
    """The tool that demonstrations use: the first of lookup, sql and search that is there; "" where there is none."""
    return next((name for name in ("lookup", "sql", "search", *tools) if name in tools), "")
