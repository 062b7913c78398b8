"""The warm start: supervised steps on demonstrations, counted in steps and never by the clock.

It gives a policy the tool format and the skill somewhere; making it show the skill is what the reinforcement is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agent_r1 import watching
from agent_r1.config import Config
from agent_r1.environment import Step
from agent_r1.environments import Environments
from agent_r1.errors import DataError
from agent_r1.masks import Segment, segments
from agent_r1.model import Policy, pad
from agent_r1.questions.demonstrations import demonstration
from agent_r1.questions.records import Question
from agent_r1.seeds import derive, generator
from agent_r1.trajectory import CallRecord, Turn
from agent_r1.world.demonstrate import demonstrating_tool, expert, sloppy


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of supervised steps with its own learning rate; `make` gives the segments of the n-th demonstration."""

    name: str
    steps: int
    learning_rate: float
    make: Callable[[int], list[Segment]]


def warm_start(
    policy: Policy, questions: Sequence[Question], environments: Environments, config: Config
) -> dict[str, float]:
    """Train the policy in place; returns metrics, the last losses of each phase. DataError where none can be shown."""
    plan = _world_phases if config.data.path is None else _file_phases
    metrics: dict[str, float] = {}
    watching.expect("steps", config.warm_start.total_steps)
    for phase in plan(questions, environments, config):
        if phase.steps:
            losses = _supervise(policy, phase, config.warm_start.batch)
            metrics[f"warm_start/{phase.name}_loss"] = float(np.mean(losses[-20:]))
    return metrics


def _world_phases(questions: Sequence[Question], environments: Environments, config: Config) -> Iterator[Phase]:
    settings = config.warm_start
    tool = demonstrating_tool(config.tools)
    write = environments.chat.call
    easy = [question for question in questions if question.hops == 1] or list(questions)

    def good(number: int, pool: Sequence[Question] = questions) -> list[Segment]:
        question = _pick(pool, number, config.seed)
        return _played(_possible(expert(question, tool, write), environments), question, environments)

    def careless(number: int) -> list[Segment]:
        rng = generator(config.seed, "warm_start", "sloppy", number)
        question = _pick(questions, number, config.seed)
        if not environments.tools or rng.random() < settings.expert_share:
            return good(number)
        actions = sloppy(question, tool, lambda text: _observe(text, question, environments), rng, write)
        return _played(actions, question, environments)

    yield Phase("curriculum", settings.curriculum_steps, settings.learning_rate, lambda number: good(number, easy))
    yield Phase("expert", settings.steps, settings.learning_rate, good)
    yield Phase("sloppy", settings.sloppy_steps, settings.sloppy_learning_rate, careless)


def _file_phases(questions: Sequence[Question], environments: Environments, config: Config) -> Iterator[Phase]:
    write = environments.chat.call
    tools = [tool.name for tool in environments.tools]
    shown = {
        question.id: texts
        for question in questions
        if (texts := demonstration(question, derive(config.seed, "demonstration", question.id), write, tools))
    }
    usable = [question for question in questions if question.id in shown]
    if config.warm_start.steps and not usable:
        raise DataError("warm_start.steps: no training question has gold evidence and an answer to demonstrate with")

    def good(number: int) -> list[Segment]:
        question = _pick(usable, number, config.seed)
        actions = _possible(iter(shown[question.id]), environments)
        return _played(actions, question, environments, config.rollout.max_context)

    yield Phase("expert", config.warm_start.steps, config.warm_start.learning_rate, good)


def _possible(actions: Iterator[str], environments: Environments) -> Iterator[str]:
    """A good demonstration's actions; where there are no tools, the last alone, which is the answer."""
    return actions if environments.tools else iter(list(actions)[-1:])


def _pick(pool: Sequence[Question], number: int, seed: int) -> Question:
    """The question of the n-th demonstration: every one once before any again."""
    epoch, place = divmod(number, len(pool))
    return pool[(place * _stride(len(pool), seed) + epoch) % len(pool)]


def _stride(size: int, seed: int) -> int:
    """A seeded step through `size` places that meets each of them once."""
    stride = derive(seed, "warm_start", "order") % size or 1
    while np.gcd(stride, size) != 1:
        stride += 1
    return stride


def _observe(text: str, question: Question, environments: Environments) -> str:
    chat = environments.chat
    return "\n".join(call.text for call in environments.run_calls([(question, chat.parse(chat.action(text)))])[0])


def _played(
    actions: Iterator[str], question: Question, environments: Environments, limit: int | None = None
) -> list[Segment]:
    """Play actions in an environment and lay the tokens out as a rollout does; actions past `limit` are left out.

    DataError where the environment fails.
    """
    chat = environments.chat
    (begun,) = environments.begin([(question, derive(0, "demonstration", question.id))])
    if begun is None:
        raise DataError(f"question {question.id!r}: the environment cannot be demonstrated in: it failed to reset")
    environment, asked = begun
    given, length, segment = chat.prompt(asked), 0, 0
    turns: list[Turn] = []
    before: tuple[Step, tuple[CallRecord, ...]] | None = None
    for text in actions:
        if before is not None:
            given = environments.given_after(*before)
            if before[0].context is not None:
                length, segment = 0, segment + 1
        ids = tuple(chat.action(text))
        length += len(given) + len(ids)
        if limit is not None and length > limit and turns:
            break
        turns.append(Turn(len(turns), segment, tuple(given), ids, (0.0,) * len(ids), text))
        parsed = chat.parse(ids)
        (results,) = environments.run_calls([(question, parsed)])
        (step,) = environments.step([(environment, parsed, results)])
        if step is None:
            raise DataError(f"question {question.id!r}: the environment failed at demonstration's turn {len(turns)}")
        before = (step, results)
    return list(segments(turns))


def _supervise(policy: Policy, phase: Phase, batch: int) -> list[float]:
    """AdamW steps on the mean cross-entropy of the demonstrations' action tokens; the rate falls to 0 at the end."""
    policy.model.eval()  # no dropout: its random numbers would be nobody's
    parameters = list(policy.model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=phase.learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    losses = []
    for step in range(phase.steps):
        progress = step / phase.steps
        scale = min((step + 1) / 50, 1.0) * min(1.0, (1 - progress) / 0.3)
        for group in optimizer.param_groups:
            group["lr"] = phase.learning_rate * scale
        rows = [row for place in range(batch) for row in phase.make(step * batch + place)]
        ids_B_T = pad([row.token_ids for row in rows], dtype=torch.long)
        mask_B_T = pad([row.action_mask for row in rows], fill=False, dtype=torch.bool)
        loss = -policy.score(ids_B_T, mask_B_T, temperature=1.0).logprobs.sum() / mask_B_T.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        watching.count("steps")
    return losses
