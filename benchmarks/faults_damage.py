"""Faults of what lies in a home: checkpoints, the store, the databases of MLflow and Prefect."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb

from benchmarks.faults_kills import NEVER, RUN, train
from benchmarks.faults_named import COMMITTED, HALF, Case, Fault

PARTS = ("policy/model.safetensors", "value_head.safetensors", "trainer.pt", "policy/config.json", "manifest.json")


def flip(path: Path, share: float = 0.6) -> None:
    """Turn over one bit of a file."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0x10
    path.write_bytes(content)


def garble(path: Path, start: float, length: int = 64) -> None:
    """Write something else over a stretch of a file that begins at a share of its length."""
    content = bytearray(path.read_bytes())
    at = int(len(content) * start)
    content[at : at + length] = bytes((each * 37 + 11) % 256 for each in range(len(content[at : at + length])))
    path.write_bytes(content)


def cut(path: Path, share: float) -> None:
    """Leave only the beginning of a file."""
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def checkpoint(home: Path, iteration: int) -> Path:
    """A checkpoint of the run."""
    return home / "runs" / RUN / "checkpoints" / f"{iteration:05d}"


def last_flipped(case: Case) -> None:
    """A byte of the checkpoint that the next update starts from."""
    for part in PARTS:
        flip(checkpoint(case.fresh(HALF), 1) / part)
        ended = case.resume()
        if "checkpoint 1 is missing or damaged" not in ended.stdout:
            case.wrong.append(f"{part}: it does not say that it goes back: {ended.stdout[-300:]}")
        case.same(ended, part)


def last_missing(case: Case) -> None:
    """A file of the last checkpoint, or all of it."""
    for part in ("", *PARTS):
        path = checkpoint(case.fresh(HALF), 1) / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        case.same(case.resume(), part or "all of it")


def earlier_flipped(case: Case) -> None:
    """A byte of a checkpoint that a later one was made from: only who goes back to it reads it."""
    for part in PARTS[:3]:
        flip(checkpoint(case.fresh("finished"), 1) / part)
        says = ("checkpoint 1", "--from-iteration 1", part)
        case.clear(case.resume("--from-iteration", "2"), part, says)
        case.same(case.resume("--from-iteration", "1"), part)


def first_flipped(case: Case) -> None:
    """A byte of checkpoint 0, the reference of all updates."""
    for part in PARTS[:3]:
        flip(checkpoint(case.fresh(HALF), 0) / part)
        case.clear(case.resume(), part, ("checkpoint 0", "--from-iteration 0", part))
        case.same(case.resume("--from-iteration", "0"), part)


def first_missing(case: Case) -> None:
    """A file of checkpoint 0, or all of it: it can be made again."""
    for part in ("", *PARTS):
        path = checkpoint(case.fresh(HALF), 0) / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        case.same(case.resume(), part or "all of it")


def log_cut(case: Case) -> None:
    """The end of the store's write-ahead log is gone."""
    for share in (0.0, 0.1, 0.3, 0.6, 0.9, 0.999):
        _log(case, f"cut at {share:.1%}", lambda log, share=share: cut(log, share))


def log_garbled(case: Case) -> None:
    """The store's write-ahead log holds something else in some place."""
    for share in (0.0, 0.005, 0.5, 0.95):
        _log(case, f"garbled at {share:.1%}", lambda log, share=share: garble(log, share))


def _log(case: Case, what: str, damage: Callable[[Path], None]) -> None:
    home = case.fresh(COMMITTED)
    log = home / "store.duckdb.wal"
    if not log.exists() or not log.stat().st_size:
        case.wrong.append("no write-ahead log was left by the kill")
        return
    damage(log)
    ended = case.resume()
    case.either(ended, what, ("store.duckdb.wal",), lambda: log.rename(home / "aside"))
    (home / "aside").unlink(missing_ok=True)


def store_cut(case: Case) -> None:
    """The store is cut, or its header is something else."""
    for what, damage in (
        ("half", lambda path: cut(path, 0.5)),
        ("empty", lambda path: cut(path, 0.0)),
        ("header", lambda path: garble(path, 0.0, 8192)),
    ):
        home = case.fresh(HALF)
        shutil.copy(home / "store.duckdb", case.folder / "copy.duckdb")
        damage(home / "store.duckdb")
        (home / "store.duckdb.wal").unlink(missing_ok=True)
        case.clear(case.resume(), what, ("store.duckdb", "copy"))
        shutil.copy(case.folder / "copy.duckdb", home / "store.duckdb")
        case.same(case.resume(), f"{what}, put back")


