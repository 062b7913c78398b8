"""The loop of the agent with a scripted sampler: every ending, and counts that add up (D1, D5, D7, F3, F5, G1, G14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from families import FAMILIES
from scripted import CUT, FakeTool, ScriptedSampler, call

from agent_r1.chat import Chat
from agent_r1.config import Config, parse
from agent_r1.environments import Environments
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.masks import segments
from agent_r1.model import Policy
from agent_r1.questions.records import Json, Question
from agent_r1.rewards import reward_parts
from agent_r1.rollout import Attempt, Origin, draw, rollout
from agent_r1.sampler import Action
from agent_r1.sections import RewardConfig, RolloutConfig
from agent_r1.tools.protocol import ToolResult
from agent_r1.trajectory import Purpose, Trajectory

ORIGIN = Origin("run", 3, "train", 2)
QUESTION = Question("q", "Where?", ("Rome", "Roma"))


def config(**limits: Json) -> Config:
    return parse({"rollout": {"max_turns": 4, "max_context": 512, **limits}}, "test")


def roomy(**limits: Json) -> Config:
    """Room for the prompts of other models than the tiny one."""
    rollout: dict[str, Json] = {"max_turns": 4, "max_context": 4096, **limits}
    return parse({"model": {"path": "elsewhere"}, "rollout": rollout}, "test")


def play(
    chat: Chat,
    *scripts: Sequence[str],
    settings: Config | None = None,
    tool: FakeTool | None = None,
    purpose: Purpose = "train",
) -> tuple[list[Trajectory], ScriptedSampler]:
    """One trajectory for each script."""
    sampler = ScriptedSampler(chat, scripts)
    environment = Environments([tool or FakeTool("look")], chat, 5.0, 200)
    attempts = [Attempt(QUESTION, number) for number in range(len(scripts))]
    origin = Origin("run", 3, purpose, 2)
    return rollout(attempts, sampler, environment, settings or config(), origin), sampler


def test_a_trajectory_is_its_turns_of_given_and_sampled_tokens(chat: Chat) -> None:
    """A1, A4: ids as sampled, each with its log-probability; what the world adds is given."""
    (made,), _ = play(chat, [call("a"), "<answer>Roma</answer>"])
    first, second = made.turns
    assert first.given_ids == tuple(chat.prompt("Where?"))
    assert first.action_ids == tuple(chat.action(call("a")))
    assert first.action_logprobs == tuple(-0.1 * (place + 1) for place in range(len(first.action_ids)))
    assert (first.index, first.segment, first.action_text) == (0, 0, call("a"))
    assert first.observation_text == "saw a"
    assert second.given_ids == tuple(chat.observation(["saw a"]))
    assert second.action_ids == tuple(chat.action("<answer>Roma</answer>"))
    assert (second.index, second.calls, second.observation_text) == (1, (), "")
    assert (made.ending, made.answer, made.exact_match, made.f1) == ("answered", "Roma", 1.0, 1.0)
    assert (made.run, made.iteration, made.purpose, made.question_id, made.attempt, made.checkpoint) == (
        "run", 3, "train", "q", 0, 2,
    )  # fmt: skip
    (segment,) = segments(made.turns)
    assert [token for token, chosen in zip(segment.token_ids, segment.action_mask, strict=True) if chosen] == [
        *first.action_ids,
        *second.action_ids,
    ]


def test_the_sampler_is_given_only_what_is_new(chat: Chat) -> None:
    _, sampler = play(chat, [call("a"), call("b"), "<answer>x</answer>"])
    assert [request.new_ids for (request,) in sampler.requests] == [
        tuple(chat.prompt("Where?")),
        tuple(chat.observation(["saw a"])),
        tuple(chat.observation(["saw b"])),
    ]
    assert [request.restart for (request,) in sampler.requests] == [True, False, False]


def seen(sampler: ScriptedSampler, made: Trajectory) -> list[list[int]]:
    """What the model saw before each action of one trajectory, as an engine keeps it."""
    contexts: list[list[int]] = []
    for (request,), turn in zip(sampler.requests, made.turns, strict=True):
        before = [] if request.restart else [*contexts[-1], *made.turns[len(contexts) - 1].action_ids]
        contexts.append([*before, *request.new_ids])
        assert turn.given_ids == request.new_ids
    return contexts


def thoughtful(chat: Chat) -> list[str]:
    """Turns with thinking, without, with again, and the answer."""
    return [
        f"<think>\nhm\n</think>\n\n{chat.call('look', {'x': 'a'})}",
        chat.call("look", {"x": "b"}),
        f"<think>so</think>\n\n{chat.call('look', {'x': 'c'})}",
        "<think>\nyes\n</think>\n\n<answer>Rome</answer>",
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_model_sees_the_prompt_and_exactly_the_stored_ids_of_the_turns_before(name: str) -> None:
    """Prefix preservation, thinking included: one segment, whatever the template does to earlier turns."""
    chat = Chat(FAMILIES[name](), [FakeTool("look")], "Be short.")
    (made,), sampler = play(chat, thoughtful(chat), settings=roomy())
    assert (made.ending, made.answer, len(made.turns)) == ("answered", "Rome", 4)
    expected = chat.prompt("Where?")
    for context, turn in zip(seen(sampler, made), made.turns, strict=True):
        assert context == expected
        expected = [*expected, *turn.action_ids, *chat.observation([turn.observation_text])]
    (segment,) = segments(made.turns)
    assert list(segment.token_ids) == [*seen(sampler, made)[-1], *made.turns[-1].action_ids]


@pytest.mark.parametrize("name", FAMILIES)
def test_dropped_thinking_starts_a_segment_that_holds_the_turns_before_as_given_tokens(name: str) -> None:
    """A18: a turn without thinking goes on in its segment; the actions themselves stay as sampled."""
    chat = Chat(FAMILIES[name](), [FakeTool("look")], "Be short.")
    script = thoughtful(chat)
    (made,), sampler = play(chat, script, settings=roomy(earlier_thinking="drop"))
    assert (made.ending, made.answer) == ("answered", "Rome")
    assert [turn.segment for turn in made.turns] == [0, 1, 1, 2]
    assert [turn.action_ids for turn in made.turns] == [tuple(chat.action(text)) for text in script]
    said = [chat.action(chat.call("look", {"x": x})) for x in "abc"]
    results = [chat.observation([f"saw {x}"]) for x in "abc"]
    contexts = seen(sampler, made)
    assert contexts[0] == chat.prompt("Where?")
    assert contexts[1] == [*contexts[0], *said[0], *results[0]]
    assert contexts[2] == [*contexts[1], *said[1], *results[1]]
    last = [*contexts[2], *said[2], *results[2]]
    if name == "hermes3":  # its template adds a line break to results once a message follows
        shown = chat.text(contexts[3]).replace("</tool_response>\n<|im_end|>", "</tool_response><|im_end|>")
        assert shown == chat.text(last)
    else:
        assert contexts[3] == last
    assert [request.restart for (request,) in sampler.requests] == [True, True, False, True]
    rows = list(segments(made.turns))
    assert [sum(row.action_mask) for row in rows] == [
        len(made.turns[0].action_ids), len(said[1]) + len(made.turns[2].action_ids), len(made.turns[3].action_ids),
    ]  # fmt: skip
    assert made.action_span == sum(sum(row.action_mask) for row in rows) + len(results[1])


def test_a_context_without_thinking_has_room_for_what_it_holds() -> None:
    """One token less than the shorter context, the second call, its result and another action take."""
    chat = Chat(FAMILIES["qwen3"](), [FakeTool("look")], "")
    script = [f"<think>{'so ' * 100}</think>{call('a')}", call("b"), "<answer>Rome</answer>"]
    short = [[call(x), *["saw " + x]] for x in "ab"]
    used = len(chat.prompt("Where?")) + sum(len(chat.action(a)) + len(chat.observation([b])) for a, b in short)
    for room, ending in ((32, "answered"), (31, "context_full")):
        limits = config(max_new_tokens=32, max_context=used + room, earlier_thinking="drop")
        (made,), _ = play(chat, script, settings=limits)
        assert (made.ending, len(made.turns)) == (ending, 3 if ending == "answered" else 2)


def test_a_llama_turn_may_end_with_eom_and_keeps_it() -> None:
    chat = Chat(FAMILIES["llama3.1"](), [FakeTool("look")], "")

    class Eom(ScriptedSampler):
        def _action(self, text: str) -> Action:
            action = ScriptedSampler._action(self, text)
            return replace(action, ids=(*action.ids[:-1], chat.end_ids[1])) if text.startswith("{") else action

    sampler = Eom(chat, [[chat.call("look", {"x": "a"}), "<answer>Rome</answer>"]])
    environment = Environments([FakeTool("look")], chat, 5.0, 200)
    (made,) = rollout([Attempt(QUESTION, 0)], sampler, environment, roomy(), ORIGIN)
    assert (made.answer, made.turns[0].observation_text) == ("Rome", "saw a")
    assert chat.tokenizer.decode([made.turns[0].action_ids[-1], *made.turns[1].given_ids]) == (
        '<|eom_id|><|start_header_id|>ipython<|end_header_id|>\n\n"saw a"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_every_ending_is_reached_and_nothing_is_dropped(chat: Chat) -> None:
    """Rule 7: seven attempts, seven trajectories, in order."""
    scripts = [
        ["<answer>Rome</answer>"],
        ["I do not know"],
        [call("a"), "<answer>Ro" + CUT],
        [call(str(number)) for number in range(4)],
        ["<tool_call>{,}</tool_call>", "<answer>Paris</answer>"],
        [call("a", "nope"), call("b"), "<answer></answer>"],
        [""],
    ]
    made, _ = play(chat, *scripts)
    assert [one.ending for one in made] == [
        "answered", "no_answer", "truncated", "max_turns", "answered", "no_answer", "no_answer",
    ]  # fmt: skip
    assert [one.answer for one in made] == ["Rome", None, None, None, "Paris", None, None]
    assert [one.exact_match for one in made] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert [len(one.turns) for one in made] == [1, 1, 2, 4, 2, 3, 1]
    assert [one.attempt for one in made] == list(range(7))
    assert len({one.trajectory_id for one in made}) == 7


def test_a_prompt_without_room_for_an_action_has_no_turn(chat: Chat) -> None:
    room = len(chat.prompt("Where?")) + 8
    (made,), sampler = play(chat, [], settings=config(max_new_tokens=8, max_context=room - 1))
    assert (made.ending, made.turns, made.answer) == ("prompt_too_long", (), None)
    assert sampler.requests == []
    (fits,), _ = play(chat, ["no"], settings=config(max_new_tokens=8, max_context=room))
    assert fits.ending == "no_answer"


def test_a_context_without_room_for_another_action_ends(chat: Chat) -> None:
    """One token less than prompt, action, observation and another action take."""
    used = len(chat.prompt("Where?")) + len(chat.action(call("a"))) + len(chat.observation(["saw a"]))
    script = [call("a"), "<answer>Rome</answer>"]
    (full,), _ = play(chat, script, settings=config(max_new_tokens=32, max_context=used + 31))
    assert full.ending == "context_full"
    assert [record.text for record in full.turns[0].calls] == ["saw a"]
    assert full.turns[0].observation_text == "", "what was not shown is no observation"
    (fits,), _ = play(chat, script, settings=config(max_new_tokens=32, max_context=used + 32))
    assert fits.ending == "answered"


def test_no_segment_is_ever_longer_than_max_context(chat: Chat) -> None:
    limits = config(max_new_tokens=32, max_context=300, max_turns=50)
    made, _ = play(chat, *[[call("x" * length)] * 50 for length in (1, 4, 8)], settings=limits)
    for one in made:
        assert one.ending == "context_full"
        (segment,) = segments(one.turns)
        assert len(segment.token_ids) <= 300


def test_the_last_turn_s_calls_are_run_but_not_shown(chat: Chat) -> None:
    tool = FakeTool("look")
    (made,), _ = play(chat, [call("a"), call("b")], settings=config(max_turns=2), tool=tool)
    assert made.ending == "max_turns"
    assert [turn.observation_text for turn in made.turns] == ["saw a", ""]
    assert made.turns[1].calls[0].text == "saw b"
    assert len(tool.seen) == 2


def test_a_truncated_call_is_not_executed(chat: Chat) -> None:
    """D1, A17: no call, no invented end of turn."""
    tool = FakeTool("look")
    for text in (call("a") + CUT, '<tool_call>\n{"name": "look", "argum' + CUT):
        (made,), _ = play(chat, [text], tool=tool)
        assert (made.ending, made.turns[0].calls) == ("truncated", ())
        assert made.turns[0].action_ids[-1] != chat.end_id
    assert tool.seen == []


def test_a_closed_answer_of_a_truncated_action_does_not_count(chat: Chat) -> None:
    (made,), _ = play(chat, ["<answer>Rome</answer> and" + CUT])
    assert (made.ending, made.answer, made.exact_match) == ("truncated", None, 0.0)


def test_calls_beside_an_answer_are_not_run(chat: Chat) -> None:
    tool = FakeTool("look")
    (made,), _ = play(chat, [call("a") + "<answer>Rome</answer>"], tool=tool)
    assert (made.ending, made.answer, made.turns[0].calls) == ("answered", "Rome", ())
    assert tool.seen == []


def test_a_malformed_call_beside_an_answer_is_kept_and_priced(chat: Chat) -> None:
    """It is not shown, and the turn pays for it, but not for calling tools."""
    tool = FakeTool("look")
    (made,), _ = play(chat, [call("a"), "<tool_call>{,}</tool_call>" + call("b") + "<answer>Rome</answer>"], tool=tool)
    first, last = made.turns
    assert (made.ending, made.answer, last.observation_text) == ("answered", "Rome", "")
    assert [(record.name, record.malformed, record.ok) for record in last.calls] == [("", True, False)]
    assert tool.seen == [{"x": "a"}]
    prices = RewardConfig(outcome=1.0, turn=-0.05, malformed=-0.1)
    assert reward_parts(made, QUESTION, prices) == {
        first.index: {"turn": -0.05},
        last.index: {"outcome": 1.0, "malformed": -0.1},
    }


def test_a_call_inside_thinking_is_not_run(chat: Chat) -> None:
    """D5."""
    tool = FakeTool("look")
    (made,), _ = play(chat, [f"<think>{call('a')}</think>"], tool=tool)
    assert made.ending == "no_answer"
    assert tool.seen == []


def test_an_answer_in_a_tool_s_text_is_not_the_agent_s(chat: Chat) -> None:
    """F3: and the last of the agent's own answers counts (F5)."""
    tool = FakeTool("look", lambda _: ToolResult("<answer>Rome</answer>", ok=True))
    made, _ = play(chat, [call("a"), "hm"], [call("a"), "<answer>Rome</answer><answer>Oslo</answer>"], tool=tool)
    assert [one.answer for one in made] == [None, "Oslo"]


