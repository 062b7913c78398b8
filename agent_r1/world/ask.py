"""Questions about a world: compositional, comparison and bridge-comparison, with gold answers and evidence per hop."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from agent_r1.questions.records import Evidence, Json, Question
from agent_r1.sections import WorldConfig
from agent_r1.seeds import generator
from agent_r1.world.generate import DATABASE, World
from agent_r1.world.relations import (
    BRIDGES,
    EARLIER,
    HOPS_OF_KIND,
    TABLES,
    Relation,
    relation_of,
    sentence_of,
    table_of,
)

Fact = tuple[str, str, str]


def shapes(config: WorldConfig) -> list[tuple[int, tuple[str, ...]]]:
    """The hops asked, each with the kinds of question that can have so many."""
    return [(hops, tuple(kind for kind in config.kinds if hops in HOPS_OF_KIND[kind])) for hops in config.hops]


def ask(world: World, config: WorldConfig, count: int, each_kind_alike: bool = False) -> list[Question]:
    """`count` questions, hops in equal parts; no two alike as long as the world is large enough.

    `each_kind_alike`: equal parts of every kind with every number of hops instead.
    """
    unsaid = {"answers"} if config.answers == "values" else None  # so that ids stay what they were before it was a key
    prefix = hashlib.sha256(config.model_dump_json(exclude=unsaid).encode()).hexdigest()[:8]
    rng = generator(config.seed, "world", "questions", world.split)
    cycle = shapes(config)
    if each_kind_alike:
        cycle = [(hops, (kind,)) for hops, kinds in cycle for kind in kinds]
    seen: set[str] = set()
    questions = []
    for number in range(count):
        hops, kinds = cycle[number % len(cycle)]
        kind = kinds[(number // len(cycle)) % len(kinds)]
        text, answer, facts = _new(world, config, kind, hops, rng, seen)
        metadata: dict[str, Json] = {"kind": kind, "facts": [list(fact) for fact in facts]}
        if config.answers == "queries":
            answer, metadata["database"] = query(facts), DATABASE
        questions.append(
            Question(
                id=f"world-{prefix}-{world.split}-{number:06d}",
                text=text,
                answers=(answer,),
                evidence=tuple(Evidence(s, sentence_of(world.kind_of[s], relation)) for s, relation, _ in facts),
                hops=hops,
                dataset="world",
                metadata=metadata,
            )
        )
    return questions


def query(facts: Sequence[Fact]) -> str:
    """The query for the object of the last fact of a chain, from the subject of the first."""
    found = f"'{facts[0][0]}'"
    for number, (_, relation, _) in enumerate(facts):
        asked = f"SELECT {relation} FROM {table_of(relation)} WHERE name = {found}"
        found = asked if number == len(facts) - 1 else f"({asked})"
    return found


def _new(
    world: World, config: WorldConfig, kind: str, hops: int, rng: np.random.Generator, seen: set[str]
) -> tuple[str, str, list[Fact]]:
    makers = {"compositional": _compositional, "comparison": _comparison, "bridge_comparison": _bridge_comparison}
    made = makers[kind](world, config, hops, rng)
    for _ in range(20):
        if made[0] not in seen:
            break
        made = makers[kind](world, config, hops, rng)
    seen.add(made[0])
    return made


def _compositional(
    world: World, config: WorldConfig, hops: int, rng: np.random.Generator
) -> tuple[str, str, list[Fact]]:
    while True:
        chain = _walk(world, hops, rng)
        if chain is not None:
            break
    path = chain[0][0]
    for subject, relation, _ in chain:
        path = f"the {_phrase(relation_of(world.kind_of[subject], relation), config, rng)} of {path}"
    return f"What is {path}?", chain[-1][2], chain


def _walk(world: World, hops: int, rng: np.random.Generator) -> list[Fact] | None:
    """A chain of facts that meets no entity twice, or None where the walk came back."""
    kinds = tuple(TABLES)
    members = world.names[kinds[rng.integers(len(kinds))]]
    entity = members[rng.integers(len(members))]
    met = {entity}
    chain: list[Fact] = []
    for _ in range(hops):
        options = [r for r in TABLES[world.kind_of[entity]] if r.target != "year"]
        relation = options[rng.integers(len(options))]
        value = world.facts[entity, relation.name]
        if value in met:
            return None
        met.add(value)
        chain.append((entity, relation.name, value))
        entity = value
    return chain


def _comparison(world: World, config: WorldConfig, hops: int, rng: np.random.Generator) -> tuple[str, str, list[Fact]]:
    """Which of two is earlier; or whether two share a relation, for half of which they do."""
    del config, hops
    kind = tuple(EARLIER)[rng.integers(len(EARLIER))]
    year, beginning = EARLIER[kind]
    if rng.random() < 0.5:
        first, second = _pair_by_year(world, world.names[kind], year, rng)
        facts = [(name, year, world.facts[name, year]) for name in (first, second)]
        return f"{beginning}, {first} or {second}?", _earlier(facts[0], facts[1], first, second), facts
    relation = next(r for r in TABLES[kind] if r.target in ("city", "country", "company"))
    first, second = _pair(world.names[kind], rng)
    if rng.random() < 0.5:
        same = [
            n
            for n in world.names[kind]
            if n != first and world.facts[n, relation.name] == world.facts[first, relation.name]
        ]
        second = same[rng.integers(len(same))] if same else second
    facts = [(name, relation.name, world.facts[name, relation.name]) for name in (first, second)]
    answer = "yes" if facts[0][2] == facts[1][2] else "no"
    return f"Do {first} and {second} have the same {relation.phrasings[0]}?", answer, facts


def _bridge_comparison(
    world: World, config: WorldConfig, hops: int, rng: np.random.Generator
) -> tuple[str, str, list[Fact]]:
    del config, hops
    while True:  # another bridge, too: in a small world all films may have one director
        kind, relation, beginning = BRIDGES[rng.integers(len(BRIDGES))]
        first, second = _pair(world.names[kind], rng)
        people = [world.facts[name, relation] for name in (first, second)]
        years = [world.facts[person, "birth_year"] for person in people]
        if years[0] != years[1]:
            break
    facts = [
        (first, relation, people[0]),
        (people[0], "birth_year", years[0]),
        (second, relation, people[1]),
        (people[1], "birth_year", years[1]),
    ]
    return f"{beginning}, {first} or {second}?", _earlier(facts[1], facts[3], first, second), facts


def _earlier(one: Fact, other: Fact, first: str, second: str) -> str:
    return first if int(one[2]) < int(other[2]) else second


def _pair(members: Sequence[str], rng: np.random.Generator) -> tuple[str, str]:
    one, other = rng.choice(len(members), size=2, replace=False)
    return members[int(one)], members[int(other)]


def _pair_by_year(world: World, members: Sequence[str], year: str, rng: np.random.Generator) -> tuple[str, str]:
    while True:
        first, second = _pair(members, rng)
        if world.facts[first, year] != world.facts[second, year]:
            return first, second


def _phrase(relation: Relation, config: WorldConfig, rng: np.random.Generator) -> str:
    return relation.phrasings[rng.integers(config.phrasings)]
