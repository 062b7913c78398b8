"""Writes commands.md beside itself from the command line's own help, so that no option is described twice.

Run it by `make docs` after a change of flows/commands; tests/test_site.py fails where the page is not current.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this checkout's commands, not those of one installed

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.main import get_group

from flows.cli import app

PAGE = Path(__file__).with_name("commands.md")
HEAD = """# Commands

Each command's `--help` says the same in the terminal. Exit codes: 0 done, 1 the work failed, 2 wrong usage or
configuration, 130 Ctrl-C. Errors are one line; every command also takes `--debug`, which shows the traceback.

This page is generated from `flows/commands` by `make docs`.
"""


def page() -> str:
    """The whole page."""
    panels: dict[str, list[str]] = {}
    for name, command in get_group(app).commands.items():
        assert isinstance(command, TyperCommand)
        panels.setdefault(str(command.rich_help_panel), []).append(_command(name, command))
    return HEAD + "".join(f"\n## {panel}\n{''.join(commands)}" for panel, commands in panels.items())


def _command(name: str, command: TyperCommand) -> str:
    arguments = [each for each in command.params if isinstance(each, TyperArgument)]
    options = [each for each in command.params if isinstance(each, TyperOption) and not each.hidden]
    context = typer.Context(command, info_name=f"agent-r1 {name}")
    parts = [
        f"\n### {name}\n",
        f"```text\n{' '.join([context.info_name or '', *command.collect_usage_pieces(context)])}\n```\n",
        *_paragraphs(command.help or ""),
        _table("argument", [(_shown(each, context), each) for each in arguments]),
        _table("option", [(_shown(each, context), each) for each in options]),
        *_paragraphs(command.epilog or ""),
    ]
    return "\n".join(part for part in parts if part)


def _shown(parameter: TyperArgument | TyperOption, context: typer.Context) -> str:
    record = parameter.get_help_record(context)
    assert record is not None, f"{parameter.name}: hidden"
    return "`" + re.sub(r"<list\[(.*)\]>", r"<\1>", record[0]) + "`"


def _table(kind: str, rows: Iterable[tuple[str, TyperArgument | TyperOption]]) -> str:
    lines = [f"| {flags} | {_default(each)} | {_meaning(each)} |\n" for flags, each in rows]
    return f"| {kind} | default | meaning |\n|---|---|---|\n{''.join(lines)}" if lines else ""


def _default(parameter: TyperArgument | TyperOption) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    shown = "" if value is None or value is False or value == () or value == [] else f"`{value}`"
    return f"`${parameter.envvar}`, else {shown}" if parameter.envvar else shown


def _meaning(parameter: TyperArgument | TyperOption) -> str:
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    limits = [f"at least {parameter.min}"] if parameter.min is not None else []
    limits += [f"at most {parameter.max}"] if parameter.max is not None else []
    limits += ["may be repeated"] if parameter.multiple and "may be repeated" not in text else []
    return f"{text.removesuffix(chr(46))} ({', '.join(limits)})." if limits else text


def _paragraphs(text: str) -> list[str]:
    """Help as Markdown: what is not to be wrapped (after click's \\b), and calls of agent-r1, are code."""
    found = []
    for paragraph in inspect.cleandoc(text.partition("\f")[0]).split("\n\n"):
        lines = [line.rstrip() for line in paragraph.replace("\b", "").splitlines() if line.strip()]
        calls = [line.strip().startswith(("agent-r1 ", "$ agent-r1 ")) for line in lines]
        if not lines:
            continue
        if any(calls):
            first = calls.index(True)
            before, code = lines[:first], [line.strip().removeprefix("$ ") for line in lines[first:]]
            found += [" ".join(before) + "\n"] if before else []
            found.append("```sh\n" + "\n".join(code) + "\n```\n")
        elif "\b" in paragraph:
            found.append("```text\n" + "\n".join(lines) + "\n```\n")
        else:
            found.append(" ".join(line.strip() for line in lines) + "\n")
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
