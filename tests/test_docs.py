"""What the pages on tools and environments of one's own show runs as it stands: code, configurations, messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent_r1 import own
from agent_r1.config import parse
from agent_r1.dataset import first_question
from agent_r1.questions.records import Json
from agent_r1.sections import RolloutConfig
from agent_r1.tools.concurrently import run

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("environments.md", "tools.md")


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


EVERY = [
    pytest.param(block, id=f"{page}-{number}") for page in PAGES for number, block in enumerate(blocks(page, "yaml"))
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory with the files whose names stand in the blocks' first lines."""
    names = []
    for page in PAGES:
        for block in blocks(page, "python"):
            (name,) = re.findall(r"^# (\w+)\.py$", block.partition("\n")[0])
            names.append(name)
            with (tmp_path / f"{name}.py").open("a", encoding="utf-8") as file:
                file.write(f"{block}\n\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("WEATHER_UNITS", "Celsius")
    yield
    own.close()
    own.environment_maker.cache_clear()
    own.reward_function.cache_clear()
    for name in names:
        sys.modules.pop(name, None)


def test_both_pages_have_python_and_a_configuration() -> None:
    assert all(blocks(page, language) for page in PAGES for language in ("python", "yaml"))


@pytest.mark.parametrize("block", EVERY)
def test_a_configuration_works_with_the_files_beside_it(block: str, files: None) -> None:
    """All that train tries before any work."""
    del files
    config = parse(yaml.safe_load(block), "the page")
    own.try_out(config, first_question(config))


def test_a_call_that_fails_is_shown_to_the_model_as_the_table_says(files: None) -> None:
    del files
    rows = re.findall(r"^\| ([^|]+) \| (`error: .*) \|$", (DOCS / "tools.md").read_text(encoding="utf-8"), re.MULTILINE)
    shown = {what: re.findall(r"`(.*?)`", says)[0].removesuffix(" ...") for what, says in rows}
    config = parse({"tools": ["my_tools:population"]}, "test")
    (population,) = own.own_tools(config)
    calls: dict[str, dict[str, Json]] = {
        "a parameter is missing": {},
        "one too many": {"city": "Bern", "cty": "Bern"},
        "a wrong type": {"city": "Bern", "year": "soon"},
        "the function raised": {"city": "Atlantis"},
    }
    for what, arguments in calls.items():
        result = population.call(arguments)
        assert not result.ok
        assert result.text.startswith(shown[what]), what
    assert population.call({"city": "Bern", "year": "2020"}).text == "134000"
    assert shown["no answer in time"] == f"error: no answer within {RolloutConfig().tool_timeout:g} seconds"


def test_the_weather_server_answers(files: None) -> None:
    del files
    (block,) = blocks("tools.md", "yaml")
    tools = own.own_tools(parse(yaml.safe_load(block), "the page"))
    assert [tool.name for tool in tools] == ["population", "clock", "temperature"]
    (answer,) = run([(tools[-1], {"city": "Bern"})], 20.0)
    assert answer.text == "21 degrees Celsius in Bern"
