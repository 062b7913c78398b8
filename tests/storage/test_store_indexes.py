"""Indexes in a home: made once, checked, made again where they are damaged, by one process at a time."""

from __future__ import annotations

import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_r1.errors import DataError, StoreError
from storage.indexes import keep


class Writer:
    """Writes a file and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, folder: Path) -> None:
        self.times += 1
        (folder / "words").write_text("fog and rain")
        (folder / "more").mkdir()
        (folder / "more" / "scores").write_bytes(b"12345678")


def test_an_index_is_made_once(tmp_path: Path) -> None:
    write = Writer()
    folder = keep(tmp_path, "a", write)
    assert keep(tmp_path, "a", write) == folder == tmp_path / "indexes" / "a" / "index"
    assert (folder / "words").read_text() == "fog and rain"
    assert write.times == 1
    assert keep(tmp_path, "b", write) != folder
    assert write.times == 2


@pytest.mark.parametrize("damage", ["byte", "short", "gone", "no manifest"])
def test_a_damaged_index_is_made_again_with_a_warning(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    write = Writer()
    folder = keep(tmp_path, "a", write)
    scores = folder / "more" / "scores"
    if damage == "byte":
        scores.write_bytes(b"12345679")
    elif damage == "short":
        scores.write_bytes(b"1234")
    elif damage == "gone":
        scores.unlink()
    else:
        (folder / "manifest.json").unlink()
    keep(tmp_path, "a", write)
    assert write.times == 2
    assert scores.read_bytes() == b"12345678"
    assert "index is damaged: it is made again" in caplog.text


def test_a_failed_making_leaves_nothing_and_its_error_is_the_caller_s(tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        (folder / "words").write_text("half")
        raise DataError("corpus.jsonl: line 3")

    with pytest.raises(DataError, match="line 3"):
        keep(tmp_path, "a", broken)
    assert [each.name for each in (tmp_path / "indexes" / "a").iterdir()] == ["lock"]
    assert keep(tmp_path, "a", Writer()).is_dir()


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    draft = tmp_path / "indexes" / "a" / ".tmp-index"
    draft.mkdir(parents=True)
    (draft / "words").write_text("half")
    folder = keep(tmp_path, "a", Writer())
    assert not draft.exists()
    assert (folder / "words").read_text() == "fog and rain"


def test_a_full_disk_is_a_store_error(tmp_path: Path) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match=r"indexes/a/index: the search index cannot be written: .*No space left"):
        keep(tmp_path, "a", full)


def test_a_home_that_takes_no_folder_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "indexes").write_text("a file in its place")
    with pytest.raises(StoreError, match=r"indexes/a/index: the search index cannot be written: .*Not a directory"):
        keep(tmp_path, "a", Writer())


def test_who_needs_an_index_that_is_being_made_waits_for_it(tmp_path: Path) -> None:
    """Locks of two open files stand against each other in one process as they do in two."""
    write = Writer()
    (tmp_path / "indexes" / "a").mkdir(parents=True)
    with (tmp_path / "indexes" / "a" / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=keep, args=(tmp_path, "a", write), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        assert write.times == 0
    waiting.join(10)
    assert write.times == 1


def test_many_at_once_make_it_once(tmp_path: Path) -> None:
    write = Writer()
    with ThreadPoolExecutor(6) as pool:
        folders = set(pool.map(lambda _: keep(tmp_path, "a", write), range(6)))
    assert len(folders) == 1
    assert write.times == 1
