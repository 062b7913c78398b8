"""How the help of a command reads, in 80 columns: names of values in capitals, no types of Python, and examples.

What a command does and which options it has is said where the command is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

EXAMPLES: dict[str, Sequence[str]] = {
    "train": (
        "agent-r1 train",
        "agent-r1 train quickstart --run mine --iterations 20 --set seed=1",
        "agent-r1 train --run other --from quickstart@5",
        "agent-r1 train hotpotqa-smollm2 --set data.path=FILE --json-lines > log",
    ),
    "resume": ("agent-r1 resume quickstart", "agent-r1 resume quickstart --from-iteration 3"),
    "runs": ("agent-r1 runs", "agent-r1 runs --json"),
    "show": (
        "agent-r1 show quickstart",
        "agent-r1 show quickstart --iteration 3",
        "agent-r1 show quickstart --trajectory ID",
    ),
    "compare": ("agent-r1 compare quickstart other",),
    "doctor": (
        "agent-r1 doctor",
        "agent-r1 doctor --deep",
        "agent-r1 doctor quickstart",
        "agent-r1 doctor --data questions.jsonl",
    ),
    "evaluate": (
        "agent-r1 evaluate quickstart --split test",
        "agent-r1 evaluate hotpotqa-smollm2 --data dev.json --method all --run dev",
    ),
    "experiment": (
        "agent-r1 experiment four-hops --seed 0",
        "agent-r1 experiment my-experiment.yaml --results DIR --summary-only",
    ),
    "schedule": (
        "agent-r1 schedule quickstart --every 1h",
        "agent-r1 schedule my.yaml --cron '0 3 * * *' --iterations 5",
    ),
    "report": ("agent-r1 report quickstart", "agent-r1 report quickstart --out report.html"),
    "ui": ("agent-r1 ui", "agent-r1 ui --port 5001 --no-prefect"),
    "chat": (
        "agent-r1 chat quickstart",
        'agent-r1 chat quickstart --question "What is the birthplace of Zanrus?"',
        "agent-r1 chat quickstart --json < questions.txt > transcripts.jsonl",
    ),
    "export": ("agent-r1 export quickstart DIR", "agent-r1 export quickstart@3 DIR --trajectories"),
    "gc": ("agent-r1 gc --dry-run", "agent-r1 gc", "agent-r1 gc --delete other"),
    "reannotate": ("agent-r1 reannotate quickstart --name dear --set rewards.turn=-0.2",),
}
"""Command -> lines that can be typed as they are, once there are such runs and files."""

NAMES = {"str": "TEXT", "int": "N", "float": "N", "Path": "PATH"}


class Command(TyperCommand):
    """A command whose help shows values as NAMES, and its examples."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument | TyperOption) and parameter.metavar is None:
                parameter.metavar = _value_name(parameter)
            if isinstance(parameter, TyperArgument):
                parameter.display_type_rich = _no_type
        lines = EXAMPLES.get(self.name or "", ())
        if self.epilog is None and lines:
            self.epilog = "\n".join(("Examples:", *(f"  {line}" for line in lines)))

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        """See _flag."""
        return _flag(super().get_help_option(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Required ones as they are, others in brackets."""
        return ["[OPTIONS]", *(_usage(each) for each in self.get_params(ctx) if isinstance(each, TyperArgument))]


class Group(TyperGroup):
    """The commands together."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        """See _flag."""
        return _flag(super().get_help_option(ctx))


def _flag(option: TyperOption | None) -> TyperOption | None:
    """--help, which has no value to name."""
    if option is not None:
        option.metavar = ""
    return option


def _no_type(ctx: Any) -> str | None:
    del ctx


def _value_name(parameter: TyperArgument | TyperOption) -> str:
    if isinstance(parameter, TyperArgument):
        return (parameter.name or "").upper()
    if parameter.is_flag:
        return ""
    kind = parameter.bare_type().removeprefix("list[").removesuffix("]")
    return NAMES.get(kind, kind.upper())


def _usage(argument: TyperArgument) -> str:
    name = argument.metavar or ""
    return name if argument.required else f"[{name}]"
