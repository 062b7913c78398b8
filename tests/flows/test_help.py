"""The help of every command there is: fits into 80 columns, names all values, has an example that is right."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping

import pytest
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.main import get_group

from flows.cli import app, main
from flows.commands.help import EXAMPLES

COMMANDS: Mapping[str, TyperCommand] = {
    name: command for name, command in get_group(app).commands.items() if isinstance(command, TyperCommand)
}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns, without colours."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", None)


def lines(capsys: Captured, *arguments: str) -> list[str]:
    assert main([*arguments, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_longer_than_80_columns_and_nothing_is_cut(name: str, capsys: Captured) -> None:
    shown = lines(capsys, name)
    assert [line for line in shown if len(line) > 80 or "…" in line] == []
    text = "\n".join(shown)
    for ugly in ("<bool>", "<str>", "<int>", "<path>", "<list", "int range", "{"):
        assert ugly not in text, ugly


@pytest.mark.parametrize("name", COMMANDS)
def test_a_paragraph_of_several_lines_is_not_broken_in_the_middle_of_one(name: str) -> None:
    text = inspect.cleandoc(COMMANDS[name].help or "")
    several = [each.splitlines() for each in text.split("\n\n") if "\n" in each]  # which typer keeps as they are
    assert [line for lines in several for line in lines if len(line) > 78] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_one_line_for_each(name: str, capsys: Captured) -> None:
    shown = lines(capsys)
    assert [line for line in shown if len(line) > 80] == []
    (row,) = [place for place, line in enumerate(shown) if line.startswith(f"│ {name} ")]
    following = shown[row + 1]
    assert following.startswith("╰") or following[2] != " ", following


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_says_what_it_is_for(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert isinstance(parameter, TyperArgument | TyperOption)
        assert parameter.help, parameter.name
        assert "[" not in parameter.help, f"{parameter.name}: brackets are markup, and not shown"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_with_options_that_it_has(name: str, capsys: Captured) -> None:
    assert EXAMPLES.get(name), f"flows/commands/help.py: no example of {name}"
    options = {option for parameter in COMMANDS[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
    shown = [line.strip() for line in lines(capsys, name)]
    for example in EXAMPLES[name]:
        program, command, *arguments = shlex.split(example)
        assert (program, command) == ("agent-r1", name)
        assert {each.partition("=")[0] for each in arguments if each.startswith("--")} <= options, example
        assert example in shown, "it is wrapped"


def test_a_default_is_shown_once(capsys: Captured) -> None:
    text = "\n".join(lines(capsys, "train"))
    assert text.count("agent-r1-home") == 1
    assert text.count("AGENT_R1_HOME") == 1


def test_the_version_is_a_line(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("agent-r1 ")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["trian"], "'train'"),
        (["train", "--iteratons", "3"], "--iterations"),
        (["train", "quikstart"], "'quickstart'"),
        (["train", "--set", "ppo.epochz=2"], "'ppo.epochs'"),
        (["train", "--set", "clip_low=2"], "'ppo.clip_low'"),
    ],
)
def test_what_is_mistyped_is_guessed(given: list[str], meant: str, capsys: Captured) -> None:
    assert main(given) == 2
    error = capsys.readouterr().err
    assert "id you mean" in error or "Possible options" in error
    assert meant in error
