"""What a command says while it works: JSON lines, nothing, plain lines, and a live line in a terminal."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Fakes, config
from rich.console import Console

from agent_r1 import watching
from flows import live, screens
from flows.cli import main
from flows.live import LiveScreen
from flows.screens import JsonLines, Mode, Screen
from flows.start import begin

Install = Callable[[str], Fakes]
Captured = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """The command line that trains something small in a home of its own."""
    path = tmp_path / "small.yaml"
    path.write_text("iterations: 1\n")
    return ["train", str(path), "--home", str(tmp_path / "home")]


def drawn(screen: LiveScreen, width: int) -> str:
    """The live line in a terminal of so many columns, without the empty line below it."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(screen)
    assert isinstance(console.file, io.StringIO)
    line, *below = console.file.getvalue().split("\n")
    assert set("".join(below)) <= {""}
    return line


# JSON lines and quiet


def test_json_lines_are_one_strict_object_a_line(small: list[str], fakes: Install, capsys: Captured) -> None:
    fakes("")
    assert main([*small, "--json-lines"]) == 0
    captured = capsys.readouterr()
    lines = [json.loads(line, parse_constant=pytest.fail) for line in captured.out.splitlines()]
    assert captured.err == ""
    assert [line["event"] for line in lines if line["event"] not in ("begin", "message")] == [
        "run", *["stage"] * 4, "iteration", *["stage"] * 6, "iteration", "end",
    ]  # fmt: skip
    (last,) = [line for line in lines if line["event"] == "iteration" and line["iteration"] == 1]
    assert (last["run"], last["iterations"]) == ("small", 1)
    assert last["metrics"]["eval/sampled/exact_match"] == 0.25
    assert last["seconds"] >= 0
    assert lines[-1]["status"] == "finished"
    assert all("at" in line for line in lines)


def test_not_a_number_is_null_in_json_lines(capsys: Captured) -> None:
    JsonLines().tell("iteration", metrics={"ppo/kl": float("nan")})
    assert json.loads(capsys.readouterr().out)["metrics"] == {"ppo/kl": None}


def test_the_last_json_line_says_what_failed(small: list[str], fakes: Install, capsys: Captured) -> None:
    fakes("update 1")
    assert main([*small, "--json-lines"]) == 1
    captured = capsys.readouterr()
    last = json.loads(captured.out.splitlines()[-1])
    assert (last["event"], last["status"], last["error"]) == ("end", "failed", "update 1 fails")
    assert captured.err == "agent-r1: RuntimeError: update 1 fails (--debug shows the traceback)\n"


def test_the_last_json_line_of_a_stopped_run_says_so(
    small: list[str], fakes: Install, monkeypatch: Patch, capsys: Captured
) -> None:
    fakes("")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.annotate.annotate", interrupt)
    assert main([*small, "--json-lines"]) == 130
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["status"] == "stopped"


