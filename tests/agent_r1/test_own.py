"""What a user brings: environments that speak, pay, end, score and rewrite the context, and reward functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import own_world
import pytest
from scripted import FakeTool, ScriptedSampler, call

from agent_r1.chat import Chat
from agent_r1.config import Config, parse
from agent_r1.environment import Environment, Step
from agent_r1.environments import Environments, open_tools
from agent_r1.errors import ConfigError, RunError
from agent_r1.forgetting import Forgetting
from agent_r1.masks import segments
from agent_r1.own import digests, environment_maker, own_rewards, try_out
from agent_r1.questions.records import Evidence, Json, Question
from agent_r1.rewards import annotate, components, reward_parts
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.sections import RewardConfig
from agent_r1.tool_calls import ParsedTurn
from agent_r1.tools.databases import Databases
from agent_r1.tools.protocol import Source, Tool, ToolResult
from agent_r1.trajectory import CallRecord, Trajectory

ORIGIN = Origin("run", 3, "train", 2)
QUESTION = Question("q", "Where?", ("Rome",))
FREE = RewardConfig(outcome=0, evidence=0, turn=0, malformed=0, failed=0, repeated=0, unanswered=0)


def config(**sections: Json) -> Config:
    return parse({"rollout": {"max_turns": 4, "max_context": 512}, **sections}, "test")


def play(
    chat: Chat,
    make: type,
    *scripts: Sequence[str],
    questions: Sequence[Question] = (),
    timeout: float = 5.0,
    tool: FakeTool | None = None,
) -> tuple[list[Trajectory], ScriptedSampler]:
    """One trajectory for each script."""
    sampler = ScriptedSampler(chat, scripts)
    environments = Environments([tool or FakeTool("look")], chat, timeout, 200, make)
    asked = questions or [QUESTION] * len(scripts)
    attempts = [Attempt(question, number) for number, question in enumerate(asked)]
    return rollout(attempts, sampler, environments, config(), ORIGIN), sampler


def test_an_environment_says_what_is_asked_and_what_comes_after_each_turn(chat: Chat) -> None:
    (made,), _ = play(chat, own_world.Guess, ["1", call("a"), "<answer>3</answer>"])
    first, second, third = made.turns
    assert first.given_ids == tuple(chat.prompt("Where? Guess."))
    assert second.given_ids == tuple(chat.reply("not 1, 0 calls"))
    assert first.observation_text == "not 1, 0 calls"
    assert third.given_ids == tuple(chat.reply(f"not {call('a')}, 1 calls"))
    assert (made.ending, made.answer) == ("answered", "3")


def test_an_environment_s_observation_is_limited_like_a_tool_s(chat: Chat) -> None:
    class Talks(own_world.Guess):
        def step(self, turn: ParsedTurn, results: Sequence[CallRecord]) -> Step:
            del turn, results
            return Step(observation="word " * 1000)

    (made,), _ = play(chat, Talks, ["1", "<answer>3</answer>"])
    assert made.turns[0].observation_text.endswith(" [cut]")
    assert len(chat.plain(made.turns[0].observation_text)) <= 200
    assert made.turns[1].given_ids == tuple(chat.reply(made.turns[0].observation_text))


def test_a_reply_is_a_user_s_message_of_the_template(chat: Chat) -> None:
    tokenizer = chat.tokenizer
    text = tokenizer.decode([*chat.prompt("Who?"), *chat.action("me"), *chat.reply("no")])
    assert text.count("<|user|>") == 2 or text.count("<|im_start|>user") == 2
    assert text.index("no") > text.index("me")


def test_the_score_of_an_environment_takes_the_place_of_exact_match(chat: Chat) -> None:
    made, _ = play(chat, own_world.Guess, ["<answer>3</answer>"], ["<answer>Rome</answer>"], ["stop"])
    assert [(one.ending, one.exact_match, one.f1) for one in made] == [
        ("answered", 1.0, 1.0),
        ("answered", 0.0, 0.0),
        ("done", 0.25, 0.25),
    ]


def test_the_environment_s_reward_is_the_turn_s_and_is_priced(chat: Chat) -> None:
    made, _ = play(chat, own_world.Guess, ["1", "<answer>3</answer>"], ["2", "stop"])
    assert [[turn.reward for turn in one.turns] for one in made] == [[0.5, 2.0], [0.5, -1.0]]
    prices = FREE.model_copy(update={"environment": 0.1})
    assert reward_parts(made[0], QUESTION, prices) == {
        0: {"environment": pytest.approx(0.05)},
        1: {"environment": pytest.approx(0.2)},
    }
    (row,) = annotate(made[0], QUESTION, prices)
    assert sum(row.rewards) == pytest.approx(0.25)


def test_an_episode_that_its_environment_ends_is_not_unanswered(chat: Chat) -> None:
    (made,), _ = play(chat, own_world.Guess, ["stop"])
    assert "unanswered" not in reward_parts(made, QUESTION, RewardConfig())[0]
    (failed,), _ = play(chat, own_world.Broken, ["raise"])
    assert "unanswered" not in reward_parts(failed, QUESTION, RewardConfig())[0], "it is not the agent's fault"


def test_a_rewritten_context_is_a_segment_of_its_own(chat: Chat) -> None:
    (made,), sampler = play(chat, own_world.Summary, [call("a"), call("b"), "<answer>Rome</answer>"])
    assert [turn.segment for turn in made.turns] == [0, 1, 2]
    assert [turn.given_ids for turn in made.turns] == [
        tuple(chat.prompt("Where? Guess.")),
        tuple(chat.prompt("So far: saw a")),
        tuple(chat.prompt("So far: saw a, saw b")),
    ]
    assert [request.restart for (request,) in sampler.requests] == [True, True, True]
    found = list(segments(made.turns))
    assert [sum(one.action_mask) for one in found] == [len(turn.action_ids) for turn in made.turns]
    rows = annotate(made, QUESTION, RewardConfig())
    assert sum(sum(row.rewards) for row in rows) == pytest.approx(
        sum(sum(parts.values()) for parts in reward_parts(made, QUESTION, RewardConfig()).values())
    )
    assert rows[-1].rewards[-1] == pytest.approx(1.0)  # the outcome, on the last action token of the last segment


def test_an_environment_that_fails_ends_its_trajectory_and_no_other(chat: Chat) -> None:
    """Rule 7: a named ending, nothing dropped."""
    asked = [Question(f"q{n}", text, ("x",)) for n, text in enumerate(["reset", *["go"] * 5])]
    scripts = [["1"], ["raise"], ["wrong"], ["nan"], ["score"], ["hang"]]
    made, _ = play(chat, own_world.Broken, *scripts, questions=asked, timeout=0.4)
    assert [one.ending for one in made] == ["environment_failed"] * 6
    assert [len(one.turns) for one in made] == [0, 1, 1, 1, 1, 1]
    assert all(one.exact_match == 0 and one.answer is None for one in made)


def test_an_environment_that_cannot_be_made_is_one_that_fails(chat: Chat) -> None:
    made, _ = play(chat, own_world.NotMade, ["1"], ["1"])
    assert [(one.ending, one.turns) for one in made] == [("environment_failed", ())] * 2


def test_what_an_environment_says_and_pays_is_made_plain(chat: Chat) -> None:
    """Decimals are floats, half a surrogate pair is a question mark, what is no text ends the trajectory."""
    made, _ = play(chat, own_world.Numbers, ["1", "stop"], ["odd"])
    first, last = made[0].turns
    assert first.given_ids == tuple(chat.prompt("Where??"))
    assert (first.observation_text, last.given_ids) == ("say?", tuple(chat.reply("say?")))
    assert [type(value) for value in (first.reward, made[0].exact_match, made[0].f1)] == [float] * 3
    assert [one.ending for one in made] == ["done", "environment_failed"]


def test_each_attempt_has_an_environment_and_a_seed_of_its_own(chat: Chat) -> None:
    seeds: list[int] = []

    class Seen(own_world.Guess):
        def reset(self, question: Question, seed: int) -> str:
            seeds.append(seed)
            return super().reset(question, seed)

    play(chat, Seen, ["stop"], ["stop"])
    again = list(seeds)
    seeds.clear()
    play(chat, Seen, ["stop"], ["stop"])
    assert sorted(seeds) == sorted(again)
    assert len(set(seeds)) == 2


def test_forgetting_keeps_what_was_found_and_shows_a_failure_once(chat: Chat) -> None:
    def reply(arguments: object) -> ToolResult:
        assert isinstance(arguments, dict)
        found = arguments["x"] != "no"
        return ToolResult("saw\nit" if found else "nothing found", ok=found)

    script = [call("a"), call("no"), call("a"), "<answer>Rome</answer>"]
    (made,), _ = play(chat, Forgetting, script, tool=FakeTool("look", reply))
    assert [turn.given_ids for turn in made.turns[1:]] == [
        tuple(chat.prompt("Where?\na: saw it")),
        tuple(chat.prompt("Where?\na: saw it\nnothing found")),
        tuple(chat.prompt("Where?\na: saw it")),
    ]
    assert made.ending == "answered"


def test_evidence_is_paid_once_across_segments(chat: Chat) -> None:
    question = Question("q", "Where?", ("Rome",), (Evidence("p", None),))
    tool = FakeTool("look", lambda _: ToolResult("word", True, (Source("p", None, 0, 4),)))
    (made,), _ = play(
        chat, Forgetting, [call("a"), call("b"), "<answer>Rome</answer>"], questions=[question], tool=tool
    )
    parts = reward_parts(made, question, RewardConfig())
    assert [parts[turn].get("evidence", 0.0) for turn in range(3)] == [pytest.approx(0.8), 0.0, 0.0]


def answered(chat: Chat) -> Trajectory:
    made, _ = play(chat, own_world.Guess, ["1", "2", "<answer>3</answer>"])
    return made[0]


def test_a_reward_of_one_s_own_is_on_the_last_turn_or_on_each(chat: Chat) -> None:
    made = answered(chat)
    assert own_rewards("own_world:brevity", made, QUESTION) == [0.0, 0.0, pytest.approx(1 / 3)]
    assert own_rewards("own_world:by_turn", made, QUESTION) == [0.0, 1.0, 2.0]
    own = [{"function": "own_world:by_turn", "price": 0.5}, {"function": "own_world:brevity", "price": -3}]
    prices = RewardConfig.model_validate({**FREE.model_dump(), "environment": 0, "own": own})
    assert components(prices)[-2:] == ("by_turn", "brevity")
    assert reward_parts(made, QUESTION, prices) == {
        0: {},
        1: {"by_turn": 0.5},
        2: {"by_turn": 1.0, "brevity": pytest.approx(-1.0)},
    }


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("too_few", "0 values, expected one number or one for each of the turns"),
        ("no_number", "expected finite numbers"),
        ("failing", "KeyError: 'q'"),
    ],
)
def test_a_reward_that_is_none_names_function_and_trajectory(chat: Chat, name: str, problem: str) -> None:
    with pytest.raises(RunError, match=rf"rewards.own: own_world:{name} on trajectory run/3/train/q/0: {problem}"):
        own_rewards(f"own_world:{name}", answered(chat), QUESTION)


def test_all_of_one_s_own_is_tried_before_any_work() -> None:
    settings = config(
        environment="own_world:Guess", tools=[], rewards={"own": [{"function": "own_world:brevity", "price": 1}]}
    )
    try_out(settings, QUESTION)


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"environment": "own_world:Nothing"}, "environment: 'own_world:Nothing': own_world has no 'Nothing'"),
        ({"environment": "own_world:NOT_CALLABLE"}, "environment: .* expected a class with reset and step"),
        ({"environment": "own_world:Broken"}, "dry run on question 'q': RuntimeError: no step"),
        ({"environment": "own_world:NoText"}, "dry run on question 'q': TypeError: reset must return .* got int"),
        ({"environment": "own_world:brevity"}, "dry run on question 'q': TypeError"),
        ({"rewards": {"own": [{"function": "own_world:failing", "price": 1}]}}, "dry run on question 'q': rewards.own"),
        ({"rewards": {"own": [{"function": "own_world:NOT_CALLABLE", "price": 1}]}}, "rewards.own: .* function"),
        ({"tools": ["own_world:nothing"]}, "tools: 'own_world:nothing': own_world has no 'nothing'"),
        ({"tools": ["own_world:failing"]}, "tools: 'own_world:failing'"),
        ({"mcp": [{"command": ["x"], "environment": ["SURELY_NOT_SET"]}]}, "no environment variable 'SURELY_NOT_SET'"),
    ],
)
def test_what_does_not_work_on_one_question_is_refused(sections: dict[str, Json], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        try_out(config(**sections), QUESTION)


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"environment": "no colon"}, "environment"),
        ({"tools": ["nope"]}, "unknown tool 'nope'; known are .*, your own are module:name"),
        ({"rewards": {"own": [{"function": "brevity", "price": 1}]}}, "rewards.own.0.function"),
        ({"rewards": {"own": [{"function": "a:outcome", "price": 1}]}}, "more than one reward named 'outcome'"),
        (
            {"environment": "a:B", "rollout": {"earlier_thinking": "drop"}},
            "rollout.earlier_thinking drop is of environment tools",
        ),
    ],
)
def test_names_of_one_s_own_are_checked_by_their_form(sections: dict[str, Json], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse(sections, "test")


def test_two_tools_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twins.py").write_text('def calculator(x: str) -> str:\n    """Computes."""\n    return x\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="more than one tool named 'calculator'"):
        open_tools(config(tools=["calculator", "twins:calculator"]), tmp_path / "none", [], Databases(tmp_path))


def test_own_tools_stand_where_the_configuration_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text('def echo(x: str) -> str:\n    """Says it again."""\n    return x\n')
    monkeypatch.chdir(tmp_path)
    tools = open_tools(config(tools=["mine:echo", "calculator"]), tmp_path / "none", [], Databases(tmp_path))
    assert [tool.name for tool in tools] == ["echo", "calculator"]
    assert isinstance(tools[0], Tool)
    assert tools[0].call({"x": "hi"}) == ToolResult("hi", ok=True)


def test_a_run_knows_the_file_that_its_own_code_is_from() -> None:
    settings = config(environment="own_world:Guess")
    assert set(digests(settings)) == {"own_world:Guess"}
    assert len(digests(settings)["own_world:Guess"]) == 16
    assert digests(config()) == {}


def test_an_environment_is_what_is_called_without_arguments() -> None:
    made: Environment = environment_maker("own_world:Guess")()
    assert isinstance(made, own_world.Guess)
