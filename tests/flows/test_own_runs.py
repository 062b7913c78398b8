"""Whole runs with what a user brings: told in the metrics and rows, checked before any work, changed, gone, failing."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from whole_runs import SMALL, Scripted, merged

from agent_r1 import own
from agent_r1.questions.records import Json
from flows.cli import main
from flows.home import stored_context, stored_row
from storage import annotations, checkpoints, metrics, stages, trajectories

HERE = Path(__file__).parent
OWN: dict[str, Json] = {
    "tools": ["mine:town", "mine:Clock", "calculator"],
    "environment": "mine:Shop",
    "rewards": {"own": [{"function": "mine:brevity", "price": 0.5}]},
}
SCRIPT = (
    '<tool_call>\n{"name": "town", "arguments": {"name": "Bern"}}\n</tool_call>'
    '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
    "<answer>Bern</answer>",
)
Captured = pytest.CaptureFixture[str]
Write = Callable[..., str]


def forget() -> None:
    """Begin as a new process does, which has imported nothing of the user's."""
    sys.modules.pop("mine", None)
    own.environment_maker.cache_clear()
    own.reward_function.cache_clear()


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's folder, with mine.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_R1_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that changes within a second would be read from it
    shutil.copy(HERE / "own_things.py", "mine.py")
    forget()
    yield tmp_path
    own.close()
    forget()


def write(*changes: dict[str, Json]) -> str:
    """A configuration file named own.yaml."""
    Path("own.yaml").write_text(yaml.safe_dump(merged(SMALL, *changes)))
    return "own.yaml"


def test_a_run_with_tools_an_environment_and_a_reward_of_one_s_own(whole: type[Scripted]) -> None:
    whole.script = SCRIPT
    assert main(["train", write(OWN)]) == 0
    context = stored_context(Path("home").absolute(), "own")
    with context.store.read() as con:
        made = trajectories.load(con, "own", 1, "train")
        rows = annotations.load(con, "own", 1)
        values = {row.key: row.value for row in metrics.load(con, "own") if row.iteration == 1}
    assert len(made) == 6
    for one in made:
        assert [turn.observation_text for turn in one.turns] == ["Bern is a town and 12:00", ""]
        assert [turn.reward for turn in one.turns] == [-0.25, 2.0]
        assert (one.ending, one.answer, one.exact_match, one.f1) == ("answered", "Bern", 0.5, 0.5)
    # a turn -0.02 and -0.25; the answer 2 of the environment, 0.5 of the outcome and half of 0.5 for its brevity
    for row in rows:
        assert row.reward_parts == {
            0: {"turn": -0.02, "environment": -0.25},
            1: {"environment": 2.0, "outcome": 0.5, "brevity": 0.25},
        }
        assert sum(row.rewards) == pytest.approx(2.48)
    assert values["reward/environment"] == pytest.approx(1.75)
    assert values["reward/brevity"] == pytest.approx(0.25)
    assert values["rollout/reward_mean"] == pytest.approx(2.48)


