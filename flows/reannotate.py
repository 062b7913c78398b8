"""reannotate: a new run of another run's trajectories at other prices. The other is only read, and may go on training.

What is done with an iteration is left to tasks/reannotate.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agent_r1.config import Config, parse
from agent_r1.config_file import override
from agent_r1.errors import ConfigError, RunError
from flows.home import TRAJECTORIES_OF, check_run_name, find_row, stored_context, stored_row, trajectories_of
from flows.locks import run_lock
from flows.session import sigterm_is_ctrl_c, status_at_the_end
from flows.start import check_same, new_row, write_config
from flows.surroundings import check_tracking
from storage import metrics, runs, stages
from storage.runs import RunRow
from storage.stages import StageRow
from tasks.context import RunContext
from tasks.reannotate import reannotate as copy_and_price

TOTAL = "rollout/reward_mean"


def reannotate(home: Path, run: str, name: str, settings: Sequence[str], say: Callable[[str], None]) -> None:
    """Take every iteration of `run` that is annotated and that `name` does not have yet, at the prices of `settings`.

    ConfigError for settings other than rewards, RunError where there is nothing to take or `name` is another run.
    """
    row = stored_row(home, run)
    source = stored_context(home, run)
    context = replace(source, run=check_run_name(name), config=_priced(row, name, settings))
    sampled = _annotated(source)
    with run_lock(context.folder):
        stored = find_row(home, name)
        todo = [iteration for iteration in sampled if context.ledger.find(iteration, "publish") is None]
        if stored is not None:
            _check_goes_on(stored, run, context.config)
            if not todo and stored.status == "finished":
                say(f"run {name}: has all {len(sampled)} annotated iterations of {run} already; nothing to do")
                return
        check_tracking(context)
        _begin(context, run, stored, say)
        with status_at_the_end(context), sigterm_is_ctrl_c():
            for iteration in todo:
                copy_and_price(context, iteration, sampled[iteration], say)
                say(_line(context, run, iteration))


def _priced(row: RunRow, name: str, settings: Sequence[str]) -> Config:
    """The run's configuration at other prices."""
    if name == row.run:
        raise ConfigError(f"--name {name}: expected the name of another run; {name} is only read")
    tree = dict(row.config)
    for setting in settings:
        if not setting.strip().startswith("rewards."):
            raise ConfigError(
                f"--set {setting}: would not change what stored trajectories are paid, only rewards.* does; to train "
                f"with it: agent-r1 train --run {name} --from {row.run}@0 --set {setting}"
            )
        override(tree, setting)
    return parse(tree, f"run {row.run!r} with --set")


def _annotated(source: RunContext) -> dict[int, list[StageRow]]:
    """The rollout shards of every iteration that the run has annotated. RunError where there is none to take."""
    origin = trajectories_of(stored_row(source.home, source.run))
    if origin is not None:
        raise RunError(f"run {source.run!r} holds the trajectories of run {origin!r}: reannotate that one")
    with source.store.read() as con:
        rows = stages.of_run(con, source.run)
    found = sorted(row.iteration for row in rows if row.stage == "annotate")
    if not found:
        raise RunError(f"run {source.run!r} has no iteration whose trajectories are annotated yet")
    return {each: [row for row in rows if (row.iteration, row.stage) == (each, "rollout")] for each in found}


def _check_goes_on(stored: RunRow, run: str, config: Config) -> None:
    """RunError where the run of that name is anything else than these trajectories at these prices."""
    origin = trajectories_of(stored)
    if origin != run:
        what = "samples its own trajectories" if origin is None else f"holds the trajectories of run {origin!r}"
        raise RunError(f"run {stored.run!r} exists and {what}: use another --name")
    check_same(stored.run, parse(stored.config, f"the stored configuration of run {stored.run!r}"), config)


def _begin(context: RunContext, run: str, stored: RunRow | None, say: Callable[[str], None]) -> None:
    with context.store.write() as con:
        if stored is None:
            runs.insert(con, new_row(context, TRAJECTORIES_OF, run))
        else:
            runs.set_status(con, context.run, "running")
    write_config(context)
    say(f"run {context.run}: {'new' if stored is None else 'goes on'}, trajectories of {run}, in {context.home}")


def _line(context: RunContext, run: str, iteration: int) -> str:
    with context.store.read() as con:
        before, after = (metrics.value(con, each, iteration, TOTAL) for each in (run, context.run))
    return f"iteration {iteration}  reward {before:6.3f} -> {after:6.3f}"