def store_gone(case: Case) -> None:
    """The store is deleted: train begins anew, over the checkpoints that are there."""
    home = case.fresh(HALF)
    for path in home.glob("store.duckdb*"):
        path.unlink()
    case.clear(case.resume(), "resume", (f"no run '{RUN}'",))
    case.same(case.forks.run(NEVER, train(home)), "train")


def older(case: Case) -> None:
    """A store of schema version 1."""
    with duckdb.connect(str(case.fresh(HALF) / "store.duckdb")) as con:
        con.execute("ALTER TABLE turns DROP COLUMN reward")
        con.execute("UPDATE store SET schema_version = 1")
        con.execute("UPDATE runs SET schema_version = 1")
    case.same(case.resume(), "version 1")


def newer(case: Case) -> None:
    """A store of a schema version that is not known."""
    path = case.fresh(HALF) / "store.duckdb"
    for version in (99, 2):
        with duckdb.connect(str(path)) as con:
            con.execute("UPDATE store SET schema_version = ?", [version])
        if version == 99:
            case.clear(case.resume(), "version 99", ("store.duckdb", "newer", "update agent-r1"))
    case.same(case.resume(), "as it was")


def mlflow_gone(case: Case) -> None:
    """MLflow's database is deleted, with its artifacts or without; or those alone."""
    for names in (("mlflow.db", "mlartifacts"), ("mlflow.db",), ("mlartifacts",)):
        home = case.fresh(HALF)
        for name in names:
            path = home / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        case.same(case.resume(), " and ".join(names))


def mlflow_damaged(case: Case) -> None:
    """MLflow's database is cut, or something else in places."""
    for what, damage in (
        ("header", lambda path: garble(path, 0.0, 4096)),
        ("middle", lambda path: garble(path, 0.3, 200_000)),
        ("cut", lambda path: cut(path, 0.4)),
    ):
        path = case.fresh(HALF) / "mlflow.db"
        damage(path)
        case.either(case.resume(), what, ("mlflow.db", "delete"), lambda path=path: path.unlink())


def prefect_damaged(case: Case) -> None:
    """Prefect's database is cut, or something else in places, or not there."""
    for what, damage in (
        ("header", lambda path: garble(path, 0.0, 4096)),
        ("middle", lambda path: garble(path, 0.3, 200_000)),
        ("cut", lambda path: cut(path, 0.4)),
        ("gone", lambda path: path.unlink()),
    ):
        folder = case.fresh(HALF) / "prefect"
        for path in folder.glob("prefect.db-*"):
            path.unlink()
        damage(folder / "prefect.db")
        case.either(case.resume(), what, (str(folder), "delete"), lambda folder=folder: shutil.rmtree(folder))


DAMAGE = {
    "last checkpoint, flipped byte": Fault("goes back one iteration, same result", last_flipped),
    "last checkpoint, file missing": Fault("goes back one iteration, same result", last_missing),
    "earlier checkpoint, flipped byte": Fault("an error that says from where, then same result", earlier_flipped),
    "checkpoint 0, flipped byte": Fault("an error that says what to do, then same result", first_flipped),
    "checkpoint 0, file missing": Fault("made again, same result", first_missing),
    "write-ahead log cut": Fault("same result, or an error that says what to do, then same result", log_cut),
    "write-ahead log garbled": Fault("same result, or an error that says what to do, then same result", log_garbled),
    "store cut or garbled": Fault("an error that says what to do; put back: same result", store_cut),
    "store deleted": Fault("resume says there is no run; train: same result", store_gone),
    "store of an older schema": Fault("migrated, same result", older),
    "store of a newer schema": Fault("refused, untouched", newer),
    "MLflow deleted": Fault("same result, shown again", mlflow_gone),
    "MLflow damaged": Fault("same result, or an error that says what to do, then same result", mlflow_damaged),
    "Prefect damaged": Fault("same result, or an error that says what to do, then same result", prefect_damaged, True),
}
"""Faults of what lies in a home, by name."""
