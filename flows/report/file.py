"""The report as a file: gathered, written in one go, and what to say about it."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from agent_r1.errors import ConfigError
from agent_r1.questions.records import Json
from flows.home import find_home
from flows.report.gather import gather
from flows.report.page import page
from flows.reports import View
from storage.files import replace_file

NAME = "report.html"


def write(home: Path, run: str, out: Path | None, count: int) -> View:
    """Write the page to `out`, or into the run's folder. ConfigError where that cannot be written."""
    home = find_home(home)
    path = home / "runs" / run / NAME if out is None else out.expanduser().absolute()
    if path.is_dir():
        raise ConfigError(f"--out {path}: is a folder, expected a file such as {path / NAME}")
    report = gather(home, run, count)
    text = page(report).encode()
    try:
        replace_file(path, lambda draft: _fill(draft, text))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; name another place with --out") from error
    sample = report.sample
    facts: dict[str, Json] = {
        "run": run, "page": str(path), "bytes": len(text), "trajectories": sample.shown, "stored": sample.stored
    }  # fmt: skip
    size = f"{len(text) / 1e6:.1f} MB, {sample.shown} of {sample.stored} trajectories"
    return View(facts, lambda console: console.print(Text(f"{path}\n{size}"), soft_wrap=True))


def _fill(draft: Path, text: bytes) -> None:
    draft.write_bytes(text)
