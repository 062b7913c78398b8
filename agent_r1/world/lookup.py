"""The lookup tool: (entity, relation) -> value, the form of a database query that a very small model can write."""

from __future__ import annotations

from pathlib import Path

import duckdb

from agent_r1.tools.protocol import JsonObject, Source, ToolResult
from agent_r1.world.relations import TABLES, sentence_of


class LookupTool:
    """Answers from a world's database, read once into memory. Nothing found is a failed call."""

    name = "lookup"

    def __init__(self, path: Path) -> None:
        self._facts: dict[tuple[str, str], tuple[str, int]] = {}
        with duckdb.connect(str(path), read_only=True) as connection:
            for kind, relations in TABLES.items():
                for name, *values in connection.execute(f"SELECT * FROM {kind}").fetchall():
                    for relation, value in zip(relations, values, strict=True):
                        self._facts[name, relation.name] = (str(value), sentence_of(kind, relation.name))

    @property
    def schema(self) -> JsonObject:
        """What the model sees, in OpenAI form."""
        return {
            "type": "function",
            "function": {
                "name": "lookup",
                "description": "Look up a fact: the value of a relation of an entity.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "entity": {"type": "string", "description": "the entity's name"},
                        "relation": {"type": "string", "description": "the relation, such as director"},
                    },
                    "required": ["entity", "relation"],
                },
            },
        }

    def call(self, arguments: JsonObject) -> ToolResult:
        """The value's text; its source is the sentence of the entity's passage that states the same fact."""
        entity, relation = arguments.get("entity"), arguments.get("relation")
        if not isinstance(entity, str) or not isinstance(relation, str):
            missing = "entity" if not isinstance(entity, str) else "relation"
            return ToolResult(f"error: {missing} must be a string", ok=False)
        found = self._facts.get((entity.strip(), relation.strip()))
        if found is None:
            return ToolResult("nothing found", ok=False)
        value, sentence = found
        return ToolResult(value, ok=True, sources=(Source(entity.strip(), sentence, 0, len(value)),))

    def close(self) -> None:
        """Nothing is held."""