def asked(capsys: Captured, *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_show_doctor_and_reannotate_know_what_is_one_s_own(whole: type[Scripted], capsys: Captured) -> None:
    whole.script = SCRIPT
    assert main(["train", write(OWN)]) == 0
    (first, *_) = asked(capsys, "show", "own", "--iteration", "1")["trajectories"]
    shown = asked(capsys, "show", "own", "--trajectory", first["trajectory"])
    assert shown["annotations"][0]["reward_parts"]["1"]["brevity"] == 0.25
    assert main(["show", "own", "--trajectory", first["trajectory"]]) == 0
    assert "brevity" in capsys.readouterr().out
    assert asked(capsys, "doctor", "own")["alarms"] is not None
    dear = 'rewards.own=[{function: "mine:brevity", price: 2.0}]'
    compared = asked(capsys, "reannotate", "own", "--name", "dear", "--set", dear)
    assert "brevity" in json.dumps(compared)
    with stored_context(Path("home").absolute(), "dear").store.read() as con:
        values = {row.key: row.value for row in metrics.load(con, "dear") if row.iteration == 1}
    assert values["reward/brevity"] == pytest.approx(1.0)


def replaced(before: str, after: str) -> None:
    """The user edits mine.py."""
    text = Path("mine.py").read_text()
    assert before in text
    Path("mine.py").write_text(text.replace(before, after))
    forget()


def test_a_changed_file_is_a_warning_with_both_hashes_and_the_run_goes_on(
    whole: type[Scripted], capsys: Captured
) -> None:
    whole.script = SCRIPT
    assert main(["train", write(OWN)]) == 0
    before = stored_row(Path("home").absolute(), "own").library_versions["mine:Shop"]
    replaced("is a town", "is a big town")
    capsys.readouterr()
    assert main(["train", write(OWN, {"iterations": 2})]) == 0
    after = own.digests(stored_context(Path("home").absolute(), "own").config)["mine:Shop"]
    assert after != before
    lines = capsys.readouterr().out.splitlines()
    for name in ("mine:town", "mine:Clock", "mine:Shop", "mine:brevity"):
        assert f"warning: {name} is {after} now and was {before}: results may differ" in lines
    with stored_context(Path("home").absolute(), "own").store.read() as con:
        said = [trajectories.load(con, "own", each, "train")[0].turns[0].calls[0].text for each in (1, 2)]
    assert said == ["Bern is a town", "Bern is a big town"]
    capsys.readouterr()
    assert main(["resume", "own"]) == 0
    assert "warning" not in capsys.readouterr().out


def rows(run: str) -> list[object]:
    context = stored_context(Path("home").absolute(), run)
    with context.store.read() as con:
        return [*stages.of_run(con, run), *metrics.load(con, run)]


def test_a_run_whose_module_has_vanished_says_so_and_loses_nothing(whole: type[Scripted], capsys: Captured) -> None:
    whole.script = SCRIPT
    assert main(["train", write(OWN)]) == 0
    before = rows("own")
    Path("mine.py").rename("yours.py")
    forget()
    for command in (["resume", "own"], ["train", write(OWN, {"iterations": 2})]):
        capsys.readouterr()
        assert main(command) == 2
        error = capsys.readouterr().err
        assert error.startswith("agent-r1: tools: 'mine:town': there is no module 'mine', neither installed nor")
        assert error.count("\n") == 1
    assert rows("own") == before
    assert stored_row(Path("home").absolute(), "own").status == "finished"
    Path("yours.py").rename("mine.py")
    assert main(["train", write(OWN, {"iterations": 2})]) == 0


def test_a_reward_that_fails_in_an_iteration_keeps_its_rollouts_and_goes_on_when_it_is_repaired(
    whole: type[Scripted], capsys: Captured
) -> None:
    whole.script = SCRIPT
    Path("spoilt").touch()
    assert main(["train", write(OWN, {"iterations": 2})]) == 1
    error = capsys.readouterr().err
    assert error.startswith("agent-r1: rewards.own: mine:brevity on trajectory own/2/train/")
    assert "expected finite numbers, got [0.0, nan]" in error
    assert error.count("\n") == 1
    assert stored_row(Path("home").absolute(), "own").status == "failed"
    before = rows("own")
    replaced('Path("spoilt").exists()', "False")
    assert main(["resume", "own"]) == 0
    context = stored_context(Path("home").absolute(), "own")
    with context.store.read() as con:
        done = {(row.iteration, row.stage, row.shard): row.finished_at for row in stages.of_run(con, "own")}
    kept = {
        (row.iteration, row.stage, row.shard): row.finished_at for row in before if isinstance(row, stages.StageRow)
    }
    assert [key for key in kept if key[0] == 2] == [(2, "rollout", 0), (2, "rollout", 1)]
    assert {key: done[key] for key in kept} == kept
    assert (2, "publish", 0) in done


SERVER = HERE.parent / "agent_r1" / "bare_mcp_server.py"
COMMAND: list[Json] = [sys.executable, "-S", str(SERVER)]
SILENT: list[Json] = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def mcp(command: list[Json], **others: Json) -> dict[str, Json]:
    return {"tools": [], "mcp": [{"command": command, **others}]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tools": ["gone:town"]}, r"tools: 'gone:town': there is no module 'gone', neither installed nor in the"),
        ({"tools": ["mine:city"]}, r"tools: 'mine:city': mine has no 'city'; it has .*town"),
        ({"tools": ["mine:NOTHING"]}, r"tools: 'mine:NOTHING': expected a function, or a tool with .* found int"),
        (
            {"tools": ["broken:town"]},
            r"tools: 'broken:town': importing the module failed: .*'numpi'.*broken.py, line 2",
        ),
        ({"environment": "broken:Shop"}, r"environment: 'broken:Shop': importing .*broken.py, line 2"),
        ({"environment": "mine:NOTHING"}, r"environment: 'mine:NOTHING': expected a class with reset and step"),
        ({"environment": "mine:Closed"}, r"environment: 'mine:Closed': dry run on .* RuntimeError: the shop is closed"),
        ({"rewards": {"own": [{"function": "mine:no_number", "price": 1}]}}, r"dry run .* rewards.own: mine:no_number"),
        ({"rewards": {"own": [{"function": "mine:NOTHING", "price": 1}]}}, r"rewards.own: .* expected a function"),
        ({"rewards": {"own": [{"function": "mine:brevity"}]}}, r"rewards.own.0.price: Field required"),
        ({"tools": ["calculator", "twin:calculator"]}, r"tools, mcp: there is more than one tool named 'calculat"),
        ({"tools": ["mine:town", "mine:town"]}, r"tools: a tool is named twice in \['mine:town', 'mine:town'\]"),
        (mcp(["no-such-server"]), r"MCP server 'no-such-server': there is no program 'no-such-server'"),
        (mcp(SILENT, start_timeout=0.5), r"MCP server '.*': no answer within 0.5 seconds of its start"),
        (mcp(COMMAND, environment=["SURELY_NOT_SET"]), r"mcp.environment: there is no .* variable 'SURELY_NOT_SET'"),
        ({"mcp": [{"command": COMMAND}, {"command": [*COMMAND, "noisy"]}]}, r"tools, mcp: .* one tool named 'pids'"),
    ],
)
def test_what_does_not_work_is_one_line_that_names_its_key_before_any_work(
    changes: dict[str, Json], says: str, capsys: Captured
) -> None:
    Path("broken.py").write_text('"""A module whose library is not there."""\nimport numpi\n')
    Path("twin.py").write_text('def calculator(x: str) -> str:\n    """Twice."""\n    return x\n')
    assert main(["train", write(changes)]) == 2
    error = capsys.readouterr().err
    assert re.search(says, error)
    assert error.startswith("agent-r1: ")
    assert error.count("\n") == 1
    assert not Path("home/store.duckdb").exists()
    assert own._servers == {}