def test_all_results_of_a_turn_are_seen_in_order(chat: Chat) -> None:
    """D7."""
    (made,), _ = play(chat, [call("a") + call("b"), "<answer>x</answer>"])
    assert made.turns[0].observation_text == "saw a\nsaw b"
    assert made.turns[1].given_ids == tuple(chat.observation(["saw a", "saw b"]))


def test_the_sampler_is_told_how_to_sample(chat: Chat) -> None:
    """C5: training at the configured temperature, evaluation at 1; greedy for greedy evaluation alone."""
    settings = config(temperature=0.7, max_new_tokens=9)
    for purpose in ("train", "sampled", "greedy"):
        _, sampler = play(chat, ["no"], settings=settings, purpose=purpose)
        assert sampler.settings == {
            "end_ids": (chat.end_id,),
            "temperature": 0.7 if purpose == "train" else 1.0,
            "greedy": purpose == "greedy",
            "max_new_tokens": 9,
        }


def seeds(chat: Chat, origin: Origin, questions: Sequence[str], seed: int = 0) -> list[list[int]]:
    """The seeds of two turns of an attempt at each question."""
    sampler = ScriptedSampler(chat, [[call("a"), "no"]] * len(questions))
    environment = Environments([FakeTool("look")], chat, 5.0, 200)
    attempts = [Attempt(Question(name, "Where?", ("x",)), 0) for name in questions]
    rollout(attempts, sampler, environment, config().model_copy(update={"seed": seed}), origin)
    return [[request.seed for request in wave] for wave in sampler.requests]


