"""What a configuration says that cannot go together, though each key alone is fine. The keys are config.py's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_r1.questions.loading import FORMATS
from agent_r1.sections import COMPONENTS, OWN
from agent_r1.world.names import NAMES
from agent_r1.world.relations import HOPS_OF_KIND

if TYPE_CHECKING:
    from agent_r1.config import Config


def contradictions(config: Config) -> list[str]:
    """Each in a sentence that names its keys."""
    return [*_of_questions(config), *_of_training(config)]


def _of_questions(config: Config) -> list[str]:
    """Contradictions of tools, data and world."""
    found = []
    known_tools = {"search", "sql", "schema", "lookup", "calculator"}
    for name in config.tools:
        if name not in known_tools and not re.fullmatch(OWN, name):
            found.append(
                f"tools: unknown tool {name!r}; known are {', '.join(sorted(known_tools))}, your own are module:name"
            )
    if len(set(config.tools)) != len(config.tools):
        found.append(f"tools: a tool is named twice in {list(config.tools)}")
    for key in ("corpus", "url"):
        if getattr(config.search, key) is not None and "search" not in config.tools:
            found.append(f"search.{key} is set, but 'search' is not among the tools")
    if config.search.corpus is not None and config.search.url is not None:
        found.append("search.corpus and search.url are both set: search looks in one place")
    if config.data.path is not None:
        if "lookup" in config.tools:
            found.append("tools: 'lookup' needs the built-in world's database, but data.path is set")
        for name in sorted({"sql", "schema"} & set(config.tools)):
            if config.data.databases is None:
                found.append(f"tools: {name!r} needs the folder of the questions' databases: set data.databases")
        for key in ("curriculum_steps", "sloppy_steps"):
            if getattr(config.warm_start, key):
                found.append(f"warm_start.{key} needs the built-in world, but data.path is set")
        if config.evaluation.test:
            found.append("evaluation.test needs the built-in world's test split, but data.path is set")
    else:
        for key in ("validation_path", "databases"):
            if getattr(config.data, key) is not None:
                found.append(f"data.{key} is set, but data.path is not")
        if config.world.entities > len(NAMES):
            found.append(
                f"world: its splits need {config.world.entities} names, there are {len(NAMES)}: "
                "take fewer people, cities, countries, companies or films, or a smaller warm_start_scale"
            )
        if config.evaluation.questions > config.world.validation:
            found.append(
                f"evaluation.questions {config.evaluation.questions} is above world.validation "
                f"{config.world.validation}"
            )
    if config.world.answers == "queries" and config.world.kinds != ("compositional",):
        found.append("world.answers: queries are known for compositional questions only, see world.kinds")
    if config.data.format not in ("auto", *FORMATS):
        found.append(f"data.format: {config.data.format!r} is none of auto, {', '.join(FORMATS)}")
    for hops in config.world.hops:
        if not any(hops in HOPS_OF_KIND[kind] for kind in config.world.kinds):
            found.append(f"world.hops: none of world.kinds {list(config.world.kinds)} can have {hops} hops")
    for kind in config.world.kinds:
        if not set(HOPS_OF_KIND[kind]) & set(config.world.hops):
            found.append(f"world.kinds: {kind} has {HOPS_OF_KIND[kind][0]} hops, which world.hops does not ask for")
    return found


def _of_training(config: Config) -> list[str]:
    """Contradictions of rewards, rollouts, updates and checkpoints."""
    found = []
    names = [*COMPONENTS, *(own.name for own in config.rewards.own)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.append(f"rewards.own: there is more than one reward named {name!r}: give the function another name")
    if config.environment != "tools" and config.rollout.earlier_thinking == "drop":
        found.append("rollout.earlier_thinking drop is of environment tools: one of your own may rewrite the context")
    if config.rewards.evidence > config.rewards.outcome:
        found.append(
            f"rewards.evidence {config.rewards.evidence} is above rewards.outcome {config.rewards.outcome}: "
            "collecting evidence would pay more than answering"
        )
    if config.rewards.potential > 0 and config.advantages.gamma != 1:
        found.append(
            f"rewards.potential needs advantages.gamma 1, not {config.advantages.gamma}: "
            "a discount by token would not let it cancel by turn"
        )
    if config.advantages.grouped and config.rollout.attempts < 2:
        found.append(
            f"advantages.estimator {config.advantages.estimator} compares the attempts at a question, "
            f"but rollout.attempts is {config.rollout.attempts}"
        )
    served = config.rollout.vllm
    if served.url is not None and (served.python is not None or served.arguments):
        found.append("rollout.vllm.url names a server that runs: vllm.python and vllm.arguments start one of our own")
    draw = config.rollout.questions * config.rollout.attempts
    if config.ppo.minibatches > draw:
        found.append(f"ppo.minibatches {config.ppo.minibatches} is above the draw of {draw} trajectories")
    if config.rollout.max_new_tokens >= config.rollout.max_context:
        found.append("rollout.max_new_tokens must be below rollout.max_context")
    if config.model.path == "tiny" and config.rollout.max_context > config.model.tiny.context:
        found.append(
            f"rollout.max_context {config.rollout.max_context} is above model.tiny.context {config.model.tiny.context}"
        )
    for keep in config.keep_checkpoints:
        if keep not in ("last", "best", "all") and not (
            keep.startswith("every:") and keep[6:].isascii() and keep[6:].isdecimal() and int(keep[6:])
        ):
            found.append(f"keep_checkpoints: {keep!r} is none of last, best, all, every:N")
    if "last" not in config.keep_checkpoints and "all" not in config.keep_checkpoints:
        found.append("keep_checkpoints must hold 'last': a run resumes from it")
    return found