def running(text: str) -> list[str]:
    """Living processes whose command line has the text."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if text in line and not line.split()[1].startswith("Z")]


@pytest.fixture
def server() -> list[Json]:
    """The command of a server that no other test has started."""
    shutil.copy(SERVER, "server.py")
    return [sys.executable, "-S", str(Path("server.py").absolute())]


def test_a_run_with_an_mcp_server_that_dies_goes_on_and_leaves_no_process(
    whole: type[Scripted], server: list[Json]
) -> None:
    """It is killed in every shard and evaluation: more often than it is started again."""
    whole.script = tuple(
        f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>' for name in ("pids", "kill", "pids")
    )
    assert main(["train", write(mcp(server))]) == 0
    context = stored_context(Path("home").absolute(), "own")
    with context.store.read() as con:
        first = trajectories.load(con, "own", 0, "greedy")
        made = trajectories.load(con, "own", 1, "train")
        last = trajectories.load(con, "own", 1, "sampled")
    assert [one.ending for one in (*first, *made, *last)] == ["max_turns"] * 10
    assert [turn.calls[0].ok for turn in first[0].turns] == [True, False, True, True]
    gone = "error: the MCP server cannot be used: it ended 4 times and is not started again"
    assert {call.text for one in last for turn in one.turns for call in turn.calls} == {gone}
    assert running(str(server[-1])) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_mcp_server_ends_with_a_run_that_is_stopped_or_fails(
    whole: type[Scripted], server: list[Json], error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.script = SCRIPT
    seen: list[str] = []

    def interrupted(*_: object) -> None:
        seen.extend(running(str(server[-1])))
        raise error

    monkeypatch.setattr("tasks.annotate.annotate", interrupted)
    assert main(["train", write(mcp(server))]) == (130 if error is KeyboardInterrupt else 1)
    assert seen
    assert running(str(server[-1])) == []


# An environment that rewrites the context

FORGETTING: dict[str, Json] = {
    "tools": ["calculator"],
    "environment": "agent_r1.forgetting:Forgetting",
    "iterations": 2,
    "keep_checkpoints": ["all"],
    "advantages": {"lam": 1.0, "whiten": False},
    "ppo": {"kl_coefficient": 0.1},
}
SUMS = (
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1 + 1"}}\n</tool_call>',
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 +"}}\n</tool_call>',
    "<answer>2</answer>",
)


def weights(home: str, iteration: int) -> bytes:
    return Path(home, f"runs/own/checkpoints/{iteration:05d}/policy/model.safetensors").read_bytes()


def test_an_update_over_several_segments_conserves_rewards_and_is_the_same_after_a_kill(
    whole: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.script = SUMS
    config = write(FORGETTING)
    assert main(["train", config, "--home", "straight"]) == 0
    context = stored_context(Path("straight").absolute(), "own")
    with context.store.read() as con:
        made = annotations.load(con, "own", 2)
        credits = annotations.load_credits(con, "own", 2)
        values = {row.key: row.value for row in metrics.load(con, "own") if row.iteration == 2}
    assert len(made) == 6 * 3
    assert [(row.trajectory_id, row.segment) for row in made] == [(row.trajectory_id, row.segment) for row in credits]
    for row, credit in zip(made, credits, strict=True):
        # of each segment: a call, a call that fails, an answer that is wrong
        assert row.reward_parts == {row.segment: [{"turn": -0.02}, {"turn": -0.02, "failed": -0.05}, {}][row.segment]}
        assert sum(row.rewards) == pytest.approx(sum(row.reward_parts[row.segment].values()), abs=1e-6)
        assert len(credit.values) == len(credit.advantages) == len(credit.returns) == len(row.token_ids)
        given = [place for place, chosen in enumerate(row.action_mask) if not chosen]
        assert given
        assert all(credit.advantages[place] == credit.returns[place] == 0 for place in given)
        assert any(credit.advantages)
        # gamma and lambda are 1: a return is all that is earned from there on, in this segment and those after it
        first, last = row.action_mask.index(True), len(row.action_mask) - 1
        assert credit.returns[first] == pytest.approx([-0.09, -0.07, 0.0][row.segment], abs=1e-6)
        assert credit.returns[last] == pytest.approx([-0.09, -0.07, 0.0][row.segment], abs=1e-6)
    assert all(math.isfinite(value) for value in values.values())
    assert values["ppo/grad_norm"] > 0
    assert values["ppo/skipped_updates"] == 0

    class Killed(BaseException):
        """Stands for a kill."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_trainer", die)
        with pytest.raises(Killed):
            main(["train", config, "--home", "killed"])
    assert main(["resume", "own", "--home", "killed"]) == 0
    for iteration in (1, 2):
        assert weights("killed", iteration) == weights("straight", iteration)
    assert weights("straight", 1) != weights("straight", 2)
