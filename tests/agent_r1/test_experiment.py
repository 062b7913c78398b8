"""The file of an experiment: what each run becomes, and what is refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agent_r1.errors import ConfigError
from agent_r1.experiment import Plan, load, plan
from agent_r1.questions.records import Json

BASE: dict[str, Json] = {"iterations": 4, "rollout": {"questions": 8, "attempts": 2}, "ppo": {"minibatches": 2}}
TREE: dict[str, Json] = {
    "base": "quickstart",
    "set": {"iterations": 6, "ppo": {"epochs": 3}},
    "seeds": [3, 5],
    "variants": {"dense": None, "outcome": {"rewards": {"evidence": 0}}},
}


def made(tmp_path: Path, **changes: Json) -> Plan:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump({**TREE, **changes}))
    return plan(load(path), "x", BASE, "x.yaml")


def test_each_variant_and_seed_is_a_run_seed_by_seed(tmp_path: Path) -> None:
    found = made(tmp_path)
    assert [piece.run for piece in found.pieces] == ["x-dense-s3", "x-outcome-s3", "x-dense-s5", "x-outcome-s5"]
    assert {seed: base.run for seed, base in found.bases.items()} == {3: "x-base-s3", 5: "x-base-s5"}


def test_a_run_is_the_base_under_set_under_its_variant_with_its_seed(tmp_path: Path) -> None:
    config = made(tmp_path).pieces[3].config
    assert (config.seed, config.world.seed, config.iterations) == (5, 5, 6)
    assert (config.ppo.epochs, config.ppo.minibatches, config.rewards.evidence) == (3, 2, 0)
    assert config.evaluation.test
    assert config.tracking.experiment == "x"
    assert config.tracking.tags == {"experiment": "x", "variant": "outcome", "seed": "5"}


def test_the_start_does_no_iteration_and_no_test(tmp_path: Path) -> None:
    config = made(tmp_path).bases[3].config
    assert (config.seed, config.iterations, config.evaluation.test) == (3, 0, False)
    assert config.tracking.tags["variant"] == "base"
    tested = plan(load(tmp_path / "x.yaml"), "x", {**BASE, "evaluation": {"test": True}}, "x.yaml")
    assert not tested.bases[3].config.evaluation.test, "whatever the base configuration says"


def test_a_variant_may_have_some_of_the_seeds_only(tmp_path: Path) -> None:
    found = made(tmp_path, variant_seeds={"outcome": [5]})
    assert [piece.run for piece in found.pieces] == ["x-dense-s3", "x-dense-s5", "x-outcome-s5"]


def test_questions_of_a_file_have_no_test_split(tmp_path: Path) -> None:
    changes: dict[str, Json] = {"iterations": 4, "data": {"path": "q.json"}, "tools": ["search"]}
    with pytest.raises(ConfigError, match="primary test/sampled/exact_match needs the built-in world"):
        made(tmp_path, set=changes)
    found = made(tmp_path, set=changes, primary="eval/sampled/exact_match")
    assert not found.pieces[0].config.evaluation.test


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sead": [1]}, "x.yaml: unknown key 'sead'"),
        ({"seeds": []}, "seeds: "),
        ({"seeds": [1, 1]}, r"seeds: one stands twice in \[1, 1\]"),
        ({"seeds": [True]}, "seeds.0: "),
        ({"last": 0}, "last: "),
        ({"last": 7}, "last 7 is above the 6 evaluations of a run"),
        ({"primary": "test/sampled/exact_mach"}, "primary: "),
        ({"variants": {}}, "variants: "),
        ({"variants": {"base": None}}, "variants: 'base' is the name of the start"),
        ({"variants": {"a": {"ppo": {"lr": 1}}}}, "variant 'a': unknown key 'ppo.lr'"),
        ({"variants": {"a": {"ppo": {"epochs": 0}}}}, "variant 'a': ppo.epochs: .* greater than or equal to 1"),
        ({"variants": {"a": {"world": {"people": 90}}}}, "variant 'a': world.people is 90, but all variants share 80"),
        ({"variants": {"a": {"model": {"tiny": {"layers": 2}}}}}, "variant 'a': model.tiny.layers is 2"),
        ({"variants": {"a": {"warm_start": {"steps": 9}}}}, "variant 'a': warm_start.steps is 9"),
        ({"variants": {"a": {"tools": ["sql"]}}}, "variant 'a': tools is"),
        ({"variants": {"a": {"evaluation": {"questions": 9}}}}, "variant 'a': evaluation.questions is 9"),
        ({"variants": {"a": {"iterations": 9}}}, "variant 'a': iterations is 9"),
        ({"variants": {"a": {"rollout": {"max_turns": 3}}}}, "variant 'a': rollout.max_turns is 3"),
        ({"variants": {"a": {"rollout": {"max_new_tokens": 9}}}}, "variant 'a': rollout.max_new_tokens is 9"),
        ({"variants": {"a": {"rollout": {"max_context": 99}}}}, "variant 'a': rollout.max_context is 99"),
        ({"variants": {"a": {"rollout": {"max_observation": 9}}}}, "variant 'a': rollout.max_observation is 9"),
        ({"variants": {"a": {"rollout": {"system_prompt": "Hm"}}}}, "variant 'a': rollout.system_prompt is 'Hm'"),
        ({"variants": {"a": {"rollout": {"tool_timeout": 1.0}}}}, "variant 'a': rollout.tool_timeout is 1.0"),
        ({"variants": {"a": {"rollout": {"temperature": 0.7}}}}, "variant 'a': rollout.temperature is 0.7"),
        ({"variants": {"a": {"rollout": {"attempts": 4}}}}, "is 32 trajectories an iteration, but 16 in the base"),
        ({"variants": {"a": {"seed": 9}}}, "variants.a: seed is set by the experiment itself"),
        ({"set": {"world": {"seed": 9}}}, "set: world.seed is set by the experiment itself"),
        ({"set": {"ppo": {"lr": 9}}}, "base and set: unknown key 'ppo.lr'"),
        ({"variant_seeds": {"a": [3]}}, "variant_seeds: there is no variant 'a'"),
        ({"variant_seeds": {"dense": [4]}}, r"variant_seeds.dense: expected some of seeds, got \[4\]"),
        ({"comparisons": [["dense", "dense"]]}, "comparisons: expected two different variants"),
        ({"comparisons": [["dense", "nope"]]}, "comparisons: expected two different variants"),
    ],
)
def test_what_is_wrong_is_named_before_any_work(tmp_path: Path, changes: dict[str, Json], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        made(tmp_path, **changes)


def test_the_same_draw_may_be_cut_otherwise(tmp_path: Path) -> None:
    found = made(tmp_path, variants={"a": None, "b": {"rollout": {"questions": 4, "attempts": 4, "shard_size": 2}}})
    assert found.pieces[1].config.rollout.attempts == 4