def test_progress_inside_a_stage_is_told_now_and_then(monkeypatch: Patch, capsys: Captured) -> None:
    screen = JsonLines()
    screen.begin("rollout", 1, 0)
    screen.expect("trajectories", 8)
    screen.count("trajectories", 2)
    monkeypatch.setattr(screens, "PROGRESS_SECONDS", 0.0)
    screen.count("trajectories", 1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["begin", "progress"]
    assert lines[1]["trajectories"] == {"done": 3, "of": 8}


def test_a_quiet_run_says_its_last_line_only(small: list[str], fakes: Install, capsys: Captured) -> None:
    fakes("")
    assert main([*small, "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out == (
        "small: finished, iteration 1/1  reward  0.100  sampled EM  0.250  greedy EM  0.500; alarms: few_evaluations\n"
    )
    assert captured.err == ""


def test_a_quiet_run_still_warns_on_stderr(capsys: Captured) -> None:
    with screens.opened(Mode.QUIET) as screen:
        screen.say("run a: goes on")
        screen.say("warning: torch is 2 now and was 1: results may differ")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "warning: torch is 2 now and was 1: results may differ\n")


def test_quiet_and_json_lines_together_are_an_error(small: list[str], capsys: Captured) -> None:
    assert main([*small, "--quiet", "--json-lines"]) == 2
    assert "not both" in capsys.readouterr().err


# Who watches


def test_nobody_watches_by_default_and_the_innermost_does() -> None:
    watching.count("tokens")
    outer, inner = Counted(), Counted()
    with watching.watched_by(outer), watching.watched_by(inner):
        watching.count("tokens", 3)
    assert (outer.counted, inner.counted) == ([], [("tokens", 3)])
    watching.count("tokens")
    assert inner.counted == [("tokens", 3)]


class Counted(Screen):
    """Remembers what was counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[str, int]] = []

    def count(self, unit: str, more: int) -> None:
        self.counted.append((unit, more))


def test_real_stages_count_what_they_make(tmp_path: Path, whole: object) -> None:
    """Six trajectories of a rollout in shards of four, two greedy and two sampled answers, minibatches of an update."""
    del whole
    from whole_runs import SMALL

    from agent_r1.config import parse
    from flows.session import run_training

    heard = Heard()
    settings = parse({**SMALL, "warm_start": {"curriculum_steps": 1, "steps": 1, "sloppy_steps": 1}}, "test")
    with watching.watched_by(heard):
        run_training(tmp_path, "a", lambda: begin(tmp_path, "a", settings), lambda _: None)
    assert heard.of("warm_start", 0) == [("steps", 3, 3)]
    assert heard.of("rollout", 1) == [("trajectories", 4, 4), ("trajectories", 2, 2)]
    assert heard.of("evaluate", 1) == [("trajectories", 4, 4)]
    assert heard.of("update", 1) == [("steps", 2, 2)]


class Heard(Screen):
    """What every stage expected and made, as (unit, expected, made)."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int, str, int, int]] = []

    def begin(self, stage: str, iteration: int, shard: int) -> None:
        del shard
        self._at = (stage, iteration)

    def expect(self, unit: str, total: int) -> None:
        self.told.append((*self._at, unit, total, 0))

    def count(self, unit: str, more: int) -> None:
        stage, iteration, name, total, made = self.told[-1]
        assert name == unit
        self.told[-1] = (stage, iteration, name, total, made + more)

    def of(self, stage: str, iteration: int) -> list[tuple[str, int, int]]:
        return [told[2:] for told in self.told if told[:2] == (stage, iteration)]


# The live line


@pytest.fixture
def rolling(tmp_path: Path, monkeypatch: Patch) -> LiveScreen:
    """A run `a` in the second of two shards of its first iteration, 10 s after it began."""
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    screen = LiveScreen(Console(file=io.StringIO(), width=80, force_terminal=True))
    screen.begin_run(begin(tmp_path, "a", config()).context, 2)
    screen.begin("rollout", 1, 1)
    screen.expect("trajectories", 64)
    screen.count("tokens", 0)
    now[0] = 110.0
    screen.count("trajectories", 16)
    screen.count("tokens", 5000)
    return screen


def test_the_line_says_what_is_done_how_far_and_how_fast(rolling: LiveScreen) -> None:
    """16 of 64 in 10 s: 48 are left, which takes 30 s."""
    line = drawn(rolling, 120)
    assert line.startswith("a  iteration 1/2  rollout 2/2  ")
    assert line.endswith("  16/64 trajectories  1.6/s  500 tokens/s  30 s to go here")


@pytest.mark.parametrize("width", [100, 80, 60, 40, 20, 5])
def test_the_line_fits_into_any_terminal(rolling: LiveScreen, width: int) -> None:
    line = drawn(rolling, width)
    assert len(line) < width
    assert line.startswith("iteration 1/2  rollout 2/2"[: width - 1] if width < 80 else "")


def test_a_line_of_an_iteration_is_one_line_of_the_terminal(rolling: LiveScreen) -> None:
    file = rolling._console.file
    assert isinstance(file, io.StringIO)
    with file:
        context = rolling._context
        assert context is not None
        rolling.iteration(context, 1, f"iteration 1/2  reward  0.100  |{' rollout 1.0 s,' * 6}", {})
        assert file.getvalue() == "iteration 1/2  reward  0.100\n"


def test_where_there_is_no_terminal_lines_are_plain(capsys: Captured) -> None:
    with screens.opened() as screen:
        assert type(screen) is Screen
        assert screens.current() is screen
        screen.passing("prepare ...")
        screen.say("[bold]as it is[/]")
    assert capsys.readouterr().out == "prepare ...\n[bold]as it is[/]\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_terminal_is_left_as_it_was_after_an_error(monkeypatch: Patch) -> None:
    """Lines stay, in brackets or not; the live line is erased, and the cursor is never hidden for longer than that."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal)

    def fail() -> None:
        with screens.opened() as screen:
            assert isinstance(screen, LiveScreen)
            screen.say("[red]stays[/red]")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert sys.stdout is terminal
    written = terminal.getvalue()
    assert "[red]stays[/red]" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    assert written.endswith("\x1b[2K")


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: Patch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", terminal)
    with screens.opened() as screen:
        screen.say("a line")
    assert terminal.getvalue() == "a line\n"
