"""What the world is made of: kinds of entities, the relations between them, and how people say them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """A column of a table. `target` is the kind of entity it names, or "year". The first phrasing is plain."""

    name: str
    target: str
    phrasings: tuple[str, ...]


TABLES: dict[str, tuple[Relation, ...]] = {
    "person": (
        Relation("birthplace", "city", ("birthplace", "home town", "city of birth")),
        Relation("spouse", "person", ("spouse", "partner", "other half")),
        Relation("employer", "company", ("employer", "workplace", "paying company")),
        Relation("mentor", "person", ("mentor", "teacher", "guide")),
        Relation("birth_year", "year", ("birth year", "year of birth", "natal year")),
    ),
    "city": (
        Relation("country", "country", ("country", "nation", "land")),
        Relation("mayor", "person", ("mayor", "head of the town hall", "first citizen")),
    ),
    "country": (
        Relation("capital", "city", ("capital", "seat of government", "chief city")),
        Relation("president", "person", ("president", "head of state", "leader")),
    ),
    "company": (
        Relation("headquarters", "city", ("headquarters", "main office", "home base")),
        Relation("founder", "person", ("founder", "creator", "originator")),
        Relation("founding_year", "year", ("founding year", "year of foundation", "starting year")),
    ),
    "film": (
        Relation("director", "person", ("director", "film maker", "person in the director's chair")),
        Relation("studio", "company", ("studio", "production company", "producing house")),
        Relation("star", "person", ("star", "lead actor", "main performer")),
        Relation("release_year", "year", ("release year", "year of release", "opening year")),
    ),
}
"""Kind of entity -> its relations. The kind is the table's name; `name` is its first column."""

HOPS_OF_KIND: dict[str, tuple[int, ...]] = {
    "compositional": (1, 2, 3, 4),
    "comparison": (2,),
    "bridge_comparison": (4,),
}
"""Kind of question -> the numbers of hops that it can have."""

YEARS = range(1900, 2000)

EARLIER = {
    "person": ("birth_year", "Who was born earlier"),
    "company": ("founding_year", "Which company was founded earlier"),
    "film": ("release_year", "Which film was released earlier"),
}
"""Kind -> the year that comparisons are about, and how they begin."""

BRIDGES = (
    ("film", "director", "Which film has the director who was born earlier"),
    ("film", "star", "Which film has the star who was born earlier"),
    ("company", "founder", "Which company has the founder who was born earlier"),
)
"""(kind, relation to a person, how the question begins)."""


def relation_of(kind: str, name: str) -> Relation:
    """The relation `name` of a kind of entity."""
    return next(relation for relation in TABLES[kind] if relation.name == name)


def table_of(relation: str) -> str:
    """The table that has a relation; none has two."""
    return next(kind for kind, relations in TABLES.items() if relation in [each.name for each in relations])


def sentence_of(kind: str, name: str) -> int:
    """The sentence of an entity's passage that states a relation; sentence 0 says what the entity is."""
    return 1 + [relation.name for relation in TABLES[kind]].index(name)
