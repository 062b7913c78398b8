"""The warm start: supervised steps on demonstrations, only on what the agent would say, in a seeded order."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from families import save_model
from scripted import SMALL
from torch import Tensor

from agent_r1.chat import Chat
from agent_r1.config import Config, parse
from agent_r1.dataset import splits
from agent_r1.environments import Environments, open_tools
from agent_r1.errors import DataError
from agent_r1.model import Policy, create
from agent_r1.questions.records import Evidence, Json, Passage, Question
from agent_r1.tools.databases import Databases
from agent_r1.warm_start import warm_start
from agent_r1.world.generate import write_database

WORLD: dict[str, Json] = {
    "people": 8, "cities": 4, "countries": 3, "companies": 4, "films": 4, "warm_start_scale": 1, "warm_start": 30,
    "train": 5, "validation": 5, "test": 5,
}  # fmt: skip
FILE_QUESTION = Question(
    "f", "Who made Alpha?", ("Anna",), (Evidence("p1", 0), Evidence("p2", 0)),
    (Passage("p1", "Alpha", "By Anna.", ("By Anna.",)), Passage("p2", "Anna", "A person.", ("A person.",))),
)  # fmt: skip


def config(**steps: Json) -> Config:
    sections: dict[str, Json] = {"world": WORLD, "evaluation": {"questions": 5}, "warm_start": {"batch": 2, **steps}}
    return parse({"model": SMALL, **sections}, "test")


def file_config(**steps: Json) -> Config:
    return parse(
        {"model": SMALL, "tools": ["search"], "data": {"path": "x"}, "warm_start": {"batch": 2, **steps}}, "test"
    )


@contextmanager
def environment(policy: Policy, settings: Config, folder: Path) -> Iterator[tuple[list[Question], Environments]]:
    """The warm start's questions and the tools over its world."""
    split = splits(settings)[0]
    assert split.world is not None
    write_database(split.world, folder / "w.duckdb")
    tools = open_tools(settings, folder / "w.duckdb", split.passages, Databases(folder))
    yield list(split.questions), Environments(tools, Chat(policy.tokenizer, tools, ""), 10.0, 128)


def copied(policy: Policy) -> Policy:
    return replace(policy, model=copy.deepcopy(policy.model), value_head=copy.deepcopy(policy.value_head))


def weights(policy: Policy) -> list[Tensor]:
    return [weight.detach().clone() for weight in policy.model.parameters()]


def taught(policy: Policy, settings: Config, folder: Path) -> tuple[Policy, dict[str, float]]:
    pupil = copied(policy)
    with environment(pupil, settings, folder) as (questions, world):
        return pupil, warm_start(pupil, questions, world, settings)


def test_every_phase_takes_its_steps_and_reports_its_loss(policy: Policy, tmp_path: Path) -> None:
    _, metrics = taught(policy, config(curriculum_steps=1, steps=2, sloppy_steps=1), tmp_path)
    assert set(metrics) == {f"warm_start/{name}_loss" for name in ("curriculum", "expert", "sloppy")}
    _, metrics = taught(policy, config(steps=1), tmp_path)
    assert set(metrics) == {"warm_start/expert_loss"}


def test_no_steps_leave_the_policy_alone(policy: Policy, tmp_path: Path) -> None:
    pupil, metrics = taught(policy, config(), tmp_path)
    assert metrics == {}
    assert all(map(torch.equal, weights(pupil), weights(policy)))


def test_the_same_steps_make_the_same_weights_whatever_was_drawn_before(policy: Policy, tmp_path: Path) -> None:
    settings = config(curriculum_steps=1, steps=2, sloppy_steps=2)
    torch.manual_seed(1)
    one, _ = taught(policy, settings, tmp_path)
    torch.manual_seed(2)
    other, _ = taught(policy, settings, tmp_path)
    assert all(map(torch.equal, weights(one), weights(other)))
    assert not any(map(torch.equal, weights(one)[:1], weights(policy)[:1]))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("llama")
    save_model("llama3.2", folder)
    return create(parse({"model": {"path": str(folder)}}, "test"))


