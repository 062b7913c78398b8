"""chat: talk to an agent."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, AsJson, Home
from flows.interruption import orderly


def chat(
    target: Annotated[str, typer.Argument(help="A run, a model's folder or a Hugging Face model.")],
    question: Annotated[str | None, typer.Option("--question", help="Ask this. Default: typed, or stdin.")] = None,
    split: Annotated[str, typer.Option("--split", help="In whose world: train, validation, test.")] = "validation",
    settings: Annotated[list[str] | None, typer.Option("--set", help="key.sub=value, instead of the target's.")] = None,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 takes the likeliest token.")] = 0.0,
    seed: Annotated[int | None, typer.Option("--seed", help="Of what is sampled. Default: the target's.")] = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Ask an agent questions and watch it call its tools. Each question begins anew, as in training."""
    from flows import chat as talk

    options = talk.Options(target, question, split, settings or [], temperature, seed, home, as_json)
    with orderly(home, "the same command"):
        talk.chat(options)
