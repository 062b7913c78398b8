"""export: a run's policy as a plain Hugging Face folder with a card, and its trajectories as Parquet.

What the card says is left to card.py. The folder is written under another name and renamed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from agent_r1.chat import load_tokenizer
from agent_r1.errors import CheckpointError, ConfigError
from flows.card import card
from flows.evaluation import CONFIG, best_checkpoint
from flows.home import find_home, stored_context, stored_row
from storage import checkpoints, exports, metrics
from storage.files import fsync_file, fsync_folder, sha256
from storage.runs import RunRow
from tasks.context import RunContext
from tasks.data import open_split

TRAJECTORIES = "trajectories"


def export(home: Path, target: str, folder: Path, trajectories: bool, say: Callable[[str], None]) -> Path:
    """Export RUN or RUN@I. ConfigError where the folder holds something, CheckpointError for a damaged checkpoint."""
    home, folder = find_home(home), folder.expanduser().resolve()
    run, at, number = target.partition("@")
    row, context = stored_row(home, run), stored_context(home, run)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: exists and is not empty: name a new folder, or remove it")
    if (home / "runs") in folder.parents:
        raise ConfigError(f"{folder}: is in the folder of the home's runs, which gc sweeps: name one elsewhere")
    iteration = _checkpoint(context, number) if at else best_checkpoint(context)
    digest = checkpoints.verify(context.checkpoint(iteration)).weights
    try:
        counts = _write(context, row, iteration, digest, folder, trajectories)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror or error}; name another folder") from error
    rows_written = f", {sum(counts.values())} rows of trajectories" if trajectories else ""
    say(f"{run}@{iteration} is in {folder}{rows_written}")
    return folder


def _write(
    context: RunContext, row: RunRow, iteration: int, digest: str, folder: Path, trajectories: bool
) -> dict[str, int]:
    """The folder, whole or not at all; how many rows of trajectories are in it, by purpose."""
    source, draft = context.checkpoint(iteration), folder.with_name(f".tmp-{folder.name}")
    if draft.exists():
        shutil.rmtree(draft)
    draft.parent.mkdir(parents=True, exist_ok=True)
    try:
        counts = _fill(context, row, iteration, digest, source, draft, trajectories)
        draft.replace(folder)  # an empty folder may stand there
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    fsync_folder(folder.parent)
    return counts


def _fill(
    context: RunContext, row: RunRow, iteration: int, digest: str, source: Path, draft: Path, trajectories: bool
) -> dict[str, int]:
    shutil.copytree(source / "policy", draft)
    if (source / "adapter").is_dir():
        shutil.copytree(source / "adapter", draft / "adapter")
    _check_copied(source, draft)
    with open_split(context, "validation", load_tokenizer(draft)) as world:
        tools = [tool.schema for tool in world.tools]
        _set_ends(draft / "generation_config.json", world.chat.end_ids)
    counts: dict[str, int] = {}
    with context.store.read() as con:
        rows = metrics.load(con, context.run)
        if trajectories:
            counts = exports.write_trajectories(con, context.run, draft / TRAJECTORIES)
    text = card(context, row, iteration, rows, digest, counts, tools, adapter=(draft / "adapter").is_dir())
    (draft / "README.md").write_text(text, encoding="utf-8")
    shutil.copyfile(context.folder / "config.yaml", draft / CONFIG)
    for path in draft.rglob("*"):
        fsync_file(path)
    return counts


def _checkpoint(context: RunContext, number: str) -> int:
    kept = checkpoints.finished(context.checkpoints)
    if not number.isdecimal() or int(number) not in kept:
        there = ", ".join(map(str, kept)) or "none"
        raise CheckpointError(f"{context.run}@{number}: no such checkpoint; {context.run} keeps {there}")
    return int(number)


def _check_copied(source: Path, draft: Path) -> None:
    """CheckpointError where a copied file is not what the checkpoint's manifest says."""
    for file in checkpoints.read_manifest(source).files:
        copy = draft / file.path.removeprefix("policy/")
        if file.path.startswith(("policy/", "adapter/")) and sha256(copy) != file.sha256:
            raise CheckpointError(f"{copy}: was not copied as it is in {source}")


def _set_ends(path: Path, end_ids: tuple[int, ...]) -> None:
    """Let plain `generate` and servers end a turn where the agent does."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known.pop("_from_model_config", None)
    known["eos_token_id"] = end_ids[0] if len(end_ids) == 1 else list(end_ids)
    path.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