@pytest.mark.parametrize(
    ("pupil", "call"),
    [
        ("policy", '<tool_call>\n{{"name": "lookup", "arguments": {}}}\n</tool_call>'),
        ("llama", '{{"name": "lookup", "parameters": {}}}'),
    ],
)
def test_the_first_loss_is_the_mean_over_action_tokens_alone(
    pupil: str, call: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A7, A13: worked out here from a plain forward pass over the demonstration as a chat, in the model's format."""
    policy: Policy = request.getfixturevalue(pupil)
    settings = config(batch=1, curriculum_steps=1)
    settings = settings.model_copy(update={"world": settings.world.model_copy(update={"hops": (2,)})})
    with environment(policy, settings, tmp_path) as (questions, world):
        one_hop = [question for question in questions if question.hops == 1][:1]
        metrics = warm_start(copied(policy), one_hop, world, settings)
        chat, (question,) = world.chat, one_hop
        facts = question.metadata["facts"]
        assert isinstance(facts, list)
        assert isinstance(facts[0], list)
        entity, relation, value = facts[0]
        arguments = f'{{"entity": "{entity}", "relation": "{relation}"}}'
        pieces = [
            (chat.prompt(question.text), False),
            (chat.action(call.format(arguments)), True),
            (chat.observation([str(value)]), False),
            (chat.action(f"<answer>{value}</answer>"), True),
        ]
    ids = torch.tensor([[token for piece, _ in pieces for token in piece]])
    chosen = [is_chosen for piece, is_chosen in pieces for _ in piece]
    with torch.no_grad():
        after = policy.model(input_ids=ids).logits[0].log_softmax(-1)
    losses = [-float(after[place - 1, ids[0, place]]) for place, one in enumerate(chosen) if one]
    assert metrics["warm_start/curriculum_loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-4)


@pytest.mark.parametrize("step", ["curriculum_steps", "steps", "sloppy_steps"])
def test_without_tools_the_answer_alone_is_demonstrated(policy: Policy, tmp_path: Path, step: str) -> None:
    settings = config(batch=1, **{step: 1}).model_copy(update={"tools": ()})
    with environment(policy, settings, tmp_path) as (questions, world):
        asked = [question for question in questions if question.hops == 1][:1]
        (loss,) = warm_start(copied(policy), asked, world, settings).values()
        given, said = world.chat.prompt(asked[0].text), world.chat.action(f"<answer>{asked[0].answers[0]}</answer>")
    with torch.no_grad():
        after = policy.model(input_ids=torch.tensor([[*given, *said]])).logits[0].log_softmax(-1)
    losses = [-float(after[len(given) + place - 1, token]) for place, token in enumerate(said)]
    assert loss == pytest.approx(sum(losses) / len(losses), abs=1e-4)


def test_demonstrations_are_learned(policy: Policy, tmp_path: Path) -> None:
    _, short = taught(policy, config(steps=1), tmp_path)
    _, long = taught(policy, config(steps=60), tmp_path)
    assert long["warm_start/expert_loss"] < 0.8 * short["warm_start/expert_loss"]


def test_real_questions_are_demonstrated_with_their_evidence(policy: Policy, tmp_path: Path) -> None:
    settings = file_config(steps=2)
    tools = open_tools(file_config(), tmp_path, FILE_QUESTION.passages, Databases(tmp_path))
    pupil = copied(policy)
    world = Environments(tools, Chat(policy.tokenizer, tools, ""), 10.0, 128)
    metrics = warm_start(pupil, [FILE_QUESTION], world, settings)
    assert metrics["warm_start/expert_loss"] > 0
    assert not all(map(torch.equal, weights(pupil), weights(policy)))


def test_questions_that_cannot_be_demonstrated_are_a_data_error(policy: Policy, tmp_path: Path) -> None:
    tools = open_tools(file_config(), tmp_path, FILE_QUESTION.passages, Databases(tmp_path))
    world = Environments(tools, Chat(policy.tokenizer, tools, ""), 10.0, 128)
    with pytest.raises(DataError, match=r"warm_start\.steps"):
        warm_start(copied(policy), [replace(FILE_QUESTION, evidence=())], world, file_config(steps=1))
