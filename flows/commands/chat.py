"""chat: talk to the agent."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, Home, Settings
from flows.interruption import INTERRUPTED
from flows.terminal import console


def chat(
    target: Annotated[
        str, typer.Argument(help="A run, a checkpoint folder or a Hugging Face model.", show_default=False)
    ],
    question: Annotated[list[str] | None, typer.Option("--question", help="Ask this and end; may be repeated.")] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0 takes the likeliest tokens, 1 samples as in training.")
    ] = 0.0,
    split: Annotated[
        str, typer.Option("--split", help="In whose world or passages: train, validation or test.")
    ] = "validation",
    settings: Settings = None,
    home: Home = DEFAULT_HOME,
    as_json: Annotated[bool, typer.Option("--json", help="Print the transcripts, a JSON object a line.")] = False,
) -> None:
    """Talk to an agent, and see its tools as they run.

    Tokens are shown as they come. Every question begins anew, as in training. Questions can be piped in, one a line.
    """
    from flows import talk

    options = talk.Options(target, question or [], split, settings or [], temperature, home, as_json)
    try:
        talk.chat(options, console())
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
