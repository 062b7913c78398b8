"""Where a run lives: its home, name and configuration, the paths that follow, and what is finished.

What happens there is left to the tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agent_r1.config import Config
from storage import stages
from storage.database import Store
from storage.stages import StageRow

STORE = "store.duckdb"
STAGES = ("prepare", "warm_start", "rollout", "annotate", "update", "evaluate", "test", "publish")
"""The boxes of the DAG, in the order in which an iteration meets them."""


class Ledger:
    """The finished stages of one run, read once: a run has one process at a time, so nobody else adds to them.

    Not a dataclass, because Prefect walks through those with every task.
    """

    def __init__(self, rows: list[StageRow]) -> None:
        self._rows: dict[tuple[int, str, int], StageRow] = {}
        self._latest: dict[str, int] = {}
        for row in rows:
            self.add(row)

    @property
    def rows(self) -> list[StageRow]:
        """Every record."""
        return list(self._rows.values())

    def find(self, iteration: int, stage: str, shard: int = 0) -> StageRow | None:
        """The stage's record, None where it is not done."""
        return self._rows.get((iteration, stage, shard))

    def add(self, row: StageRow) -> None:
        """Remember a stage that was just recorded."""
        self._rows[row.iteration, row.stage, row.shard] = row
        self._latest[row.stage] = max(row.iteration, self._latest.get(row.stage, row.iteration))

    def forget_from(self, iteration: int) -> None:
        """Forget stages that were just deleted: those of the iteration and later."""
        kept = [row for row in self._rows.values() if row.iteration < iteration]
        self._rows.clear()
        self._latest.clear()
        for row in kept:
            self.add(row)

    def followed(self, row: StageRow) -> bool:
        """Whether a stage that comes after this one in the DAG is finished: it may have been made from it."""
        return any(_place(other) > _place(row) for other in self._rows.values())

    def superseded(self, row: StageRow) -> bool:
        """Whether a later iteration did the same stage: then nothing reads this one's files, and they may be gone."""
        return self._latest[row.stage] > row.iteration


def _place(row: StageRow) -> tuple[int, int]:
    return row.iteration, STAGES.index(row.stage)


@dataclass(frozen=True)
class RunContext:
    """What every task is given. Pure paths and settings; opening connections is left to `store`."""

    home: Path
    run: str
    config: Config
    tracking_uri: str | None = None
    """An MLflow server, None for the home's own files."""

    @property
    def store(self) -> Store:
        """The store of the home, waiting for locks as configured."""
        return Store(self.home / STORE, self.config.store.lock_wait)

    @property
    def folder(self) -> Path:
        """All files of this run."""
        return self.home / "runs" / self.run

    @property
    def data(self) -> Path:
        """What prepare leaves for the tools: databases and indexes."""
        return self.folder / "data"

    @property
    def checkpoints(self) -> Path:
        """The folder of all checkpoints."""
        return self.folder / "checkpoints"

    def checkpoint(self, iteration: int) -> Path:
        """The folder of one checkpoint."""
        return self.checkpoints / f"{iteration:05d}"

    def name(self, path: Path) -> str:
        """A path of this home as receipts name it: relative to the home, so that a home can be moved."""
        return path.relative_to(self.home).as_posix()

    @cached_property
    def ledger(self) -> Ledger:
        """The finished stages of this run as this process found them, kept up to date by run_stage."""
        if not self.store.path.exists():
            return Ledger([])
        with self.store.read() as con:
            return Ledger(stages.of_run(con, self.run))
