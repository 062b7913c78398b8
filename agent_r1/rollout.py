"""Rollouts: attempts at questions, turn by turn, until each has an ending. The loop of the agent is `rollout`.

The engine is a Sampler, the world an Environment for each attempt; scoring the turns is left to rewards.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agent_r1 import watching
from agent_r1.config import Config
from agent_r1.environment import Environment, Step, ToolEnvironment
from agent_r1.environments import Environments
from agent_r1.questions.records import Question
from agent_r1.sampler import Action, ActionRequest, Sampler
from agent_r1.sections import RolloutConfig
from agent_r1.seeds import derive, generator
from agent_r1.tool_calls import ParsedTurn
from agent_r1.trajectory import GREEDY, CallRecord, Ending, Purpose, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Attempt:
    """One question to answer, and the number of the attempt at it within the iteration."""

    question: Question
    number: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where trajectories belong: the run, its iteration, what they are for, and the checkpoint whose weights sample."""

    run: str
    iteration: int
    purpose: Purpose
    checkpoint: int


def draw(question_ids: Sequence[str], config: RolloutConfig, seed: int, iteration: int) -> list[tuple[str, int]]:
    """The (question id, attempt) pairs of an iteration (counted from 1).

    Questions come in seeded permutations, epoch after epoch, so that each is met once before any is met again; the
    place in that order follows from the iteration alone. A question met twice in an iteration gets further attempts.
    """
    first = (iteration - 1) * config.questions
    count: dict[str, int] = {}
    pairs: list[tuple[str, int]] = []
    orders: dict[int, list[int]] = {}
    for place in range(first, first + config.questions):
        epoch, index = divmod(place, len(question_ids))
        if epoch not in orders:
            orders[epoch] = generator(seed, "epoch", epoch).permutation(len(question_ids)).tolist()
        question_id = question_ids[orders[epoch][index]]
        for _ in range(config.attempts):
            pairs.append((question_id, count.setdefault(question_id, 0)))
            count[question_id] += 1
    return pairs


@dataclass(slots=True)
class _Live:
    """A trajectory in progress."""

    attempt: Attempt
    environment: Environment
    asked: str = ""
    given: list[int] = field(default_factory=list)
    segment: int = 0
    length: int = 0  # tokens of the segment
    turns: list[Turn] = field(default_factory=list)
    answer: str | None = None
    score: float | None = None
    ending: Ending | None = None


def rollout(
    attempts: Sequence[Attempt],
    sampler: Sampler,
    environments: Environments,
    config: Config,
    origin: Origin,
) -> list[Trajectory]:
    """One trajectory for each attempt, in order; every one has an ending and none is dropped.

    Training samples at `rollout.temperature`, evaluation at 1.
    """
    limits, chat = config.rollout, environments.chat
    session = sampler.session(
        end_ids=chat.end_ids,
        temperature=limits.temperature if origin.purpose == "train" else 1.0,
        greedy=origin.purpose in GREEDY,
        max_new_tokens=limits.max_new_tokens,
    )
    live = _begun(attempts, environments, config, origin)
    while active := [(row, one) for row, one in enumerate(live) if one.ending is None]:
        actions = session.act([_request(row, one, config.seed, origin) for row, one in active])
        parsed = [chat.parse(action.ids, action.finished) for action in actions]
        asked = [one.attempt.question for _, one in active]
        results = environments.run_calls(list(zip(asked, map(_calls_to_run, parsed), strict=True)))
        finished = [place for place, action in enumerate(actions) if action.finished]
        steps = environments.step([(active[place][1].environment, parsed[place], results[place]) for place in finished])
        step_of = dict(zip(finished, steps, strict=True))
        for place, (_, one) in enumerate(active):
            step = step_of.get(place, Step())
            _advance(one, actions[place], parsed[place], results[place], step, limits)
            if one.ending is None and step is not None:
                _observe(one, step, environments, limits)
        watching.count("trajectories", sum(one.ending is not None for _, one in active))
    return [_finished(one, environments, origin) for one in live]


