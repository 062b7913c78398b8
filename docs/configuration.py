"""Writes configuration.md beside itself from the configuration's models, so that no key is described twice.

Run it by `make docs` after a change of agent_r1/sections.py; tests/test_readme.py fails where the page is not current.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this checkout's keys, not those of one that is installed

from agent_r1.config import Config

PAGE = Path(__file__).with_name("configuration.md")
HEAD = """# Configuration

One YAML file, nested as the tables below; on the command line `--set section.key=value` (the value is YAML). Unknown
keys, wrong values and contradictions are errors before any work. The shipped configurations are in
[flows/configs](../flows/configs) and say only what they change.

What identifies a run is every key that is not marked *operational*: a run of the same name goes on only where all of
them are the same. Operational keys say where and how a run works, not what it computes; they may change on resume, and
the change is recorded.

The file of an experiment has keys of its own: [operations.md](operations.md#experiments).

This page is generated from `agent_r1/sections.py` by `make docs`.
"""
Schema = dict[str, Any]


def page() -> str:
    """The whole page."""
    schema = Config.model_json_schema()
    parts = [HEAD, *(_section(name, part, schema) for name, part in _sections(schema, schema, ""))]
    return "".join(parts)


def _sections(part: Schema, root: Schema, prefix: str) -> Iterator[tuple[str, Schema]]:
    yield prefix, part
    for name, value in part["properties"].items():
        for reference, mark in ((value.get("$ref"), "."), (value.get("items", {}).get("$ref"), "[].")):
            if reference is not None:
                inner = root["$defs"][reference.rpartition("/")[2]]
                yield from _sections(inner, root, f"{prefix}{name}{mark}")


def _section(prefix: str, part: Schema, root: Schema) -> str:
    title = prefix.removesuffix(".") or "top level"
    meaning = "" if part is root else f"{part.get('description', '').strip()}\n\n"
    rows = [
        _row(
            f"`{prefix}{name}`",
            _code(value["default"]) if "default" in value else "required",
            _allowed(value),
            _meaning(value),
        )
        for name, value in part["properties"].items()
        if "$ref" not in value
    ]
    return f"\n## {title}\n\n{meaning}| key | default | allowed | meaning |\n|---|---|---|---|\n{''.join(rows)}"


def _meaning(value: Schema) -> str:
    text = str(value.get("description", ""))
    return f"{text} (operational)".strip() if value.get("operational") else text


def _allowed(value: Schema) -> str:
    if "anyOf" in value:
        return " or ".join(_allowed(option) for option in value["anyOf"])
    if "enum" in value or "const" in value:
        return ", ".join(str(option) for option in value.get("enum", [value.get("const")]))
    if value["type"] == "array":
        return "list of sections" if "$ref" in value["items"] else f"list: {_allowed(value['items'])}"
    if "pattern" in value:
        return f"text: {_code(value['pattern'])}"
    names = {"integer": "integer", "number": "number", "boolean": "true, false", "string": "text", "null": "null"}
    names |= {"object": "texts by name"}
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {value[name]}" for name, sign in limits.items() if name in value]
    return " ".join([names[value["type"]], ", ".join(bounds)]).strip()


def _code(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if text else "empty"


def _row(*cells: str) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