def test_seeds_follow_from_question_attempt_and_turn_and_not_from_the_place_in_a_shard(chat: Chat) -> None:
    """G10, and rule 6."""
    together = seeds(chat, ORIGIN, ["p", "q"])
    assert [wave[1] for wave in together] == [wave[0] for wave in seeds(chat, ORIGIN, ["q"])]
    every = {seed for wave in together for seed in wave}
    assert len(every) == 4
    for other in (Origin("run", 4, "train", 2), Origin("run", 3, "sampled", 2)):
        assert not every & {seed for wave in seeds(chat, other, ["p", "q"]) for seed in wave}
    assert not every & {seed for wave in seeds(chat, ORIGIN, ["p", "q"], seed=1) for seed in wave}
    assert together == seeds(chat, Origin("another name", 3, "train", 7), ["p", "q"])


def test_a_real_policy_s_rollout_is_the_same_again_and_in_other_company(policy: Policy, chat: Chat) -> None:
    """G12: alone or in a shard, a trajectory has the same ids."""
    environment = Environments([FakeTool("look")], chat, 5.0, 200)
    attempts = [Attempt(Question(f"q{n}", "Where?" * (n + 1), ("x",)), n % 2) for n in range(5)]
    settings = config(max_new_tokens=12)

    def run(chosen: Sequence[Attempt]) -> list[Trajectory]:
        return rollout(chosen, EmbeddedSampler(policy), environment, settings, ORIGIN)

    whole = run(attempts)
    assert whole == run(attempts)
    alone = [run([attempt])[0] for attempt in attempts]
    ids = [[turn.action_ids for turn in one.turns] for one in whole]
    assert ids == [[turn.action_ids for turn in one.turns] for one in alone]
    assert [one.ending for one in whole] == [one.ending for one in alone]


