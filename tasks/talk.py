"""talk: a policy's attempts at one question after the other, listened to; nothing is stored.

The loop is the rollout's, so that what is heard is what training sees. No Prefect task: there is nothing to resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_r1.config import Config
from agent_r1.dataset import Split
from agent_r1.overheard import Listener, OverheardSampler
from agent_r1.questions.records import Question
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.trajectory import Purpose, Trajectory
from tasks.answer import open_policy, open_world

Ask = Callable[[Question, int], Trajectory]


@contextmanager
def open_talk(home: Path, policy: str, config: Config, split: Split, greedy: bool, listener: Listener) -> Iterator[Ask]:
    """Attempts at questions in the world of a split, each from the beginning; another number samples another one.

    Samples at `rollout.temperature`, or takes the likeliest tokens.
    """
    purpose: Purpose = "greedy" if greedy else "train"
    origin = Origin("chat", 0, purpose, 0)
    with (
        open_policy(policy, config, ["policy"]) as opened,
        open_world(home, opened, config, split, ["policy"]) as world,
    ):

        def ask(question: Question, number: int) -> Trajectory:
            attempts = [Attempt(question, number)]
            made = opened.sample(
                lambda sampler: {
                    purpose: rollout(attempts, OverheardSampler(sampler, world.chat, listener), world, config, origin)
                }
            )
            return made[purpose][0]

        yield ask
