"""Checkpoints: complete or not there, checked against their manifest, kept by the rule."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from agent_r1.errors import CheckpointError
from storage import checkpoints

ROOT = Path(__file__).parents[2]


def writer(weights: bytes = b"weights", note: bytes = b"note") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "policy").mkdir()
        (folder / "policy" / "model.safetensors").write_bytes(weights)
        (folder / "trainer.pt").write_bytes(note)

    return write


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_published_checkpoint_is_complete_and_verified(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "00003"
    manifest = checkpoints.publish(folder, writer())
    assert names(folder) == ["manifest.json", "policy", "policy/model.safetensors", "trainer.pt"]
    assert checkpoints.verify(folder) == checkpoints.read_manifest(folder) == manifest
    assert manifest.weights == hashlib.sha256(b"weights").hexdigest()
    assert [(file.path, file.size) for file in manifest.files] == [("policy/model.safetensors", 7), ("trainer.pt", 4)]


def test_the_digest_is_of_every_file(tmp_path: Path) -> None:
    first = checkpoints.publish(tmp_path / "1", writer())
    same = checkpoints.publish(tmp_path / "2", writer())
    other = checkpoints.publish(tmp_path / "3", writer(note=b"other"))
    assert first.digest == same.digest != other.digest
    assert first.weights == other.weights


def test_publishing_again_replaces_the_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "00001"
    checkpoints.publish(folder, writer())
    manifest = checkpoints.publish(folder, writer(weights=b"new"))
    assert checkpoints.verify(folder) == manifest
    assert (folder / "policy" / "model.safetensors").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["00001"]


class Killed(BaseException):
    """Stands for a kill: nothing in checkpoints catches it or cleans up after it."""


def left_nothing_usable(parent: Path, folder: Path) -> bool:
    with pytest.raises(CheckpointError, match="no finished checkpoint"):
        checkpoints.verify(folder)
    drafts = [path.name for path in parent.iterdir()]
    checkpoints.publish(parent / "00001", writer())
    return drafts == [".tmp-00002"] and [path.name for path in parent.iterdir()] == ["00001"]


@pytest.mark.parametrize("moment", ["a file", "the manifest", "the rename"])
def test_a_kill_at_any_moment_leaves_no_part_of_a_checkpoint(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Killed

    def write(folder: Path) -> None:
        writer()(folder)
        if moment == "a file":
            die()

    with monkeypatch.context() as patched:
        if moment == "the manifest":
            patched.setattr(Path, "write_text", die)
        elif moment == "the rename":
            patched.setattr(Path, "rename", die)
        with pytest.raises(Killed):
            checkpoints.publish(tmp_path / "00002", write)
    assert left_nothing_usable(tmp_path, tmp_path / "00002")


def test_a_process_that_dies_while_it_writes_leaves_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from storage import checkpoints
def write(folder):
    (folder / "a").write_text("a")
    os._exit(9)
checkpoints.publish(Path({str(tmp_path / "00002")!r}), write)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (9, "")
    assert left_nothing_usable(tmp_path, tmp_path / "00002")


def test_a_writer_that_fails_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "00001"
    before = checkpoints.publish(folder, writer())

    def fail(draft: Path) -> None:
        (draft / "policy").mkdir()
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match=r"00001: the checkpoint cannot be written.*No space left"):
        checkpoints.publish(folder, fail)
    assert checkpoints.verify(folder) == before


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "00001"
    checkpoints.publish(folder, writer())
    (folder / "policy" / "model.safetensors").write_bytes(b"weighty")
    with pytest.raises(CheckpointError, match=r"policy/model.safetensors: damaged"):
        checkpoints.verify(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "00001"
    checkpoints.publish(folder, writer())
    (folder / "trainer.pt").unlink()
    with pytest.raises(CheckpointError, match=r"trainer.pt: missing"):
        checkpoints.verify(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "files": [{"path": "a"}]}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest.json: damaged"):
        checkpoints.read_manifest(tmp_path)


def test_a_manifest_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 2, "files": []}')
    with pytest.raises(CheckpointError, match="format 2, but this program knows format 1"):
        checkpoints.read_manifest(tmp_path)


def test_what_was_never_finished_is_passed_over(tmp_path: Path) -> None:
    for iteration in (10, 2):
        checkpoints.publish(tmp_path / f"{iteration:05}", writer())
    (tmp_path / "00011").mkdir()
    (tmp_path / "00012").write_text("a file")
    (tmp_path / ".tmp-00013").mkdir()
    assert checkpoints.finished(tmp_path) == [2, 10]
    assert checkpoints.finished(tmp_path / "nowhere") == []
    for name in ("00011", "00012", "00014"):
        with pytest.raises(CheckpointError, match=name):
            checkpoints.read_manifest(tmp_path / name)


def test_a_checkpoint_without_weights_says_so(tmp_path: Path) -> None:
    manifest = checkpoints.publish(tmp_path / "1", lambda _: None)
    with pytest.raises(CheckpointError, match=r"policy/model.safetensors"):
        _ = manifest.weights


def test_removing_leaves_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    checkpoints.publish(tmp_path / "00001", writer())
    for _ in range(2):
        checkpoints.remove(tmp_path / "00001")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keep", "best", "kept"),
    [
        (("last",), None, {0, 7}),
        (("last", "best"), 3, {0, 3, 7}),
        (("last", "best"), None, {0, 7}),
        (("last", "best"), 6, {0, 7}),  # the best one is gone already
        (("last", "every:2"), None, {0, 2, 4, 7}),
        (("all",), None, {0, 1, 2, 3, 4, 5, 7}),
    ],
)
def test_retention_follows_the_rule_and_always_keeps_the_reference(
    keep: tuple[str, ...], best: int | None, kept: set[int]
) -> None:
    assert checkpoints.retained([5, 7, 0, 1, 2, 3, 4], keep, best) == kept


def test_retention_of_nothing_is_nothing_and_an_unknown_rule_is_an_error() -> None:
    assert checkpoints.retained([], ["last"], 3) == set()
    with pytest.raises(ValueError, match="every:0"):
        checkpoints.retained([1], ["every:0"], None)


def test_the_trainers_state_comes_back_without_pickle(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter])
    parameter.sum().backward()
    optimizer.step()
    state = {"optimizer": optimizer.state_dict(), "random": torch.get_rng_state(), "updates": 7, "note": "x"}
    checkpoints.save_trainer(tmp_path / "trainer.pt", state)
    loaded = checkpoints.load_trainer(tmp_path / "trainer.pt")
    assert (loaded["updates"], loaded["note"]) == (7, "x")
    assert torch.equal(torch.as_tensor(loaded["random"]), torch.get_rng_state())
    optimizer.load_state_dict(loaded["optimizer"])  # type: ignore[arg-type]


def test_the_same_state_makes_the_same_file(tmp_path: Path) -> None:
    state = {"optimizer": {"step": torch.tensor(3.0)}, "updates": 7}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        checkpoints.save_trainer(tmp_path / name / "trainer.pt", state)
    assert (tmp_path / "a" / "trainer.pt").read_bytes() == (tmp_path / "b" / "trainer.pt").read_bytes()


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return print, ("executed",)


@pytest.mark.parametrize("kind", ["code", "text", "empty", "missing"])
def test_a_trainer_file_that_is_no_plain_state_is_refused(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trainer.pt"
    if kind == "code":
        torch.save({"a": Evil()}, path)
    elif kind != "missing":
        path.write_text("hello" if kind == "text" else "")
    with pytest.raises(CheckpointError, match=r"trainer.pt: cannot be loaded") as caught:
        checkpoints.load_trainer(path)
    assert "\n" not in str(caught.value)
    assert "executed" not in capsys.readouterr().out


def test_a_checkpoint_s_bytes_do_not_tell_where_it_lies(tmp_path: Path) -> None:
    written = []
    for name in ("home", "größer \u5bb6"):
        (tmp_path / name).mkdir()
        checkpoints.save_trainer(tmp_path / name / "trainer.pt", {"steps": 3, "state": torch.arange(4)})
        written.append((tmp_path / name / "trainer.pt").read_bytes())
    assert written[0] == written[1]
