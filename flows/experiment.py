"""Doing an experiment: run after run of its plan, each as `train` does it, and a result file for each that is finished.

Whoever else works in the same home keeps its runs. What the results say is left to experiment_summary.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent_r1 import experiment as definition
from agent_r1.comparison import VALIDATION
from agent_r1.config import parse
from agent_r1.config_file import read
from agent_r1.errors import AgentR1Error, ConfigError, RunError
from agent_r1.experiment import Piece, Plan
from agent_r1.questions.records import Json
from flows.home import check_run_name, find_row, stored_context, stored_row
from flows.locks import RunInUse, holder, run_lock
from flows.start import begin, differing, started_from
from storage import metrics, results, stages
from storage.results import RunResult
from tasks.stage import intact
from tasks.versions import machine

POLL_SECONDS = 2.0
Say = Callable[[str], None]


def make_plan(path: Path, name: str, find_base: Callable[[str], Path]) -> Plan:
    """The plan of an experiment's file; its base is a file beside it, else what `find_base` finds."""
    experiment = definition.load(path)
    beside = path.parent / experiment.base
    base = beside if beside.is_file() else find_base(experiment.base)
    made = definition.plan(experiment, name, read(base), str(path))
    for piece in (*made.bases.values(), *made.pieces):
        check_run_name(piece.run)
    return made


def choose(plan: Plan, only: Sequence[str], seeds: Sequence[int]) -> list[Piece]:
    """The pieces of these variants and seeds; all where none are named. ConfigError where there is none."""
    for option, given, known in (
        ("--only", only, plan.experiment.variants),
        ("--seed", seeds, plan.experiment.seeds),
    ):
        for one in given:
            if one not in known:
                raise ConfigError(f"{option} {one}: there is {', '.join(map(str, known))}")
    chosen = [
        piece for piece in plan.pieces if (not only or piece.variant in only) and (not seeds or piece.seed in seeds)
    ]
    if not chosen:
        given = [*(f"--only {one}" for one in only), *(f"--seed {one}" for one in seeds)]
        raise ConfigError(f"{' '.join(given)}: chooses no run; runs are {', '.join(one.run for one in plan.pieces)}")
    return chosen


def stored_results(plan: Plan, folder: Path) -> dict[str, RunResult]:
    """The results there are, by run. RunError names a file of something else, and the keys that differ."""
    found = {piece.run: _stored_result(plan.name, piece, folder) for piece in plan.pieces}
    return {run: result for run, result in found.items() if result is not None}


def _stored_result(name: str, piece: Piece, folder: Path) -> RunResult | None:
    """The piece's result; None where there is none, or one of fewer iterations."""
    result = results.find(folder, name, piece.variant, piece.seed)
    if result is None:
        return None
    path = results.path_of(folder, piece.variant, piece.seed)
    if all(value is None for value in result.series.get(VALIDATION, {}).values()):
        raise RunError(f"{path}: not the result of a run: expected values of {VALIDATION}")
    before = parse(result.config, str(path))
    others = differing(before.identity_keys(), piece.config.identity_keys())
    if others:
        named = "; ".join(f"{key} is {old!r} there and {new!r} here" for key, old, new in others)
        raise RunError(f"{path}: a result of another configuration: {named}")
    if result.iterations > piece.config.iterations:
        raise RunError(f"{path}: a result of {result.iterations} iterations, above {piece.config.iterations}")
    return result if result.iterations == piece.config.iterations else None


def run_pieces(home: Path, plan: Plan, chosen: Sequence[Piece], folder: Path, say: Say) -> dict[str, Exception]:
    """Make the results that are missing; what failed, by run.

    A run that another process works on is left to it. At the end those are waited for, and taken over where their
    process is gone.
    """
    failures: dict[str, Exception] = {}
    there, waited = stored_results(plan, folder), False
    waiting = [piece for piece in chosen if piece.run not in there]
    for piece in chosen:
        if piece.run in there:
            say(
                f"run {piece.run}: its result is there already, in {results.path_of(folder, piece.variant, piece.seed)}"
            )
    while waiting:
        left = [piece for piece in waiting if not _finish(home, plan, piece, folder, failures, say)]
        if left and len(left) == len(waiting):
            if not waited:
                say(f"waiting for other processes: {', '.join(piece.run for piece in left)}")
            waited = True
            time.sleep(POLL_SECONDS)
        waiting = left
    return failures


