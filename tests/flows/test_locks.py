"""One process on a run at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_r1.errors import RunError
from flows.locks import holder, run_lock


def test_a_second_process_is_refused_naming_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    with run_lock(folder):
        with pytest.raises(RunError, match=f"run 'a' is in use by process {os.getpid()}"), run_lock(folder):
            pass
        assert holder(folder) == str(os.getpid())
    assert holder(folder) is None
    with run_lock(folder):
        pass


def test_a_run_without_a_folder_is_held_by_nobody(tmp_path: Path) -> None:
    assert holder(tmp_path / "none") is None


def test_a_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], close_fds=False)
        time.sleep(0.2)
    try:
        assert holder(tmp_path) is None
    finally:
        child.kill()
        child.wait()