def test_an_iteration_draws_its_questions_with_their_attempts() -> None:
    pairs = draw(["a", "b", "c"], RolloutConfig(questions=2, attempts=3), 0, 1)
    assert len(pairs) == 6
    assert [number for _, number in pairs] == [0, 1, 2, 0, 1, 2]
    assert len({question for question, _ in pairs}) == 2


@pytest.mark.parametrize(("questions", "count"), [(4, 3), (5, 2), (7, 7), (3, 1)])
def test_each_question_is_met_once_before_any_is_met_again(questions: int, count: int) -> None:
    ids = [str(number) for number in range(questions)]
    settings = RolloutConfig(questions=count)
    drawn = [question for iteration in range(1, 40) for question, _ in draw(ids, settings, 5, iteration)]
    for epoch in range(len(drawn) // questions):
        assert sorted(drawn[epoch * questions : (epoch + 1) * questions]) == ids


def test_what_an_iteration_draws_follows_from_its_number_alone() -> None:
    """G1, G14: 2 epochs of 4, stopped after any iteration; the draw of the next is the same. Epochs differ."""
    ids = [f"question {number}" for number in range(8)]
    settings = RolloutConfig(questions=4)
    straight = [draw(ids, settings, 0, iteration) for iteration in range(1, 9)]
    assert straight[5] == draw(ids, settings, 0, 6)
    assert straight[0] + straight[1] != straight[2] + straight[3]
    assert straight != [draw(ids, settings, 1, iteration) for iteration in range(1, 9)]


def test_a_question_met_twice_in_an_iteration_gets_further_attempts() -> None:
    pairs = draw(["a", "b", "c"], RolloutConfig(questions=7, attempts=2), 0, 1)
    assert len(pairs) == len(set(pairs)) == 14
    counts = Counter(question for question, _ in pairs)
    assert sorted(counts.values()) == [4, 4, 6]
    for question, count in counts.items():
        assert [number for name, number in pairs if name == question] == list(range(count))
