"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[Path, typer.Option("--home", envvar="AGENT_R1_HOME", help="Folder of all that runs leave.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Run = Annotated[str, typer.Argument(help="Name of a run.", show_default=False)]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key.sub=value instead of the file's; may be repeated.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Nothing but warnings, errors and the result.")]
JsonLines = Annotated[bool, typer.Option("--json-lines", help="For logs: all as JSON, an object a line.")]
DEFAULT_HOME = Path("agent-r1-home")
