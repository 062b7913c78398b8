"""A Python function as a tool: its type hints are the parameters, its docstring is what the model reads.

Pydantic makes the schema and checks the arguments. Where the function comes from is own.py's; how long it may take,
concurrently.py's.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from docstring_parser import Docstring, parse
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from agent_r1.tools.protocol import JsonObject, Tool, ToolResult

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ERROR_CHARACTERS = 300
_ANYTHING = TypeAdapter(object)
_NOTHING = "done"  # what a model reads of a function that returns None: an empty observation would say less


def function_tool(function: Callable[..., object]) -> Tool:
    """The tool that a function or a bound method is, also as a decorator; async functions are run to their end.

    Every parameter needs a type hint, and the docstring says what the tool does; under `Args:` it may describe the
    parameters, whose default values make them optional. ValueError names the function, the parameter and what was
    expected. Arguments are read as pydantic reads JSON: the string "3" is an int, 3 is no string, and a parameter that
    the function does not have is an error.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ValueError(f"{function!r}: expected a function or a bound method")
    name = function.__name__
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name}: a tool's name has 1 to 64 of the characters A-Z a-z 0-9 _")
    read = parse(inspect.getdoc(function) or "")
    description = "\n\n".join(part for part in (read.short_description, read.long_description) if part)
    if not description:
        raise ValueError(f"{name}: expected a docstring that says what the tool does; the model reads it")
    return _FunctionTool(function, name, description, _arguments(function, name, read))


class _FunctionTool:
    """See function_tool. `arguments` has a field for each parameter, whose alias is the parameter's name."""

    def __init__(
        self, function: Callable[..., object], name: str, description: str, arguments: type[BaseModel]
    ) -> None:
        self.name = name
        self._function = function
        self._arguments = arguments
        self._schema: JsonObject = {
            "type": "function",
            "function": {"name": name, "description": description, "parameters": _parameters(arguments)},
        }

    @property
    def schema(self) -> JsonObject:
        """What the model sees, in OpenAI form."""
        return self._schema

    def call(self, arguments: JsonObject) -> ToolResult:
        """Run the function. Never raises: a wrong argument or an exception is a result with ok False."""
        if not isinstance(arguments, Mapping):
            return ToolResult(f"error: {self.name} needs its parameters as a JSON object", ok=False)
        try:
            checked = self._arguments.model_validate(dict(arguments))
        except ValidationError as error:
            return ToolResult(f"error: {self._reason(error)}"[:_ERROR_CHARACTERS], ok=False)
        fields = self._arguments.model_fields
        given = {str(fields[field].alias): getattr(checked, field) for field in checked.model_fields_set}
        try:
            result = self._function(**given)
            return _result(asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result)
        except (Exception, SystemExit) as error:  # the border to other people's code
            return ToolResult(f"error: {type(error).__name__}: {error}"[:_ERROR_CHARACTERS], ok=False)

    def close(self) -> None:
        """Nothing to free: what a function holds is its module's."""

    def _reason(self, error: ValidationError) -> str:
        """What is wrong with the first wrong argument."""
        first = error.errors(include_url=False, include_context=False)[0]
        parameter, *inside = [str(step)[:50] for step in first["loc"]]
        if first["type"] == "extra_forbidden" and not inside:
            known = ", ".join(repr(field.alias) for field in self._arguments.model_fields.values())
            return f"{self.name} has no parameter {parameter!r}, only {known or 'none at all'}"
        if first["type"] == "missing" and not inside:
            return f"{self.name} needs the parameter {parameter!r}"
        place = f"{parameter!r} at {'.'.join(inside)}" if inside else repr(parameter)
        return f"{self.name}: the parameter {place}: {first['msg']}"


def _arguments(function: Callable[..., object], name: str, read: Docstring) -> type[BaseModel]:
    """A model of a call's arguments. Its fields are p0, p1, ...: a parameter may be called what no field may."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise ValueError(f"{name}: a type hint cannot be read: {error}") from error
    parameters = inspect.signature(function).parameters
    described = {each.arg_name: " ".join((each.description or "").split()) for each in read.params}
    if unknown := sorted(set(described) - set(parameters)):
        raise ValueError(f"{name}: the docstring describes {unknown[0]!r}, but there is no such parameter")
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(parameters.values()):
        hint = _hint(parameter, hints, name)
        default = ... if parameter.default is parameter.empty else parameter.default
        text = described.get(parameter.name) or _note(hint)
        fields[f"p{number}"] = (hint, Field(default, alias=parameter.name, description=text))
    return create_model(name, __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **fields)


def _hint(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> Any:
    """The type of a parameter; ValueError where a model cannot give it by its name, in JSON."""
    where = f"{name}: parameter {parameter.name!r}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise ValueError(f"{where} is {parameter.kind.description}: expected parameters that are given by name")
    if parameter.name not in hints:
        raise ValueError(f"{where} has no type hint: expected one such as `{parameter.name}: str`")
    hint = hints[parameter.name]
    try:
        TypeAdapter(hint).json_schema()
    except (PydanticUserError, TypeError) as error:
        raise ValueError(
            f"{where} has the type {inspect.formatannotation(hint)}, which has no JSON form: expected str, int, float, "
            "bool, Literal, an Enum, list, dict, a dataclass or TypedDict of those, or one of them | None "
            f"({str(error).splitlines()[0]})"
        ) from error
    return hint


def _note(hint: object) -> str | None:
    """The text of Annotated[str, "the town's name"]; where there is none, a Field's description is kept."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, str)), None)


def _parameters(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of the arguments, without the titles that pydantic makes up of names."""
    schema = arguments.model_json_schema()
    for one in (schema, *schema.get("$defs", {}).values()):
        one.pop("title", None)
        for field in one.get("properties", {}).values():
            field.pop("title", None)
    schema.pop("additionalProperties", None)
    schema.setdefault("properties", {})
    return schema


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def _result(value: object) -> ToolResult:
    """Text and results as they are, anything else as JSON, and as str() what has no JSON form."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult(_NOTHING, ok=True)
    try:
        plain = _ANYTHING.dump_python(value, mode="json", fallback=str)
    except ValueError:  # bytes that are no text, what holds itself
        plain = str(value)
    return ToolResult(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False), ok=True)
