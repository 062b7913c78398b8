"""A tool that the user brings, named as `module:name`: a function, a class or an instance, checked before it is used.

Finding the module is objects.py's, making a tool of a function function.py's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import FunctionType, MethodType

from agent_r1.errors import ConfigError
from agent_r1.objects import load_object
from agent_r1.tools.function import function_tool
from agent_r1.tools.protocol import Tool

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def open_own(path: str, key: str = "tools") -> Tool:
    """The tool at `module:name`: it is one, or a class whose instance without arguments is one, or a function.

    ConfigError names the configuration's key, the path, and what was expected.
    """
    where = f"{key}: {path!r}"
    found = load_object(path, key)
    if isinstance(found, type):
        try:
            found = found()
        except (Exception, SystemExit) as error:  # the border to other people's code
            raise ConfigError(f"{where}: the class cannot be made: {type(error).__name__}: {error}") from error
    match found:
        case FunctionType() | MethodType():
            try:
                return function_tool(found)
            except ValueError as error:
                raise ConfigError(f"{where}: {error}") from error
        case Tool():
            check_schema(found, where)
            return found
    raise ConfigError(
        f"{where}: expected a function, or a tool with name, schema, call and close, found {type(found).__name__}"
    )


def check_schema(tool: Tool, where: str) -> None:
    """ConfigError, beginning with `where`, for a name or a schema that no chat template could show."""
    try:
        name, schema = tool.name, tool.schema
        json.dumps(schema, allow_nan=False).encode()
    except Exception as error:  # properties are other people's code too
        raise ConfigError(f"{where}: the schema cannot be had as JSON: {type(error).__name__}: {error}") from error
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: name: expected 1 to 64 of the characters A-Z a-z 0-9 _ . -, got {name!r:.100}")
    match schema:
        case {"type": "function", "function": Mapping() as function}:
            pass
        case _:
            raise ConfigError(
                f'{where}: schema: expected {{"type": "function", "function": {{"name", "description", "parameters"}}}}'
            )
    if function.get("name") != name:
        raise ConfigError(f"{where}: schema.function.name: expected the tool's name {name!r}")
    description = function.get("description")
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"{where}: schema.function.description: expected what the tool does; the model reads it")
    match function.get("parameters"):
        case {"type": "object", "properties": Mapping() as properties, **others}:
            required = others.get("required", [])
            if not isinstance(required, list | tuple) or any(one not in properties for one in required):
                raise ConfigError(f"{where}: schema.function.parameters.required: expected names out of properties")
        case _:
            raise ConfigError(
                f'{where}: schema.function.parameters: expected {{"type": "object", "properties": {{...}}}}'
            )
