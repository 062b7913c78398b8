"""Baselines as runs: what a method answered, kept in the home as a run that is compared, shown and never trained.

Answering is left to tasks/answer.py, which methods answer what to evaluation.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from agent_r1.config import Config, parse
from agent_r1.config_file import lay_over
from agent_r1.errors import ConfigError, RunError
from agent_r1.questions.records import Json
from flows.evaluation import Ready, Result, Target, on_file
from flows.home import EVALUATES, check_run_name, context_of, find_row, noted
from flows.locks import run_lock
from flows.session import sigterm_is_ctrl_c, status_at_the_end
from flows.start import check_same, new_row, write_config
from flows.surroundings import check_tracking
from storage import metrics, runs
from storage.runs import RunRow
from tasks import answer
from tasks.context import RunContext
from tasks.prepare import hashes
from tasks.stage import Receipt


def names(name: str, methods: Sequence[str], files: int) -> dict[str, str]:
    """The run of each method. ConfigError where a name is none, or there is more than one set of questions."""
    if files > 1:
        raise ConfigError(f"--run {name}: keeps the answers to one file; give --data once, and a run for each file")
    named = {method: name if len(methods) == 1 else f"{name}-{method}" for method in methods}
    return {method: check_run_name(run) for method, run in named.items()}


def keep(home: Path, target: Target, run: str, ready: Ready, say: Callable[[str], None]) -> Result:
    """Answer and keep that as the run, or take what the run holds. RunError where it holds something else."""
    context = context_of(home, run, _config(ready))
    what = f"{target.name} by {ready.method}"
    with run_lock(context.folder):
        row = find_row(home, run)
        if row is not None:
            _check_goes_on(row, what, context.config)
        if row is not None and row.status == "finished":
            receipt = _stored(context, target, ready, what)
            say(f"run {run}: holds these answers already; nothing to do")
        else:
            check_tracking(context)
            with context.store.write() as con:
                if row is None:
                    runs.insert(con, new_row(context, EVALUATES, what))
                else:
                    runs.set_status(con, run, "running")
            write_config(context)
            say(f"run {run}: {'new' if row is None else 'goes on'}, answers of {what}, in {home}")
            with status_at_the_end(context), sigterm_is_ctrl_c():
                receipt = _stored(context, target, ready, what)
    with context.store.read() as con:
        rows = metrics.load(con, run)
    values = {each.key: each.value for each in rows if each.key.startswith("eval/")}
    return Result(ready.method, ready.asked.name, values, answer.scores_of(receipt))


def _stored(context: RunContext, target: Target, ready: Ready, what: str) -> Receipt:
    source: dict[str, Json] = {
        "answers": what,
        "weights": target.weights,
        **hashes(context.config, [ready.split]),
        "split": ready.split.name,
        "questions": len(ready.split.questions),
    }
    made = partial(ready.answer, context.run)
    return answer.stored(context, ready.split, source, ready.opened.tokenizer, made)


def _config(ready: Ready) -> Config:
    """The method's configuration on these questions, with nothing to train."""
    tree = ready.config.model_dump(mode="json")
    tree["iterations"] = 0
    if ready.asked.data is not None:
        tree = lay_over(tree, on_file(ready.asked.data, ready.asked.format))
    return parse(tree, f"{ready.method} on {ready.asked.name}")


def _check_goes_on(row: RunRow, what: str, config: Config) -> None:
    """RunError where the run of that name is anything else than these answers."""
    held = noted(row, EVALUATES)
    if held != what:
        holds = "is another kind of run" if held is None else f"holds the answers of {held}"
        raise RunError(f"run {row.run!r} exists and {holds}: use another --run")
    check_same(row.run, parse(row.config, f"the stored configuration of run {row.run!r}"), config)
