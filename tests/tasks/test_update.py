"""update, and the checkpoints it goes from and to: with adapters, over a kill, as without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_r1 import model
from agent_r1.config import parse
from agent_r1.questions.records import Json
from agent_r1.trajectory import Annotation
from storage import annotations, checkpoints
from tasks.context import RunContext
from tasks.data import learning_policy, sampling_policy
from tasks.stage import Receipt
from tasks.update import update
from tasks.warm_start import warm_start

SETTINGS: dict[str, Json] = {
    "model": {"dtype": "bfloat16", "tiny": {"layers": 1, "width": 16, "heads": 1}, "lora": {"rank": 2}},
    "ppo": {"epochs": 1, "minibatches": 2, "kl_coefficient": 0.1, "value_steps": 2},
}
ROWS = [
    Annotation(f"t{n}", 0, (5, 6 + n, 7, 8), (False, True, True, False), (0, -6.6, -6.7, 0), (0, 0, n - 1.5, 0), {})
    for n in range(4)
]


class Killed(BaseException):
    """Stands for a kill: nothing catches it or cleans up after it."""


def context(home: Path) -> RunContext:
    """A new process's view of the run, whose iterations are annotated."""
    found = RunContext(home, "r", parse(SETTINGS, "test"))
    with found.store.write() as con:
        for iteration in (1, 2):
            annotations.save(con, "r", iteration, ROWS)
    return found


def begin(home: Path) -> Receipt:
    """Checkpoints 0 and 1."""
    return update.fn(context(home), 1, warm_start.fn(context(home), {}, None), {})


def test_an_update_that_was_killed_and_done_again_is_that_of_an_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second update goes on from the adapters and optimizer of the first, on the base of checkpoint 0."""
    straight = update.fn(context(tmp_path / "a"), 2, begin(tmp_path / "a"), {})
    first = begin(tmp_path / "b")

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_trainer", die)
        with pytest.raises(Killed):
            update.fn(context(tmp_path / "b"), 2, first, {})
    assert update.fn(context(tmp_path / "b"), 2, first, {}) == straight
    assert straight["weights"] != first["weights"]


def test_every_stage_sees_the_adapters_and_one_base(tmp_path: Path) -> None:
    begin(tmp_path)
    run = context(tmp_path)
    files = {file.path for file in checkpoints.verify(run.checkpoint(1)).files}
    assert {"policy/model.safetensors", "adapter/adapter_model.safetensors", "trainer.pt"} <= files
    assert sum(path.endswith("model.safetensors") for path in files) == 2
    learner, sampler = learning_policy(run, 1), sampling_policy(run, 1)
    assert learner.lora == sampler.lora == run.config.model.lora
    base = model.load(run.checkpoint(0), run.config).model.state_dict()
    for name, weight in learner.model.state_dict().items():
        if ".lora_" not in name:
            plain = base[name.replace(".base_layer", "")]
            assert weight.equal(plain.to(weight.dtype))
    assert all(weight.abs().max() > 0 for weight in sampler.trained)
