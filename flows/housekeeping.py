"""gc: what a home keeps without need, and runs that are deleted by name. Each step can be killed and done again.

Compacting the store is left to storage/compaction.py, what retention keeps to tasks/retention.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent_r1.errors import ConfigError, RunError, StoreError
from agent_r1.questions.records import Json
from agent_r1.tools.search_index import index_name
from flows.home import EVALUATES, TRAJECTORIES_OF, all_rows, check_run_name, find_home, noted, stored_context
from flows.locks import NAME as LOCK
from flows.locks import holder, run_lock
from flows.reports import View
from flows.start import START_FROM
from storage import checkpoints, compaction, metrics, stages
from storage.database import Store
from storage.files import delete, folder_lock
from storage.runs import RunRow
from tasks.context import STORE, RunContext
from tasks.retention import unkept

DRAFTS = (f"{checkpoints.DRAFT}*", f"{checkpoints.OLD}*")
STORE_DRAFT = re.compile(rf"\.{re.escape(STORE)}\.(\d+)(\.wal)?")


@dataclass
class Swept:
    """What was, or would be, removed: rows of (kind, what, bytes); and what the user should know, a line each."""

    dry: bool
    rows: list[tuple[str, str, int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def remove(self, kind: str, path: Path, home: Path) -> None:
        """Remove a file or folder, under a draft's name first, so that a kill leaves no part of it under its own."""
        self.rows.append((kind, path.relative_to(home).as_posix(), _size(path)))
        if self.dry:
            return
        draft = path if path.name.startswith(".tmp-") else path.with_name(f".tmp-{path.name}")
        if draft != path:
            delete(draft)
            path.rename(draft)
        delete(draft)


def gc(home: Path, delete: Sequence[str], dry: bool) -> View:
    """Sweep a home, and delete runs. RunError, before anything is deleted, for a run that cannot be."""
    home = find_home(home)
    swept, store = Swept(dry), home / STORE
    size = store.stat().st_size if store.exists() else 0
    named = list(dict.fromkeys(delete))
    if not store.exists() and not named:
        raise ConfigError(f"home {home}: has no {STORE}, which says what its runs keep: put it back, or name the home")
    for run in named:
        _check_deletable(home, run, named)
    for run in named:
        _delete_run(home, run, named, swept)
    if not store.exists():
        return _view(home, swept)
    for row in all_rows(home):
        if row.run not in named:
            _sweep_run(home, row.run, swept)
    _sweep_folders(home, named, swept)
    _sweep_indexes(home, named, swept)
    _sweep_drafts(home, swept)
    _compact(home, named, size, swept)
    return _view(home, swept)


def _check_deletable(home: Path, run: str, named: Sequence[str]) -> None:
    rows = {row.run: row for row in all_rows(home)}
    folder = home / "runs" / check_run_name(run)
    if run not in rows and not folder.exists():
        raise RunError(f"there is no run {run!r} in {home}; runs are: {', '.join(rows) or 'none'}")
    if (process := holder(folder)) is not None:
        raise RunError(f"run {run!r} is in use by process {process}: stop it (Ctrl-C or kill {process}), then again")
    for other in _dependents(rows, run):
        if other.run in named:
            continue
        if noted(other, TRAJECTORIES_OF):  # which are shown by the tokenizer of the run that sampled them
            raise RunError(f"run {other.run!r} holds trajectories of {run!r} and is shown by it: delete it, too")
        if noted(other, START_FROM) and stored_context(home, other.run).ledger.find(0, "warm_start") is None:
            raise RunError(f"run {other.run!r} starts from {noted(other, START_FROM)} and has not begun: it needs it")


def _dependents(rows: dict[str, RunRow], run: str) -> list[RunRow]:
    """The runs that began from this one, hold its trajectories, or its answers."""

    def of(row: RunRow) -> bool:
        notes = (noted(row, START_FROM), noted(row, TRAJECTORIES_OF), noted(row, EVALUATES))
        return any(note is not None and (note == run or note.startswith(f"{run}@")) for note in notes)

    return [row for row in rows.values() if of(row)]


