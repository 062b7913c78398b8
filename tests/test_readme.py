"""What the README and the pages in docs say is there: files, commands, options, targets, keys, tables."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_group

from agent_r1.config import Config
from agent_r1.trajectory import Annotation, Credit
from flows.cli import app
from storage import annotations
from storage.database import Store

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
KEYS = frozenset(Config().flat())
SECTIONS = {key.partition(".")[0] for key in KEYS if "." in key}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text_of(README), re.DOTALL)


def commands(program: str) -> list[list[str]]:
    """Every call of a program in code, block or span, of any page: its arguments."""
    found = []
    for page in PAGES:
        text = text_of(page)
        fenced = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        calls = [shlex.split(line, comments=True) for line in [*fenced, *spans] if line.startswith(f"{program} ")]
        found += [call[1:] for call in calls]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_linked_file_is_there(page: Path) -> None:
    targets = [link for link in re.findall(r"\]\(([^)#]+)\)", text_of(page)) if "://" not in link]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_command_and_option_is_there() -> None:
    known = get_group(app).commands
    calls = commands("agent-r1")
    assert {call[0] for call in calls} == set(known)
    for name, *arguments in calls:
        options = {option for each in known[name].params for option in (*each.opts, *each.secondary_opts)}
        assert {argument for argument in arguments if argument.startswith("--")} <= options, name


def test_every_make_target_and_variable_is_there() -> None:
    makefile = text_of(ROOT / "Makefile")
    for target, *variables in commands("make"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for variable in variables:
            name = variable.partition("=")[0]
            assert re.search(rf"^{name} \?=", makefile, re.MULTILINE), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_configuration_key_is_there(page: Path) -> None:
    spans = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", text_of(page))
    named = {span for span in spans if span.partition(".")[0] in SECTIONS and not (ROOT / span).exists()}
    files = {span for span in named if span.endswith((".duckdb", ".duckdb.wal", ".yaml", ".json"))}
    assert named - files <= KEYS


def test_every_key_that_a_command_sets_is_there() -> None:
    calls = [call for call in commands("agent-r1") if "--set" in call]
    settings = [after for call in calls for before, after in pairwise(call) if before == "--set"]
    assert settings
    assert {setting.partition("=")[0] for setting in settings} <= KEYS


def test_the_page_of_configuration_keys_is_current() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "configuration.py"))["page"]()
    assert text_of(ROOT / "docs" / "configuration.md") == page, "run: make docs"


def test_the_select_shows_each_token_with_its_mask_reward_and_advantage(tmp_path: Path) -> None:
    store = home_with_a_trajectory(tmp_path)
    with store.read() as con:
        rows = con.execute(blocks("sql")[0]).fetchall()
    assert rows == [
        (0, 1, 5, False, 0.0, 0.0, 0.0),
        (0, 2, 6, True, 0.0, 0.5, -1.0),
        (0, 3, 7, True, 1.0, 0.25, 2.0),
    ]


def test_the_python_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home_with_a_trajectory(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], str(README), "exec"), {})
    assert "iteration" in capsys.readouterr().out


def home_with_a_trajectory(folder: Path) -> Store:
    """A store with two annotated trajectories of the quickstart's first iteration, and one of another run."""
    store = Store(folder / "agent-r1-home" / "store.duckdb")
    with store.write() as con:
        for run, places in (("quickstart", "01"), ("another", "0")):
            names = [f"{run}/1/train/q/{place}" for place in places]
            mask, zeros = (False, True, True), (0.0, 0.0, 0.0)
            marked = [Annotation(name, 0, (5, 6, 7), mask, zeros, (0.0, 0.0, 1.0), {}) for name in names]
            annotations.save(con, run, 1, marked)
            credited = [Credit(name, 0, (0.0, 0.5, 0.25), (0.0, -1.0, 2.0), (0.0, 0.0, 0.0)) for name in names]
            annotations.save_credits(con, run, 1, credited)
    return store


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_says_where_it_was_written(page: Path) -> None:
    assert re.findall(r"/work/|\.library|shared/|/tmp/|/root/", text_of(page)) == []


def test_the_configuration_page_is_written_from_the_checkout_that_it_is_in(tmp_path: Path) -> None:
    """Another agent_r1, with one key, while this one is on sys.path."""
    for folder in ("docs", "agent_r1"):
        (tmp_path / folder).mkdir()
    script = shutil.copy(ROOT / "docs" / "configuration.py", tmp_path / "docs")
    schema = {"properties": {"own_key": {"type": "string", "default": ""}}}
    (tmp_path / "agent_r1" / "__init__.py").touch()
    (tmp_path / "agent_r1" / "config.py").write_text(
        f"class Config:\n    model_json_schema = staticmethod(lambda: {schema})\n"
    )
    subprocess.run([sys.executable, script], env={"PYTHONPATH": str(ROOT)}, cwd=ROOT, check=True)
    assert "`own_key`" in text_of(tmp_path / "docs" / "configuration.md")
