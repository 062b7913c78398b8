"""What is measured: two policies that have learned to call a tool, their questions, and completions of their own.

A subject is a folder. Both sides of a comparison read it, and nothing else: policy/ (a plain Hugging Face folder),
world.duckdb (ours), and as JSON settings, questions, facts and completions. Measuring is left to the sides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agent_r1 import model, tiny
from agent_r1.config import Config, parse
from agent_r1.dataset import Split, splits
from agent_r1.environments import open_environments
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.model import Policy
from agent_r1.pretrained import load_packaged
from agent_r1.questions.records import Json, Question
from agent_r1.rewards import annotate
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.trajectory import Annotation
from agent_r1.warm_start import warm_start
from agent_r1.world.generate import World, write_database

TEMPLATE = Path(__file__).with_name("chat.jinja")
"""tiny.jinja, with tool calls rendered too: TRL takes only templates that do."""
MAX_TURNS, MAX_CONTEXT = 6, 512


@dataclass(frozen=True, slots=True)
class Subject:
    """A policy and the size of what it is measured on.

    A rollout is `questions` x `attempts` trajectories of two-hop questions: two calls and the answer, three turns.
    The update's completions are of two to four hops, so that their lengths differ as they do in training.
    """

    name: str
    dtype: str
    max_new_tokens: int
    questions: int
    attempts: int
    update_questions: int
    micro_batch: int
    curriculum: int
    steps: int
    batch: int
    learning_rate: float

    def config(self, folder: Path, threads: int, critic: bool = False) -> Config:
        """A run's configuration on this subject: one step of GRPO without KL, or of PPO with its critic and KL."""
        ppo: dict[str, Json] = {"epochs": 1, "minibatches": 1, "micro_batch": self.micro_batch, "learning_rate": 1e-6}
        ppo |= {"kl_coefficient": 0.03} if critic else {"kl_coefficient": 0.0, "value_steps": 0}
        taught: dict[str, Json] = {"curriculum_steps": self.curriculum, "steps": self.steps, "batch": self.batch}
        tree: dict[str, Json] = {
            "threads": threads,
            "model": {"path": str(folder / "policy"), "dtype": self.dtype},
            "world": {"hops": [2, 3, 4]},
            "rollout": {
                "attempts": self.attempts,
                "max_new_tokens": self.max_new_tokens,
                "max_turns": MAX_TURNS,
                "max_context": MAX_CONTEXT,
                "system_prompt": "",
            },
            "advantages": {} if critic else {"estimator": "group_relative", "whiten": False},
            "ppo": ppo,
            "warm_start": {**taught, "learning_rate": self.learning_rate},
        }
        return parse(tree, self.name)


SUBJECTS = {
    "quickstart": Subject("quickstart", "float32", 32, 24, 8, 24, 16, 300, 1000, 8, 3e-3),
    "smollm2": Subject("smollm2", "bfloat16", 48, 4, 8, 4, 8, 0, 30, 8, 3e-4),
}


def make(subject: Subject, folder: Path, threads: int, say: Callable[[str], None] = print) -> Path:
    """The subject's folder below `folder`, made where it is not there yet; a half-made one is made again."""
    place = folder / subject.name
    recipe = json.dumps({**asdict(subject), "questions": None, "template": TEMPLATE.read_text(encoding="utf-8")})
    done = place / "recipe.json"
    if done.is_file() and done.read_text(encoding="utf-8") == recipe:
        return place
    say(f"{subject.name}: teaching it to call a tool, once")
    place.mkdir(parents=True, exist_ok=True)
    _untaught(subject.name, place / "policy")
    config = subject.config(place, threads)
    policy = model.create(config)
    parts = {split.name: split for split in splits(config)}
    _teach(policy, parts["warm_start"], place, config)
    policy.save(place)
    write_database(_world(parts["train"]), place / "world.duckdb")
    _write(place / "facts.json", [[*key, value] for key, value in _world(parts["train"]).facts.items()])
    asked = {hops: [q for q in parts["train"].questions if q.hops == hops] for hops in (2, 3, 4)}
    _write(place / "questions.json", [[q.id, q.text] for q in asked[2]])
    mixed = [q for trio in zip(*asked.values(), strict=False) for q in trio][: subject.update_questions]
    rows = completions(policy, mixed, place, config)
    _write(place / "completions.json", [asdict(row) for row in rows])
    done.write_text(recipe, encoding="utf-8")
    return place


def completions(policy: Policy, questions: Sequence[Question], place: Path, config: Config) -> list[Annotation]:
    """Annotated trajectories of the policy: what both sides' updates are given."""
    attempts = [Attempt(q, number) for q in questions for number in range(config.rollout.attempts)]
    origin = Origin("benchmark", 1, "train", 0)
    with open_environments(config, place / "world.duckdb", [], policy.tokenizer) as environment:
        made = rollout(attempts, EmbeddedSampler(policy), environment, config, origin)
    asked = {question.id: question for question in questions}
    return [row for each in made for row in annotate(each, asked[each.question_id], config.rewards)]


def read_completions(place: Path) -> list[Annotation]:
    """The annotations that `make` left."""
    rows = json.loads((place / "completions.json").read_text(encoding="utf-8"))
    return [
        Annotation(
            trajectory_id=row["trajectory_id"],
            segment=row["segment"],
            token_ids=tuple(row["token_ids"]),
            action_mask=tuple(row["action_mask"]),
            logprobs=tuple(row["logprobs"]),
            rewards=tuple(row["rewards"]),
            reward_parts={},
        )
        for row in rows
    ]


def read_questions(place: Path) -> list[Question]:
    """The two-hop questions, without their answers: a rollout needs none."""
    rows = json.loads((place / "questions.json").read_text(encoding="utf-8"))
    return [Question(id=name, text=text, answers=("",), evidence=(), dataset="world") for name, text in rows]


def _untaught(name: str, folder: Path) -> None:
    """The policy before its warm start, with the template that both sides use."""
    made: PreTrainedModel
    words: PreTrainedTokenizerBase
    if name == "quickstart":
        made, words = tiny.model(Config().model.tiny, tiny.tokenizer(), seed=0), tiny.tokenizer()
    else:
        made, words = load_packaged()
    words.chat_template = TEMPLATE.read_text(encoding="utf-8")
    made.save_pretrained(folder)
    words.save_pretrained(folder)


def _teach(policy: Policy, split: Split, place: Path, config: Config) -> None:
    database = place / "warm_start.duckdb"
    write_database(_world(split), database)
    with open_environments(config, database, [], policy.tokenizer) as environment:
        warm_start(policy, split.questions, environment, config)
    database.unlink()


def _world(split: Split) -> World:
    assert split.world is not None
    return split.world


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