def _delete_run(home: Path, run: str, named: Sequence[str], swept: Swept) -> None:
    """A run's MLflow run, rows, then its folder. Killed in between, the same again, or any gc, ends it."""
    rows = {row.run: row for row in all_rows(home)}
    folder = home / "runs" / run
    for other in _dependents(rows, run):
        if other.run not in named:
            swept.lines.append(f"run {other.run} {_what_is_lost(other, run)}")
    with _held(folder, swept.dry):
        if run in rows:
            context = stored_context(home, run)
            if rows[run].mlflow_run_id is not None:
                swept.rows.append(("MLflow run", f"{rows[run].mlflow_run_id} (to MLflow's trash)", 0))
            others = [stored_context(home, row.run) for row in rows.values() if row.run not in named]
            with context.store.read() as con:
                count = compaction.count_rows(con, run) + 1
            swept.rows.append(("rows", f"{count} of run {run}", 0))
            if not swept.dry:
                _to_trash(context, rows[run].mlflow_run_id)
            if not swept.dry:
                with context.store.write() as con:  # nobody adds questions meanwhile
                    kept = [question for other in others for question in _asked(other.data)]
                    compaction.remove_run(con, run, _asked(context.data), kept)
        if folder.exists():
            swept.remove("run", folder, home)


def _what_is_lost(other: RunRow, run: str) -> str:
    if noted(other, START_FROM):
        return f"started from {run}: it has its own copy of that checkpoint and stays whole"
    return f"holds answers of {run}: it stays whole, and cannot be gone on with"


def _to_trash(context: RunContext, mlflow_run_id: str | None) -> None:
    if mlflow_run_id is not None:
        from storage.tracking import Tracker

        Tracker(context.home, context.tracking_uri, context.config.tracking.experiment).discard(mlflow_run_id)


def _sweep_run(home: Path, run: str, swept: Swept) -> None:
    """A run's checkpoints that it need not keep, and its drafts; nothing of one that a process works on."""
    context = stored_context(home, run)
    if not context.folder.is_dir():
        swept.lines.append(f"run {run} has rows and no folder: agent-r1 gc --delete {run} removes them")
        return
    if (process := holder(context.folder)) is not None:
        swept.lines.append(f"run {run} is in use by process {process}: left alone")
        return
    with _held(context.folder, swept.dry):
        with context.store.read() as con:
            done, rows = stages.of_run(con, run), metrics.load(con, run)
        published = max((row.iteration for row in done if row.stage == "publish"), default=0)
        for iteration in unkept(context, [row for row in rows if row.iteration <= published], published):
            swept.remove("checkpoint", context.checkpoint(iteration), home)
        for draft in _drafts(context.folder):
            swept.remove("draft", draft, home)


def _sweep_folders(home: Path, named: Sequence[str], swept: Swept) -> None:
    """Folders of runs that have no row: a kill came between, or a run ended before it began.

    Never a checkpoint, whose rows may be in a store that was moved away, and nothing that is not ours.
    """
    known = {row.run for row in all_rows(home)}
    folders = sorted((home / "runs").iterdir()) if (home / "runs").is_dir() else []
    for folder in folders:
        if not folder.is_dir() or folder.name in (*known, *named) or folder.name.startswith("."):
            continue
        if (process := holder(folder)) is not None:
            swept.lines.append(f"run {folder.name} is in use by process {process}: left alone")
            continue
        ours = any((folder / name).is_file() for name in ("config.yaml", LOCK))
        if not ours or checkpoints.finished(folder / "checkpoints"):
            what = "has checkpoints and no rows" if ours else "is no run's"
            swept.lines.append(f"{folder} {what}: left alone; agent-r1 gc --delete {folder.name} removes it")
            continue
        with _held(folder, swept.dry):
            if folder.name not in {row.run for row in all_rows(home)}:  # now that it is held
                swept.remove("run without rows", folder, home)


def _sweep_indexes(home: Path, deleted: Sequence[str], swept: Swept) -> None:
    """Search indexes of no run. Where a run is being trained it may be about to search one: all stay then."""
    found = sorted(path for path in (home / "indexes").glob("*") if path.is_dir() and path.name[0] != ".")
    rows = [row for row in all_rows(home) if row.run not in deleted]
    if not found or any(holder(home / "runs" / row.run) is not None for row in rows):
        return
    used = {name for row in rows for name in _indexes(stored_context(home, row.run))}
    for path in found:
        if path.name not in used and holder(path) is None:
            swept.remove("index", path, home)


