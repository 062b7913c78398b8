"""How a home stands: its file system, leftovers, locks, the store with its promises, MLflow's and Prefect's files.

Part of `doctor`. A finding is a fact or a warning that says what to do; nothing is made or changed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agent_r1.config import parse
from agent_r1.errors import CheckpointError, ConfigError, StoreError, StoreLockedError
from agent_r1.questions.records import Json
from flows import processes
from flows.home import trajectories_of
from flows.locks import holder
from flows.reports import status
from storage import checkpoints, health, runs, stages
from storage.database import SCHEMA_VERSION, Store, stored_version
from storage.runs import RunRow
from storage.stages import StageRow
from tasks.context import STORE, RunContext
from tasks.stage import intact

Warnings = list[str]
Found = tuple[list[RunRow], dict[str, int]]
"""The runs of a store, and the last iteration that each has published."""
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "lustre", "glusterfs", "ceph", "beegfs", "gpfs")
DRAFTS = (".tmp-*", ".old-*", f".{STORE}.*")
AHEAD = 60.0  # seconds that a file's time may be ahead of the clock


def file_system(home: Path, facts: dict[str, Json], warnings: Warnings) -> None:
    """Its kind, and whether locks hold there."""
    facts["file_system"] = kind = _kind(home)
    if kind in NETWORK:
        warnings.append(
            f"home {home} is on a network file system ({kind}): locks may not hold there; keep it on a local disk"
        )


def _kind(home: Path) -> str | None:
    """The type of the longest mount point above the home."""
    with suppress(OSError):
        lines = [line.split() for line in Path("/proc/mounts").read_text(errors="replace").splitlines()]
        above = [(line[1].replace("\\040", " "), line[2]) for line in lines if len(line) > 2]
        fitting = [(len(place), kind) for place, kind in above if home.is_relative_to(place)]
        return max(fitting)[1] if fitting else None
    return None


def leftovers(home: Path, facts: dict[str, Json], warnings: Warnings) -> None:
    """Drafts that killed processes left, and files from the future."""
    drafts, ahead = [], []
    now = time.time()
    for path in _walk(home):
        if any(path.match(pattern) for pattern in DRAFTS):
            drafts.append(path)
        with suppress(OSError):
            if path.stat().st_mtime > now + AHEAD:
                ahead.append(path)
    facts["drafts"] = len(drafts)
    if drafts:
        warnings.append(f"drafts left by what was killed: {_some(drafts, home)} (agent-r1 gc removes them)")
    if ahead:
        warnings.append(f"files from the future: {_some(ahead, home)}: set the clock of this machine")


def _walk(home: Path) -> Iterator[Path]:
    """Files and folders of the home down to its checkpoints, and not what is inside of those."""
    for pattern in ("*", "indexes/*", "runs/*/*", "runs/*/checkpoints/*"):
        with suppress(OSError):
            yield from home.glob(pattern)


def _some(paths: list[Path], home: Path) -> str:
    shown = ", ".join(str(path.relative_to(home)) for path in sorted(paths)[:3])
    return shown + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def locks(home: Path, facts: dict[str, Json], warnings: Warnings) -> None:
    """Who works on runs of the home, and what was left running."""
    folders = sorted(path.parent for path in home.glob("runs/*/lock"))
    held = {folder.name: pid for folder in folders if (pid := holder(folder)) is not None}
    facts["in_use"] = {run: processes.described(pid) for run, pid in held.items()}
    near = processes.around(home)
    facts["processes"] = [str(each) for each in near]
    warnings += [f"left over: {each}: end it with kill {each.pid}" for each in processes.left_over(near)]


def store(home: Path, facts: dict[str, Json], warnings: Warnings, patience: float, deep: bool) -> Found:
    """The store: opened, read table by table, and what its receipts promise looked for."""
    path = home / STORE
    try:
        facts["schema_version"] = version = stored_version(path, patience)
        facts["locked_by"] = None
        if version < SCHEMA_VERSION:
            warnings.append(
                f"the store has schema version {version}: the next command that opens it makes it {SCHEMA_VERSION}, "
                "which programs older than this one refuse"
            )
            return [], {}
        with Store(path, patience).read() as con:
            broken = health.broken_tables(con)
            rows = [] if broken else runs.all_runs(con)
            lost = {} if broken else health.orphans(con)
            done = {row.run: stages.of_run(con, row.run) for row in rows}
    except StoreError as error:
        facts["locked_by"] = error.holder if isinstance(error, StoreLockedError) else None
        warnings.append(_with_holder(error))
        return [], {}
    warnings += [f"{path}: {line}; put back a copy of the store" for line in broken]
    if lost:
        counts = ", ".join(f"{count} in {table}" for table, count in lost.items())
        warnings.append(f"rows of runs that are gone: {counts} (agent-r1 gc removes them)")
    _statuses(home, rows, facts, warnings)
    for row in rows:
        _promises(home, row, done[row.run], warnings, deep)
    published = {
        run: max((each.iteration for each in each_done if each.stage == "publish"), default=0)
        for run, each_done in done.items()
    }
    return rows, published


def _with_holder(error: StoreError) -> str:
    """Who holds the lock, by its command, where it can be seen."""
    if not isinstance(error, StoreLockedError):
        return str(error)
    return str(error).replace(error.holder, processes.described(error.holder.removeprefix("process ")), 1)


def _statuses(home: Path, rows: list[RunRow], facts: dict[str, Json], warnings: Warnings) -> None:
    """How many runs stand how, and how those go on that did not end well."""
    statuses = {row.run: status(home, row) for row in rows}
    facts["runs"] = dict(Counter(statuses.values()))
    for odd in ("killed", "failed"):
        names = [row.run for row in rows if statuses[row.run] == odd and trajectories_of(row) is None]
        copies = [row.run for row in rows if statuses[row.run] == odd and trajectories_of(row) is not None]
        if names:
            warnings.append(f"{odd}: {', '.join(names)} (agent-r1 resume RUN goes on)")
        if copies:
            warnings.append(f"{odd}: {', '.join(copies)} (the same agent-r1 reannotate command goes on)")


def _promises(home: Path, row: RunRow, done: list[StageRow], warnings: Warnings, deep: bool) -> None:
    """The files that the newest receipt of each stage promises; with `deep` each byte of the kept checkpoints."""
    newest = {each.stage: each for each in done}
    for each in newest.values():
        if not intact(home, each.receipt):
            warnings.append(
                f"run {row.run}: files of {each.stage} {each.iteration} are missing or damaged "
                f"(agent-r1 resume {row.run} makes them again, or says what to restore)"
            )
    if not deep:
        return
    try:
        context = RunContext(home, row.run, parse(row.config, row.run))
    except ConfigError as error:
        warnings.append(str(error))
        return
    for number in checkpoints.finished(context.checkpoints):
        try:
            checkpoints.verify(context.checkpoint(number))
        except CheckpointError as error:
            warnings.append(f"run {row.run}: {error}")


def shown(home: Path, rows: list[RunRow], done: dict[str, int], facts: dict[str, Json], warnings: Warnings) -> None:
    """MLflow's file and Prefect's: whole, current, and as far as the store. `done` is the last published by run."""
    mlflow, prefect = home / "mlflow.db", home / "prefect" / "prefect.db"
    for path, again in ((mlflow, "with mlartifacts/"), (prefect, "with the rest of prefect/")):
        if not path.is_file():
            continue
        problem = health.sqlite_problem(path)
        if problem is not None:
            warnings.append(f"{path}: {problem}; it is only a view: delete it {again}, and runs make it again")
    facts["mlflow_schema"] = health.mlflow_revision(mlflow) if mlflow.is_file() else None
    if os.environ.get("MLFLOW_TRACKING_URI") or not mlflow.is_file():
        return
    last = {each.run_id: each.last for each in health.mlflow_shows(mlflow)}
    for row in rows:
        if row.mlflow_run_id in last and last[row.mlflow_run_id] < done.get(row.run, 0):
            warnings.append(
                f"run {row.run}: MLflow shows it up to iteration {last[row.mlflow_run_id]} of {done[row.run]}; "
                "its next iteration shows the rest"
            )
