"""evaluate, experiment and reannotate: what else is measured beside a run."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, AsJson, Home, JsonLines, Quiet, Run
from flows.interruption import orderly
from flows.terminal import say, say_nothing, show_view


def evaluate(
    target: Annotated[str, typer.Argument(help="A run, a checkpoint folder or a Hugging Face model.")],
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Question file, instead of the target's own; may be repeated.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation or test.")] = "validation",
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="policy (the default), direct, rag, react or all; may be repeated."),
    ] = None,
    questions: Annotated[
        int | None, typer.Option("--questions", min=1, help="Only so many, the first of each file or split.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key.sub=value instead of the target's; may be repeated.")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="Keep the answers as a run; NAME-METHOD of several methods.")
    ] = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a policy, and other ways of answering with its weights.

    What it does meanwhile is said on stderr, the result on stdout.
    """
    from flows import evaluate_command as command
    from flows import screens

    options = command.Options(target, data or [], split, method or ["policy"], questions, settings or [], run, home)
    with screens.opened(screens.chosen(quiet, json_lines=False), sys.stderr) as screen:
        view = command.evaluate(options, screen.say)
    show_view(view, as_json)


def experiment(
    config: Annotated[str, typer.Argument(help="A YAML file, or a shipped experiment.", show_default=False)],
    name: Annotated[str | None, typer.Option("--name", help="Name of the experiment. Default: the file's.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this variant; may be repeated.")] = None,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Only this seed; may be repeated.")] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Where results lie. Default: HOME/experiments/NAME/results.")
    ] = None,
    summary_only: Annotated[bool, typer.Option("--summary-only", help="Run nothing, sum up what is there.")] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
    quiet: Quiet = False,
    json_lines: JsonLines = False,
) -> None:
    """Train variants with several seeds each, and compare them.

    The same command goes on where it was stopped, and several processes may share the work.
    """
    from flows import experiment_command as command
    from flows import screens
    from flows.experiment import check_done

    mode = screens.chosen(quiet, json_lines)
    options = command.Options(config, name, only or [], seeds or [], results, summary_only, home)
    with redirect_stdout(sys.stderr if as_json else sys.stdout), screens.opened(mode) as screen:
        view, failures = command.experiment(options, screen.say)
        if isinstance(screen, screens.JsonLines):
            screen.tell("summary", summary=view.json)
    if as_json or mode is not screens.Mode.JSON_LINES:
        show_view(view, as_json)
    check_done(failures)


def reannotate(
    run: Run,
    name: Annotated[str, typer.Option("--name", help="Name of the new run.", show_default=False)],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="rewards.x=y instead of the run's; may be repeated.")
    ] = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Price a run's stored trajectories anew, as another run."""
    from flows.home import check_home, find_home

    folder = check_home(find_home(home))

    from flows import reports
    from flows.reannotate import reannotate as reannotate_run

    with orderly(folder, "the same command"):
        reannotate_run(folder, run, name, settings or [], say=say_nothing if as_json else say)
    show_view(reports.reannotated(folder, run, name), as_json)
