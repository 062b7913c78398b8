"""Tools for a template that knows none: described in the system message, called as Hermes does, answered by the user.

The tokenizer's own template is kept and a prelude put before it that rewrites its messages, so that a saved policy
knows its tools wherever it is served. A template without a system role has that message before the first question.
"""

from __future__ import annotations

from importlib.resources import files

_PRELUDE = files("agent_r1.templates").joinpath("plain_tools.jinja").read_text(encoding="utf-8").rstrip("\n")


def teach(template: str, system_role: bool) -> str:
    """The template with the prelude before it, once."""
    if template.startswith(("{%- set system_role = true -%}", "{%- set system_role = false -%}")):
        return template
    return f"{{%- set system_role = {str(system_role).lower()} -%}}{_PRELUDE}{template}"
