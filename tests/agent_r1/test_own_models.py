"""A user's own Hugging Face folder, by `model.path` alone: rollouts with tools, an update, a checkpoint."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from families import ENDS, MODELS, save_model
from scripted import ScriptedSampler

from agent_r1.chat import Chat
from agent_r1.config import Config, parse
from agent_r1.dataset import splits
from agent_r1.environments import Environments, open_environments
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.masks import segments
from agent_r1.model import Policy, create, load, pad
from agent_r1.ppo import make_learner, update
from agent_r1.questions.records import Question
from agent_r1.rewards import annotate
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.trajectory import Trajectory
from agent_r1.world.demonstrate import expert
from agent_r1.world.generate import write_database

ORIGIN = Origin("run", 1, "train", 0)
ROOT = Path(__file__).parents[2]
TINY = """\
iterations: 2
threads: 1
world: {people: 8, cities: 4, countries: 3, companies: 4, films: 4, warm_start_scale: 1, warm_start: 20, train: 12,
  validation: 8, test: 8, hops: [2]}
warm_start: {steps: 2}
evaluation: {questions: 8}
ppo: {minibatches: 1, value_steps: 2}
rollout:
  questions: 4
  max_new_tokens: 32
  max_context: 512
model:
  path: tiny
"""


def config(folder: Path) -> Config:
    world = {"people": 8, "cities": 4, "countries": 3, "companies": 4, "films": 4, "warm_start_scale": 1}
    sizes = {"warm_start": 5, "train": 4, "validation": 5, "test": 5}
    return parse(
        {
            "model": {"path": str(folder)},
            "world": {**world, **sizes, "hops": [2]},
            "rollout": {"questions": 4, "max_new_tokens": 24, "max_context": 2048, "earlier_thinking": "drop"},
            "ppo": {"minibatches": 1, "value_steps": 1},
            "evaluation": {"questions": 5},
        },
        "test",
    )


def sampled_by(policy: Policy, made: Trajectory) -> Trajectory:
    """The trajectory with the log-probabilities that its actions have under the policy."""
    turns = []
    for segment in segments(made.turns):
        ids, mask = torch.tensor([segment.token_ids]), pad([segment.action_mask], dtype=torch.bool)
        with torch.no_grad():
            chosen = policy.score(ids, mask, 1.0).logprobs[mask].tolist()
        for turn in (turn for turn in made.turns if turn.segment == segment.index):
            turns.append(replace(turn, action_logprobs=tuple(chosen[: len(turn.action_ids)])))
            chosen = chosen[len(turn.action_ids) :]
    return replace(made, turns=tuple(turns))


def demonstrated(questions: Sequence[Question], environment: Environments, policy: Policy) -> list[Trajectory]:
    """What an expert would do, with a thought before each action."""
    chat, settings = environment.chat, config(Path("x"))
    scripts = [[f"<think>\nso\n</think>\n\n{text}" for text in expert(q, "lookup", chat.call)] for q in questions]
    made = rollout(
        [Attempt(question, 0) for question in questions], ScriptedSampler(chat, scripts), environment, settings, ORIGIN
    )
    return [sampled_by(policy, one) for one in made]


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_with_its_own_template_rolls_out_with_tools_and_is_updated(name: str, tmp_path: Path) -> None:
    save_model(name, tmp_path / "own")
    settings = config(tmp_path / "own")
    policy = create(settings)
    split = splits(settings)[1]
    assert split.world is not None
    write_database(split.world, tmp_path / "w.duckdb")
    with open_environments(settings, tmp_path / "w.duckdb", split.passages, policy.tokenizer) as environment:
        questions = split.questions
        shown = demonstrated(questions[:2], environment, policy)
        own = rollout([Attempt(q, 0) for q in questions[2:]], EmbeddedSampler(policy), environment, settings, ORIGIN)
    assert [one.ending for one in shown] == ["answered"] * 2
    assert all(call.ok for one in shown for turn in one.turns for call in turn.calls)
    assert [turn.segment for turn in shown[0].turns] == list(range(len(shown[0].turns)))
    by_id = {question.id: question for question in questions}
    rows = [row for one in shown + own for row in annotate(one, by_id[one.question_id], settings.rewards)]
    before = [weight.detach().clone() for weight in policy.model.parameters()]
    learner = make_learner(policy, settings)
    done = update(learner, create(settings), rows, settings, iteration=1)
    assert all(math.isfinite(value) for value in done.metrics.values())
    assert done.metrics["ppo/skipped_updates"] == 0
    assert not all(map(torch.equal, before, policy.model.parameters()))


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_of_it_chats_the_same(name: str, tmp_path: Path) -> None:
    save_model(name, tmp_path / "own")
    settings = config(tmp_path / "own")
    first = create(settings)
    (tmp_path / "checkpoint").mkdir()
    first.save(tmp_path / "checkpoint")
    again = load(tmp_path / "checkpoint", settings)
    one, other = (Chat(policy.tokenizer, [], "Be short.") for policy in (first, again))
    assert one.prompt("Where?") == other.prompt("Where?")
    assert one.end_ids == other.end_ids
    assert one.end_id == first.tokenizer.convert_tokens_to_ids(ENDS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_own_model_trains_two_iterations_by_three_lines_of_a_configuration(name: str, tmp_path: Path) -> None:
    save_model(name, tmp_path / "own")
    edits = {"path: tiny": f"path: {tmp_path / 'own'}", "_context: 512": "_context: 2048", "_tokens: 32": "_tokens: 16"}
    text = TINY
    for old, new in edits.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "train", str(tmp_path / "own.yaml"), "--home", str(tmp_path / "home")],
        capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "iteration 2/2" in done.stdout
    (saved,) = (tmp_path / "home").glob("runs/*/checkpoints/00002/policy")
    assert (saved / "chat_template.jinja").read_bytes() == (tmp_path / "own" / "chat_template.jinja").read_bytes()