def _sweep_drafts(home: Path, swept: Swept) -> None:
    """Drafts beside runs: of the home, its indexes and experiments."""
    for path in sorted(home.iterdir()):
        made = STORE_DRAFT.fullmatch(path.name)
        if made is not None and not Path(f"/proc/{made[1]}").exists():
            swept.remove("draft", path, home)
    with folder_lock(home):  # of a copy that another process makes
        for path in sorted(home.glob(f".tmp-{STORE}*")):
            swept.remove("draft", path, home)
    for folder in (home / "runs", *(home / "indexes").glob("*"), *(home / "experiments").glob("*")):
        if folder.is_dir() and holder(folder) is None:  # an index has a lock of the same name
            found = [path for pattern in DRAFTS for path in sorted(folder.glob(pattern))]
            for draft in found if folder.parent.name != "experiments" else _drafts(folder):
                swept.remove("draft", draft, home)


def _drafts(folder: Path) -> list[Path]:
    found = sorted({path for pattern in DRAFTS for path in folder.rglob(pattern)})
    return [path for path in found if not any(above in found for above in path.parents)]


def _compact(home: Path, deleted: Sequence[str], size: int, swept: Swept) -> None:
    """Give back the space of deleted rows, where runs were deleted or the file has free blocks worth it."""
    store = Store(home / STORE)
    if not store.path.exists():
        return
    free = compaction.free_bytes(store)
    if not deleted and free < max(compaction.WORTH, size // 10):
        return
    if swept.dry:
        with store.read() as con:
            rows, every = sum(compaction.count_rows(con, run) for run in deleted), compaction.count_rows(con)
        about = free + (size - free) * rows // max(every, 1)
        swept.rows.append(("store", f"{STORE}: about so much, by the number of rows", about))
        return
    try:
        compaction.compact(store)
    except StoreError as error:
        swept.lines.append(str(error))
    swept.rows.append(("store", f"{STORE}: space of deleted rows", max(size - store.path.stat().st_size, 0)))


def _indexes(context: RunContext) -> set[str]:
    """The names of the indexes that a run searches."""
    prepared = context.ledger.find(0, "prepare")
    if prepared is None:
        return set()
    files, corpus = prepared.receipt.get("files"), prepared.receipt.get("corpus_sha256")
    hashes = [corpus, *(files.values() if isinstance(files, dict) else ())]
    return {index_name(each) for each in hashes if isinstance(each, str)}


def _asked(data: Path) -> list[str]:
    """The ids of the questions of all splits of a run."""
    found = sorted(data.glob("*/questions.txt"))
    return [line for path in found for line in path.read_text(encoding="utf-8").splitlines()]


@contextmanager
def _held(folder: Path, dry: bool) -> Iterator[None]:
    """Hold a run's lock, but for a look; a folder that is not there is not made."""
    if dry or not folder.is_dir():
        yield
        return
    with run_lock(folder):
        yield


def _size(path: Path) -> int:
    if path.is_file() or path.is_symlink():
        return path.lstat().st_size
    found = [Path(above) / name for above, _, names in os.walk(path) for name in names]
    return sum(each.lstat().st_size for each in found)


def _view(home: Path, swept: Swept) -> View:
    total = sum(size for _, _, size in swept.rows)
    rows: list[Json] = [{"kind": kind, "what": what, "bytes": size} for kind, what, size in swept.rows]
    by_kind: dict[str, Json] = {}
    for kind in dict.fromkeys(row[0] for row in swept.rows):
        by_kind[kind] = sum(size for each, _, size in swept.rows if each == kind)
    everything: dict[str, Json] = {
        "home": str(home), "dry_run": swept.dry, "removed": rows, "bytes": by_kind, "total": total,
        "notes": [*swept.lines],
    }  # fmt: skip

    def draw(console: Console) -> None:
        for kind, what, size in swept.rows:
            console.print(Text(f"{kind:17} {size / 1e6:9.1f} MB  {what}"), soft_wrap=True)
        for line in swept.lines:
            console.print(Text(f"note: {line}"), soft_wrap=True)
        verb = "would free" if swept.dry else "freed"
        console.print(Text(f"{verb} {total / 1e6:.1f} MB" if swept.rows else f"nothing to drop in {home}"))

    return View(everything, draw)
