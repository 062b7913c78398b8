"""docs/example.md as a newcomer follows it: the files it shows, the commands in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "example.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


def run(command: str, folder: Path) -> str:
    """What a command prints in the folder, run by this interpreter and its scripts."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_page_shows_its_files_and_its_commands() -> None:
    assert list(FILES) == ["make_questions.py", "shop.py", "shop.yaml"]
    assert [command.split()[:2] for command in COMMANDS] == [
        ["python", "make_questions.py"],
        ["agent-r1", "doctor"],
        ["agent-r1", "train"],
        ["agent-r1", "show"],
        ["agent-r1", "train"],
        ["agent-r1", "compare"],
    ]


@pytest.mark.slow
def test_the_example_runs_as_written_and_learns(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    printed = [run(command, tmp_path) for command in COMMANDS]
    scores = re.findall(r"^iteration +(\d+)/10 .*sampled EM +([\d.]+)  greedy EM +([\d.]+)", printed[2], re.MULTILINE)
    assert [int(number) for number, _, _ in scores] == list(range(11))
    first, last = (min(float(sampled), float(greedy)) for _, sampled, greedy in (scores[0], scores[-1]))
    assert last > first + 0.15
    assert "looked" in printed[3]
