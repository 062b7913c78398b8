"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[
    Path, typer.Option("--home", envvar="AGENT_R1_HOME", help="Folder that holds everything runs leave behind.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Run = Annotated[str, typer.Argument(help="Name of a run.", show_default=False)]
Settings = Annotated[list[str] | None, typer.Option("--set", help="key.sub=value, instead of the file's.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings, errors and a last line.")]
JsonLines = Annotated[bool, typer.Option("--json-lines", help="Say everything as JSON, an object a line, for logs.")]
DEFAULT_HOME = Path("agent-r1-home")
