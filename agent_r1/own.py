"""What a user brings as `module:name`: tools, an environment, reward functions, opened and tried before any work.

Finding the object is left to `objects.py`, what is made of a function to `tools/`. All of it is the user's own code,
run with the user's rights: it is not caged.
"""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import cast

from agent_r1.config import Config
from agent_r1.environment import Environment, Step, ToolEnvironment, checked_question, checked_step
from agent_r1.errors import ConfigError, RunError
from agent_r1.objects import load_object, source_digest
from agent_r1.questions.records import Question
from agent_r1.sections import McpConfig
from agent_r1.tool_calls import parse
from agent_r1.tools.concurrently import side_by_side
from agent_r1.tools.mcp import McpServer
from agent_r1.tools.own import check_schema, open_own
from agent_r1.tools.protocol import Tool
from agent_r1.trajectory import Trajectory, Turn

_servers: dict[McpConfig, McpServer] = {}

RewardFunction = Callable[[Trajectory, Question], float | Iterable[float]]
"""The reward of a trajectory as a whole, which its last turn gets, or one value for each of its turns."""


def own_tools(config: Config) -> list[Tool]:
    """The tools of `tools` that are named `module:name`, in their order, then those of the MCP servers.

    ConfigError where one cannot be had, or two tools have one name.
    """
    found = [open_own(name) for name in config.tools if is_own(name)]
    for server in config.mcp:
        for tool in _server(server, config.rollout.tool_timeout).tools:
            check_schema(tool, f"mcp: {' '.join(server.command)}")
            found.append(tool)
    names = [*(name for name in config.tools if not is_own(name)), *(tool.name for tool in found)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"tools, mcp: there is more than one tool named {name!r}")
    return found


@atexit.register
def close() -> None:
    """End the MCP servers of this process, which are kept from stage to stage."""
    while _servers:
        _servers.popitem()[1].close()


def is_own(name: str) -> bool:
    """Whether it is `module:name`."""
    return ":" in name


def _server(config: McpConfig, timeout: float) -> McpServer:
    if config not in _servers:
        missing = [name for name in config.environment if name not in os.environ]
        if missing:
            raise ConfigError(f"mcp.environment: there is no environment variable {missing[0]!r} to hand on")
        handed_on = {name: os.environ[name] for name in config.environment}
        server = McpServer(config.command, env=handed_on, timeout=timeout, start_timeout=config.start_timeout)
        _servers[config] = server
    return _servers[config]


@cache
def environment_maker(path: str) -> Callable[[], Environment]:
    """What makes an environment for each attempt: a class, or a function, that is called without arguments."""
    if not is_own(path):
        return ToolEnvironment
    made = load_object(path, "environment")
    if not callable(made):
        raise ConfigError(f"environment: {path!r}: expected a class with reset and step, found {type(made).__name__}")
    return cast(Callable[[], Environment], made)


@cache
def reward_function(path: str) -> RewardFunction:
    """The reward function of that name."""
    made = load_object(path, "rewards.own")
    if not callable(made):
        raise ConfigError(f"rewards.own: {path!r}: expected a function, found {type(made).__name__}")
    return cast(RewardFunction, made)


def own_rewards(path: str, trajectory: Trajectory, question: Question) -> list[float]:
    """The unpriced value of each turn. RunError, naming function and trajectory, where there are none to be had."""
    where = f"rewards.own: {path} on trajectory {trajectory.trajectory_id}"
    try:
        said = reward_function(path)(trajectory, question)
        values = [float(value) for value in said] if isinstance(said, Iterable) else _on_the_last(said, trajectory)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # the border to other people's code
        raise RunError(f"{where}: {type(error).__name__}: {error}") from error
    if len(values) != len(trajectory.turns):
        raise RunError(f"{where}: {len(values)} values, expected one number or one for each of the turns")
    if not all(map(math.isfinite, values)):
        raise RunError(f"{where}: expected finite numbers, got {values}")
    return values


def _on_the_last(value: float, trajectory: Trajectory) -> list[float]:
    return [0.0] * (len(trajectory.turns) - 1) + [float(value)]


def names(config: Config) -> dict[str, str]:
    """Each `module:name` of a configuration, and the key that it stands under."""
    found = {name: "tools" for name in config.tools if is_own(name)}
    found |= {config.environment: "environment"} if is_own(config.environment) else {}
    return found | {own.function: "rewards.own" for own in config.rewards.own}


def digests(config: Config) -> dict[str, str]:
    """The hash of the file that each `module:name` is from, by its name: a run notices when one changed."""
    return {path: source_digest(load_object(path, key))[:16] for path, key in names(config).items()}


def try_out(config: Config, question: Question) -> None:
    """Open the tools, try the environment and the reward functions on one question.

    ConfigError names the key, and what went wrong. MCP servers stay open for the work that follows.
    """
    for tool in own_tools(config):
        tool.close()
    if is_own(config.environment):
        _try_environment(config, question)
    text = "<answer>tried out</answer>"
    turn = Turn(0, 0, (0,), (0,), (0.0,), text)
    tried = Trajectory("dry run", 0, "train", question.id, 0, 0, "answered", "tried out", 0.0, 0.0, (turn,))
    for own in config.rewards.own:
        try:
            own_rewards(own.function, tried, question)
        except RunError as error:
            raise ConfigError(f"dry run on question {question.id!r}: {error}") from error


def _try_environment(config: Config, question: Question) -> None:
    """Make one, ask it, and answer it; once more with words that are no answer."""
    make = environment_maker(config.environment)

    def play(text: str) -> Step:
        environment = make()
        checked_question(environment.reset(question, 0))
        return checked_step(environment.step(parse(text), ()))

    reasons: list[str] = []
    texts = ("<answer>tried out</answer>", "tried out")
    side_by_side([partial(play, text) for text in texts], config.rollout.tool_timeout, reasons.append)
    if reasons:
        raise ConfigError(f"environment: {config.environment!r}: dry run on question {question.id!r}: {reasons[0]}")
