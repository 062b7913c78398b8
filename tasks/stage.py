"""The one rule of resuming: a stage whose receipt is stored, for the same inputs, with its files there, is not redone.

What a stage computes is left to the other tasks, when it runs to flows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agent_r1 import watching
from agent_r1.errors import CheckpointError, EngineLostError, RunError
from agent_r1.questions.records import Json
from storage import checkpoints, metrics, stages
from storage.database import DuckDBPyConnection as Connection
from storage.files import sha256
from storage.stages import StageRow
from tasks.context import RunContext
from tasks.versions import code_version, library_versions

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

__all__ = [
    "RETRY_SECONDS", "Connection", "Receipt", "RunContext", "Work", "input_hash", "intact", "run_stage", "server_lost"
]  # fmt: skip

Receipt: TypeAlias = Mapping[str, Json]
"""What a finished stage leaves for those that follow: ids, counts, paths. "files" maps the files that it promises,
relative to the home, to their sha256, and folders with a manifest to the manifest's digest. No times, no pids."""

log = logging.getLogger("agent_r1.stage")
RETRY_SECONDS = [5.0, 30.0]
"""How long Prefect waits before it tries a stage again whose vLLM server was lost."""


def server_lost(_task: object, _task_run: object, state: State[Any]) -> bool:
    """Whether a stage failed because a server that it needs is gone, which may come back; nothing else is tried again.

    A store that is locked is waited for already, what MLflow misses is shown later, and all other errors would be
    the same the next time.
    """
    try:
        state.result()
    except EngineLostError:
        return True
    except Exception:
        return False
    return False


@dataclass(frozen=True)
class Work:
    """What a stage did, not yet stored: its receipt, its rows as a function that saves them, its metrics by name."""

    receipt: dict[str, Json]
    save: Callable[[Connection], None] = lambda _: None
    metrics: Mapping[str, float] = field(default_factory=dict)


def run_stage(
    context: RunContext,
    stage: str,
    iteration: int,
    inputs: Mapping[str, Json],
    work: Callable[[], Work],
    shard: int = 0,
) -> Receipt:
    """The stored receipt where the stage is done, else that of `work()`, stored in one transaction with its rows.

    `inputs` are all that the result depends on beside the configuration: receipts of earlier stages, hashes of data.
    `work` runs with no connection open; files that its receipt names must be complete when it returns.
    RunError where the stage was done from other inputs, or where doing it again, because its files are gone, makes
    something else than what later stages were made from; no row is touched then.
    """
    hashed = input_hash(context, stage, iteration, shard, inputs)
    done = context.ledger.find(iteration, stage, shard)
    label = f"{stage} {iteration}.{shard}" if shard else f"{stage} {iteration}"
    if done is not None and done.input_hash == hashed:
        if context.ledger.superseded(done) or intact(context.home, done.receipt):
            log.info("%s: skipped, done before", label)
            return done.receipt
        log.warning("%s: done before, but its files are gone or changed: doing it again", label)
    elif done is not None:
        raise RunError(f"{label} was done from other inputs than there are now; {_do_again(context, iteration)}")
    watching.begin(stage, iteration, shard)
    started_at = datetime.now(UTC)
    result = work()
    if done is not None and result.receipt != done.receipt and context.ledger.followed(done):
        raise RunError(
            f"{label} was done again, because its files were gone or changed, and came out differently than what later "
            f"stages were made from: restore what it reads, or {_do_again(context, iteration)}"
        )
    with context.store.write() as con:
        result.save(con)
        row = stages.record(
            con,
            StageRow(
                run=context.run,
                iteration=iteration,
                stage=stage,
                shard=shard,
                receipt=result.receipt,
                input_hash=hashed,
                started_at=started_at,
                finished_at=datetime.now(UTC),
                pid=os.getpid(),
                code_version=code_version(),
                library_versions=library_versions(),
            ),
        )
        values = {**result.metrics, f"time/{stage}_seconds": stages.seconds(con, context.run, iteration, stage)}
        metrics.save(con, context.run, iteration, stage, values, row.finished_at)
    context.ledger.add(row)
    watching.end(stage, iteration, shard, (row.finished_at - row.started_at).total_seconds())
    return row.receipt


def _do_again(context: RunContext, iteration: int) -> str:
    return f"`agent-r1 resume {context.run} --from-iteration {iteration}` does it and all after it again"


def intact(home: Path, receipt: Receipt) -> bool:
    """Whether every file and folder that the receipt promises is there and unchanged.

    A folder with a manifest is believed where the manifest is the same and every file has its size.
    """
    files = receipt.get("files", {})
    if not isinstance(files, dict):
        raise ValueError(f"a receipt's files must map paths to digests, got {files!r}")
    return all(_digest(home / name) == digest for name, digest in files.items())


def _digest(path: Path) -> str | None:
    if path.is_dir():
        try:
            manifest = checkpoints.read_manifest(path)
        except CheckpointError:
            return None
        parts = ((path / file.path, file.size) for file in manifest.files)
        whole = all(part.is_file() and part.stat().st_size == size for part, size in parts)
        return manifest.digest if whole else None
    return sha256(path) if path.is_file() else None


def input_hash(context: RunContext, stage: str, iteration: int, shard: int, inputs: Mapping[str, Json]) -> str:
    """What a stage's record keeps of all that its result depends on, the configuration included."""
    everything = [context.config.identity, stage, iteration, shard, dict(inputs)]
    text = json.dumps(everything, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
