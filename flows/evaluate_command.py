"""The command `evaluate`: its options, checked before any work, to metrics of one method or a table of several.

What TARGET and methods mean is left to evaluation.py, keeping what was answered to baselines.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_r1.config import load, parse
from agent_r1.config_file import lay_over, override
from agent_r1.errors import ConfigError
from flows import baselines, evaluation, reports
from flows.configs import find_config
from flows.evaluation import Ready, Result, Target
from flows.home import check_home
from flows.interruption import orderly
from flows.reports import View
from tasks.answer import Asked

OF_WORLD = "quickstart"
ON_FILES = "hotpotqa-smollm2"
"""Configurations for what brings none: on the built-in world, and on question files."""
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Options:
    """As they are given; without `data` the target's own split, without `questions` all, without `run` nothing kept."""

    target: str
    data: Sequence[Path]
    split: str
    methods: Sequence[str]
    questions: int | None
    settings: Sequence[str]
    run: str | None
    home: Path


def evaluate(options: Options, say: Callable[[str], None]) -> View:
    """What the methods answered, now or in a run that holds it."""
    methods = evaluation.chosen_methods(options.methods)
    if options.split not in SPLITS:
        raise ConfigError(f"--split {options.split}: expected train, validation or test")
    files = list(dict.fromkeys(options.data))
    run_of = {} if options.run is None else baselines.names(options.run, methods, len(files))
    home = options.home.expanduser().absolute() if options.run is None else check_home(options.home)
    default = load(find_config(ON_FILES), [f"data.path={files[0]}"]) if files else load(find_config(OF_WORLD))
    target = set_target(evaluation.resolve(home, options.target, default), options.settings, files)
    # The target's own data.format is of the file that it was trained on.
    named = any(setting.startswith("data.format=") for setting in options.settings)
    layout = target.config.data.format if named else "auto"
    asked = [Asked(each, options.split, options.questions, layout) for each in files or [None]]

    def keep(ready: Ready) -> Result:
        return baselines.keep(home, target, run_of[ready.method], ready, say)

    if options.run is None:  # the home need not be there
        results = evaluation.evaluate(home, target, methods, asked, say)
    else:
        with orderly(home, "the same command"):
            results = evaluation.evaluate(home, target, methods, asked, say, keep)
    if len(methods) == len(asked) == 1:
        return reports.evaluation(f"{target.name} on {asked[0].name}", results[0].metrics)
    return reports.methods(target.name, results)


def set_target(target: Target, settings: Sequence[str], files: Sequence[Path]) -> Target:
    """The target with another configuration, on the files where there are some. ConfigError names a wrong setting."""
    if not settings:
        return target
    tree = target.config.model_dump(mode="json")
    if files:
        tree = lay_over(tree, evaluation.on_file(files[0], "auto"))
    for setting in settings:
        override(tree, setting)
    return replace(target, config=parse(tree, f"the configuration of {target.name} with --set"))
