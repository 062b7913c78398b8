"""Rollouts with what a user brings: MCP servers that die in the middle, environments that cannot even be made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import own_world
import pytest
from scripted import FakeTool, ScriptedSampler, call

from agent_r1 import own
from agent_r1.chat import Chat
from agent_r1.config import Config, parse
from agent_r1.environments import Environments, open_environments
from agent_r1.questions.records import Json, Question
from agent_r1.rewards import reward_parts
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.tools.protocol import ToolResult
from agent_r1.trajectory import CallRecord, Trajectory

SERVER: list[Json] = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]
BARE: list[Json] = [sys.executable, "-S", str(Path(__file__).with_name("bare_mcp_server.py"))]
QUESTION = Question("q", "How many?", ("130000",))
ORIGIN = Origin("run", 1, "train", 0)
ENDED = "error: the MCP server ended"


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    yield
    own.close()


def config(command: list[Json]) -> Config:
    limits: Json = {
        "max_turns": 9,
        "max_context": 1024,
        "max_new_tokens": 64,
        "tool_timeout": 20.0,
        "system_prompt": "",
    }
    return parse({"tools": [], "mcp": [{"command": command}], "rollout": limits}, "test")


def play(chat: Chat, folder: Path, settings: Config, *scripts: list[str]) -> list[Trajectory]:
    """One trajectory for each script, in the environments of the configuration."""
    attempts = [Attempt(QUESTION, number) for number in range(len(scripts))]
    with open_environments(settings, folder / "no.duckdb", [], chat.tokenizer) as environments:
        return rollout(attempts, ScriptedSampler(environments.chat, scripts), environments, settings, ORIGIN)


def said(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def calls(made: Trajectory) -> list[CallRecord]:
    return [one for turn in made.turns for one in turn.calls]


def test_an_mcp_server_that_is_killed_in_the_middle_costs_its_calls_and_nothing_else(
    chat: Chat, tmp_path: Path
) -> None:
    """The second wave finds a server that was started again."""
    made = play(
        chat,
        tmp_path,
        config(SERVER),
        [said("sleep", '{"seconds": 60}'), said("population", '{"city": "Bern"}'), "<answer>130000</answer>"],
        [said("kill"), said("population", '{"city": "Rome"}'), "I give up"],
        ["<answer>130000</answer>"],
    )
    assert [[(one.name, one.ok, one.text) for one in calls(each)] for each in made[:1]] == [
        [("sleep", False, ENDED), ("population", True, "130000")]
    ]
    killed, failed = calls(made[1])
    assert (killed.ok, killed.text) == (False, ENDED)
    assert not failed.ok
    assert [one.ending for one in made] == ["answered", "no_answer", "answered"]
    assert [one.exact_match for one in made] == [1.0, 0.0, 1.0]
    assert "failed" in reward_parts(made[0], QUESTION, config(SERVER).rewards)[0]
    assert "failed" not in reward_parts(made[0], QUESTION, config(SERVER).rewards)[1]


def test_an_mcp_server_that_always_dies_fails_every_call_and_no_rollout(chat: Chat, tmp_path: Path) -> None:
    """It is started again three times; the others' calls in the same waves fail with it or by themselves."""
    made = play(
        chat,
        tmp_path,
        config(BARE),
        [*[said("kill")] * 6, "<answer>130000</answer>"],
        [*[said("nothing")] * 6, "<answer>130000</answer>"],
    )
    gone = "error: the MCP server cannot be used: it ended 4 times and is not started again"
    assert [one.text for one in calls(made[0])] == [*[ENDED] * 4, gone, gone]
    assert [one.text for one in calls(made[1])][-2:] == [gone, gone]
    assert not any(one.ok or one.malformed for each in made for one in calls(each))
    assert [one.ending for one in made] == ["answered", "answered"]


def test_a_server_serves_every_stage_of_a_process(chat: Chat, tmp_path: Path) -> None:
    settings = config(BARE)
    (first,) = play(chat, tmp_path, settings, [said("pids"), "<answer>1</answer>"])
    (second,) = play(chat, tmp_path, settings, [said("pids"), "<answer>1</answer>"])
    assert calls(first)[0].ok
    assert calls(first)[0].text == calls(second)[0].text
    own.close()
    (third,) = play(chat, tmp_path, settings, [said("pids"), "<answer>1</answer>"])
    assert calls(third)[0].ok
    assert calls(third)[0].text != calls(first)[0].text


def test_an_environment_that_cannot_be_made_ends_its_trajectory_and_no_other(chat: Chat) -> None:
    made_so_far = iter(range(3))

    def make() -> own_world.Guess:
        if next(made_so_far) == 1:
            raise OSError("no more files")
        return own_world.Guess()

    sampler = ScriptedSampler(chat, [["stop"]] * 3)
    environments = Environments([FakeTool("look")], chat, 5.0, 200, make)
    attempts = [Attempt(QUESTION, number) for number in range(3)]
    made = rollout(attempts, sampler, environments, config(BARE), ORIGIN)
    assert sorted(one.ending for one in made) == ["done", "done", "environment_failed"]


def test_code_that_ends_the_process_ends_its_trajectory_at_once(chat: Chat) -> None:
    """Within a thread, Python would only end the thread: the wave would wait for its time-out."""

    class Quits(own_world.Guess):
        def reset(self, question: Question, seed: int) -> str:
            sys.exit(f"{question.id} {seed}")

    def quits(_: object) -> ToolResult:
        sys.exit(3)

    environments = Environments([FakeTool("look")], chat, 60.0, 200, Quits)
    (made,) = rollout([Attempt(QUESTION, 0)], ScriptedSampler(chat, [["x"]]), environments, config(BARE), ORIGIN)
    assert made.ending == "environment_failed"
    script = [[call("a"), "<answer>x</answer>"]]
    tools = Environments([FakeTool("look", quits)], chat, 60.0, 200)
    (made,) = rollout([Attempt(QUESTION, 0)], ScriptedSampler(chat, script), tools, config(BARE), ORIGIN)
    assert [one.text for one in calls(made)] == ["error: SystemExit: 3"]
