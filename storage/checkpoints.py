"""Checkpoint folders, complete or not there: written under another name, synced, manifest last, renamed.

A folder holds policy/ (a plain Hugging Face folder), value_head.safetensors, trainer.pt and manifest.json. What goes
into them is left to the caller. A run has one writer, so drafts beside its checkpoints are left-overs of a kill.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError

from agent_r1.errors import CheckpointError
from storage.files import delete, fsync_file, fsync_folder, sha256

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = "policy/model.safetensors"
DRAFT, OLD = ".tmp-", ".old-"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of a checkpoint, its path relative to the folder, with / between parts."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint consists of, files by path."""

    files: tuple[FileRecord, ...]

    @property
    def digest(self) -> str:
        """A hash of all of it: paths and contents."""
        lines = "".join(f"{file.path} {file.sha256}\n" for file in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()

    @property
    def weights(self) -> str:
        """The sha256 of the policy's weights. CheckpointError where there are none."""
        for file in self.files:
            if file.path == WEIGHTS:
                return file.sha256
        raise CheckpointError(f"the checkpoint has no {WEIGHTS}")


def publish(folder: Path, write: Callable[[Path], None]) -> Manifest:
    """Let `write` fill a draft folder, then make it the checkpoint `folder`, in place of one that stands there.

    A kill at any moment leaves the old checkpoint, the new one or (between two renames) none, but never a part of one.
    CheckpointError where the disk fails.
    """
    try:
        return _publish(folder, write)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: the checkpoint cannot be written: {error}") from error


def _publish(folder: Path, write: Callable[[Path], None]) -> Manifest:
    folder.parent.mkdir(parents=True, exist_ok=True)
    clear_drafts(folder.parent)
    draft, old = folder.with_name(DRAFT + folder.name), folder.with_name(OLD + folder.name)
    draft.mkdir()
    write(draft)
    manifest = Manifest(tuple(_record(draft, path) for path in _sync_tree(draft)))
    text = json.dumps({"format": FORMAT, "files": [asdict(file) for file in manifest.files]}, indent=1)
    (draft / MANIFEST).write_text(text + "\n", encoding="utf-8")
    fsync_file(draft / MANIFEST)
    fsync_folder(draft)
    if folder.exists():
        folder.rename(old)
    draft.rename(folder)
    fsync_folder(folder.parent)
    delete(old)
    return manifest


def clear_drafts(folder: Path) -> None:
    """Delete what a kill left between the checkpoints of a folder that nobody else writes to."""
    for left_over in (*folder.glob(f"{DRAFT}*"), *folder.glob(f"{OLD}*")):
        delete(left_over)


def read_manifest(folder: Path) -> Manifest:
    """What the checkpoint should consist of. CheckpointError where it was never finished or the manifest is damaged."""
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"{folder}: no finished checkpoint (no {MANIFEST})")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, files = content["format"], tuple(FileRecord(**file) for file in content["files"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointError(f"{path}: damaged") from error
    if version != FORMAT:
        raise CheckpointError(f"{path}: format {version}, but this program knows format {FORMAT}")
    return Manifest(files)


def verify(folder: Path) -> Manifest:
    """Check every file against the manifest. CheckpointError names the first that is missing or damaged."""
    manifest = read_manifest(folder)
    for file in manifest.files:
        path = folder / file.path
        if not path.is_file():
            raise CheckpointError(f"{path}: missing from the checkpoint")
        if path.stat().st_size != file.size or sha256(path) != file.sha256:
            raise CheckpointError(f"{path}: damaged, not what the checkpoint's manifest says")
    return manifest


def finished(folder: Path) -> list[int]:
    """The iterations whose checkpoints in this folder were finished, in order; drafts and parts are passed over."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit() and (path / MANIFEST).is_file())


def remove(folder: Path) -> None:
    """Delete a checkpoint; a kill leaves no part of it under its name."""
    if folder.exists():
        draft = folder.with_name(DRAFT + folder.name)
        delete(draft)
        folder.rename(draft)
        delete(draft)


def retained(iterations: Sequence[int], keep: Sequence[str], best: int | None) -> set[int]:
    """Which checkpoints to keep, by `keep_checkpoints`: last, best, all, every:N. 0, the reference, is always kept."""
    kept = {0}
    for rule in keep:
        if rule == "all":
            kept.update(iterations)
        elif rule == "last":
            kept.update(sorted(iterations)[-1:])
        elif rule == "best":
            kept.update(() if best is None else (best,))
        elif rule.startswith("every:") and rule[6:].isdigit() and int(rule[6:]) > 0:
            kept.update(iteration for iteration in iterations if iteration % int(rule[6:]) == 0)
        else:
            raise ValueError(f"expected last, best, all or every:N, got {rule!r}")
    return kept & set(iterations)


def save_trainer(path: Path, state: Mapping[str, object]) -> None:
    """Save optimizer, random state and counters: tensors and plain values. CheckpointError where the disk fails.

    torch writes other bytes where the path is not ASCII, and a checkpoint's digest must not tell where it lies: the
    folder is then written through a link.
    """
    try:
        if str(path).isascii():
            torch.save(dict(state), path)
            return
        with tempfile.TemporaryDirectory(prefix="agent-r1-") as beside:
            link = Path(beside) / "folder"
            link.symlink_to(path.parent.absolute())
            torch.save(dict(state), link / path.name)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path}: cannot be written: {_first_line(error)}") from error


def load_trainer(path: Path) -> dict[str, object]:
    """Load what save_trainer saved, onto the CPU, tensors and plain values only. CheckpointError where that fails."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a boundary: torch meets broken bytes with errors of any kind
        raise CheckpointError(f"{path}: cannot be loaded: {_first_line(error)}") from error


def _sync_tree(folder: Path) -> list[Path]:
    """Sync everything below a folder and return its files in the order of their names."""
    paths = sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix())
    for path in paths:
        fsync_file(path)
    return [path for path in paths if path.is_file()]


def _record(folder: Path, path: Path) -> FileRecord:
    return FileRecord(path.relative_to(folder).as_posix(), path.stat().st_size, sha256(path))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