def _begun(attempts: Sequence[Attempt], environments: Environments, config: Config, origin: Origin) -> list[_Live]:
    """A trajectory for each attempt, with the prompt that its environment asks for."""
    where = (origin.iteration, origin.purpose)
    seeds = [derive(config.seed, "environment", *where, each.question.id, each.number) for each in attempts]
    begun = environments.begin([(each.question, seed) for each, seed in zip(attempts, seeds, strict=True)])
    live = []
    for attempt, one in zip(attempts, begun, strict=True):
        if one is None:
            live.append(_Live(attempt, ToolEnvironment(), ending="environment_failed"))
            continue
        environment, asked = one
        given = environments.chat.prompt(asked)
        has_room = len(given) + config.rollout.max_new_tokens <= config.rollout.max_context
        live.append(_Live(attempt, environment, asked, given, ending=None if has_room else "prompt_too_long"))
    return live


def _request(row: int, one: _Live, seed: int, origin: Origin) -> ActionRequest:
    turn = len(one.turns)
    where = (origin.iteration, origin.purpose, one.attempt.question.id, one.attempt.number, turn)
    restart = turn == 0 or one.segment != one.turns[-1].segment
    return ActionRequest(row, tuple(one.given), derive(seed, "action", *where), restart)


def _calls_to_run(turn: ParsedTurn) -> ParsedTurn:
    """An answer ends the trajectory: calls beside it are not run, malformed ones still count. An empty one is none."""
    return turn if not turn.answer else replace(turn, calls=[])


def _advance(
    one: _Live,
    action: Action,
    parsed: ParsedTurn,
    calls: tuple[CallRecord, ...],
    step: Step | None,
    limits: RolloutConfig,
) -> None:
    """Append the turn and decide whether the trajectory goes on. A step of None is an environment that failed."""
    one.length += len(one.given) + len(action.ids)
    if not action.finished:
        one.ending = "truncated"
    elif step is None:
        one.ending = "environment_failed"
    elif parsed.answer:
        one.ending, one.answer = "answered", parsed.answer
    elif step.done:
        one.ending = "done"
    elif not calls and step.observation is None and step.context is None:
        one.ending = "no_answer"
    elif len(one.turns) + 1 >= limits.max_turns:
        one.ending = "max_turns"
    if step is not None and one.ending is not None:
        one.score = step.score
    one.turns.append(
        Turn(
            index=len(one.turns),
            segment=one.segment,
            given_ids=tuple(one.given),
            action_ids=action.ids,
            action_logprobs=action.logprobs,
            action_text=parsed.text,
            calls=calls if action.finished else (),
            reward=0.0 if step is None else step.reward,
        )
    )


def _observe(one: _Live, step: Step, environments: Environments, limits: RolloutConfig) -> None:
    """The tokens before the next action: what is new, or a context of its own, which begins a segment.

    The environment may bring one, and earlier thinking that is left out makes one.
    """
    turn, chat = one.turns[-1], environments.chat
    shown = [call.text for call in turn.calls] if step.observation is None else [step.observation]
    thinks = limits.earlier_thinking == "drop" and step.context is None and chat.thinks(turn.action_ids)
    if thinks:
        past = [(each.action_ids, [call.text for call in each.calls]) for each in one.turns]
        one.given = chat.without_thinking(one.asked, past)
    else:
        one.given = environments.given_after(step, turn.calls)
    if thinks or step.context is not None:
        one.segment, one.length = one.segment + 1, 0
    if one.length + len(one.given) + limits.max_new_tokens > limits.max_context:
        one.ending = "context_full"
    else:
        one.turns[-1] = replace(turn, observation_text="\n".join(shown))


def _finished(one: _Live, environments: Environments, origin: Origin) -> Trajectory:
    assert one.ending is not None
    question = one.attempt.question
    scored = environments.scores(question, one.answer) if one.score is None else (one.score, one.score)
    return Trajectory(
        run=origin.run,
        iteration=origin.iteration,
        purpose=origin.purpose,
        question_id=question.id,
        attempt=one.attempt.number,
        checkpoint=origin.checkpoint,
        ending=one.ending,
        answer=one.answer,
        exact_match=scored[0],
        f1=scored[1],
        turns=tuple(one.turns),
    )
