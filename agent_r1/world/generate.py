"""A seeded world of one split: entities with their facts, the database and the passages that state them.

Asking questions about it is left to world/ask.py. Gold answers are nowhere in what is written here but as plain facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from agent_r1.questions.records import Passage
from agent_r1.sections import WorldConfig
from agent_r1.seeds import generator
from agent_r1.world.names import disjoint
from agent_r1.world.relations import TABLES, YEARS

DATABASE = "world"  # what questions and the file call the database of a split
SPLITS = ("warm_start", "train", "validation", "test")


@dataclass(frozen=True, slots=True)
class World:
    """Entities of one split. `kind_of` maps a name to its kind, `facts` maps (name, relation) to a name or a year."""

    split: str
    names: dict[str, tuple[str, ...]]
    kind_of: dict[str, str]
    facts: dict[tuple[str, str], str]


def generate(config: WorldConfig) -> dict[str, World]:
    """One world for each split, with disjoint names."""
    sizes = {
        "person": config.people,
        "city": config.cities,
        "country": config.countries,
        "company": config.companies,
        "film": config.films,
    }
    scale = {split: config.warm_start_scale if split == "warm_start" else 1 for split in SPLITS}
    pools = disjoint({split: sum(sizes.values()) * scale[split] for split in SPLITS}, config.seed)
    return {
        split: _world(split, pools[split], {kind: size * scale[split] for kind, size in sizes.items()}, config.seed)
        for split in SPLITS
    }


def _world(split: str, pool: Sequence[str], sizes: dict[str, int], seed: int) -> World:
    rng = generator(seed, "world", "facts", split)
    names: dict[str, tuple[str, ...]] = {}
    start = 0
    for kind, size in sizes.items():
        names[kind] = tuple(pool[start : start + size])
        start += size
    facts: dict[tuple[str, str], str] = {}
    for kind, members in names.items():
        for name in members:
            for relation in TABLES[kind]:
                if relation.target == "year":
                    facts[name, relation.name] = str(rng.integers(YEARS.start, YEARS.stop))
                else:
                    facts[name, relation.name] = _another(names[relation.target], name, rng)
    kind_of = {name: kind for kind, members in names.items() for name in members}
    return World(split, names, kind_of, facts)


def _another(members: Sequence[str], name: str, rng: np.random.Generator) -> str:
    choice = name
    while choice == name:
        choice = members[int(rng.integers(len(members)))]
    return choice


def passages(world: World, config: WorldConfig) -> list[Passage]:
    """One passage for each entity, a sentence for each fact; beside a share `noise` of them a distracting one."""
    rng = generator(config.seed, "world", "passages", world.split)
    made = []
    for name, kind in world.kind_of.items():
        sentences = [f"{name} is a {kind}."]
        for relation in TABLES[kind]:
            phrasing = relation.phrasings[rng.integers(config.phrasings)]
            sentences.append(f" The {phrasing} of {name} is {world.facts[name, relation.name]}.")
        made.append(Passage(name, name, "".join(sentences), tuple(sentences)))
        if rng.random() < config.noise:
            other = _another(world.names[kind], name, rng)
            noise = f"{name} and {other} are often mentioned together, for no good reason."
            made.append(Passage(f"{name}/noise", name, noise, (noise,)))
    return made


def readable(path: Path) -> bool:
    """Whether there is a DuckDB file with a world's tables that can be read to the end."""
    if not path.is_file():
        return False
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            for kind in TABLES:
                connection.execute(f"SELECT * FROM {kind}").fetchall()
    except duckdb.Error:
        return False
    return True


def write_database(world: World, path: Path) -> None:
    """Write the world's tables (person, city, country, company, film) as a new DuckDB file."""
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        for kind, relations in TABLES.items():
            columns = ", ".join(f"{r.name} {'INTEGER' if r.target == 'year' else 'VARCHAR'}" for r in relations)
            connection.execute(f"CREATE TABLE {kind} (name VARCHAR PRIMARY KEY, {columns})")
            rows = [[name, *(world.facts[name, r.name] for r in relations)] for name in world.names[kind]]
            connection.executemany(f"INSERT INTO {kind} VALUES ({', '.join('?' * (len(relations) + 1))})", rows)
        connection.execute("CHECKPOINT")