def _finish(home: Path, plan: Plan, piece: Piece, folder: Path, failures: dict[str, Exception], say: Say) -> bool:
    """Whether the piece needs nothing more; False where it is left to another process."""
    if _stored_result(plan.name, piece, folder) is not None:  # another process may have made it by now
        return True
    base = plan.bases[piece.seed]
    if base.run in failures:
        failures[piece.run] = RunError(f"its start {base.run} failed")
        return True
    if any(holder(home / "runs" / each.run) for each in (base, piece)):  # before the store, which its writers need
        return False
    current = base
    try:
        for current, start_from in ((base, None), (piece, f"{base.run}@0")):
            if not _finished(home, current, start_from):
                _train(home, current, start_from, say)
        with run_lock(home / "runs" / piece.run):
            path = results.save(folder, gather(home, plan, piece))
    except RunInUse:
        return False
    except Exception as error:  # the boundary of a run: the others go on
        failures[current.run] = error
        say(_failed(current.run, error))
        return current is piece or _finish(home, plan, piece, folder, failures, say)
    say(f"run {piece.run}: result written, {path}")
    return True


def check_done(failures: Mapping[str, Exception]) -> None:
    """RunError where runs failed; it comes from their errors, for whoever asks for tracebacks."""
    if failures:
        group = ExceptionGroup("runs failed", list(failures.values()))
        raise RunError("; ".join(_failed(run, error) for run, error in failures.items())) from group


def _failed(run: str, error: Exception) -> str:
    return f"run {run} failed: {error if isinstance(error, AgentR1Error) else f'{type(error).__name__}: {error}'}"


def _finished(home: Path, piece: Piece, start_from: str | None) -> bool:
    """Whether all stages of the run are done; for a start also whether its checkpoint is there as it was made.

    RunError where it went further than the experiment asks, or started from something else.
    """
    row = find_row(home, piece.run)
    if row is None:
        return False
    context = stored_context(home, piece.run)
    with context.store.read() as con:
        rows = stages.of_run(con, piece.run)
    done = {(each.stage, each.iteration) for each in rows}
    last, wanted = max((i for stage, i in done if stage == "publish"), default=0), piece.config.iterations
    if last > wanted:
        raise RunError(f"run {piece.run!r} has {last} iterations, the experiment asks for {wanted}")
    ends = {("publish", wanted), *([("test", wanted)] if piece.config.evaluation.test else [])}
    if row.identity != piece.config.identity or row.status != "finished" or not ends <= done:
        return False
    if start_from is None:
        return all(intact(home, each.receipt) for each in rows if each.stage == "warm_start")
    if started_from(row) != start_from:
        raise RunError(f"run {piece.run!r} exists and starts from {started_from(row) or 'nothing'}, not {start_from}")
    return True


def _train(home: Path, piece: Piece, start_from: str | None, say: Say) -> None:
    from flows.session import run_training

    run_training(home, piece.run, lambda: begin(home, piece.run, piece.config, start_from), say)


def _gpu(device: str) -> dict[str, Json]:
    """The name and memory of the GPU, nothing for a CPU."""
    from agent_r1.model import machine as devices  # torch: not where nothing is run

    name, _ = devices(device)
    return {} if name == "cpu" else {"device": name}


def gather(home: Path, plan: Plan, piece: Piece) -> RunResult:
    """The result of a finished run, from its rows."""
    row, context = stored_row(home, piece.run), stored_context(home, piece.run)
    with context.store.read() as con:
        values = metrics.load(con, piece.run)
        done = stages.of_run(con, piece.run)
    series: dict[str, dict[int, float | None]] = {}
    test: dict[str, float | None] = {}
    for each in sorted(values, key=lambda value: (value.key, value.iteration)):
        if each.key.startswith("test/"):
            if each.iteration == piece.config.iterations:
                test[each.key] = results.number(each.value)
        else:
            series.setdefault(each.key, {})[each.iteration] = results.number(each.value)
    start = next(each for each in done if each.stage == "warm_start")
    libraries = {"code", *row.library_versions}
    overrides: dict[str, Json] = dict(plan.experiment.variants[piece.variant])
    return RunResult(
        experiment=plan.name,
        variant=piece.variant,
        seed=piece.seed,
        run=piece.run,
        identity=row.identity,
        iterations=piece.config.iterations,
        overrides=overrides,
        config=row.config,
        start_weights=str(start.receipt["weights"]),
        code_version=row.code_version,
        library_versions=row.library_versions,
        changes=[
            f"{note['what']}: {note['before']} -> {note['after']}" for note in row.notes if note["what"] in libraries
        ],
        machine=machine() | _gpu(piece.config.device),
        finished_at=max(each.finished_at for each in done).isoformat(),
        series=series,
        test=test,
    )
