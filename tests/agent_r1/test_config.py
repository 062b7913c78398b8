"""The configuration: strict, frozen, consistent, and its identity (B14, B15, C3, B18; the promised keys)."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent_r1.config import Config, load, operational_keys, parse
from agent_r1.config_file import lay_over
from agent_r1.errors import ConfigError
from agent_r1.questions.records import Json

NAMED = re.findall(
    r"\S+",
    """
    seed model.path data.path data.format world.hops world.seed tools
    rollout.engine rollout.questions rollout.attempts rollout.temperature rollout.max_turns rollout.max_new_tokens
    rollout.shard_size
    rewards.outcome rewards.evidence rewards.turn rewards.malformed rewards.failed rewards.repeated rewards.unanswered
    advantages.estimator advantages.gamma advantages.lam advantages.whiten
    ppo.learning_rate ppo.value_learning_rate ppo.epochs ppo.minibatches ppo.clip_low ppo.clip_high ppo.dual_clip
    ppo.kl_coefficient ppo.kl_estimator ppo.kl_in ppo.max_grad_norm
    masks.loss masks.advantages warm_start.steps evaluation.questions evaluation.metric evaluation.every
    iterations keep_checkpoints device store.lock_wait
    """,
)
"""The keys that other programs rely on."""


def tree(key: str, value: Json) -> dict[str, Json]:
    """`a.b` and a value as nested keys."""
    first, _, rest = key.partition(".")
    return {first: tree(rest, value) if rest else value}


def test_the_promised_keys_exist() -> None:
    assert set(NAMED) <= set(Config().flat())


def test_the_defaults_are_a_valid_configuration() -> None:
    assert parse({}, "test") == Config()


@pytest.mark.parametrize("name", ["quickstart", "hotpotqa-smollm2"])
def test_shipped_configurations_are_valid(name: str) -> None:
    load(Path(str(files("flows.configs").joinpath(f"{name}.yaml"))))


@pytest.mark.parametrize("key", ["nonsense", "ppo.lr", "model.tiny.depth", "rollout.tool_choice", "masks.los"])
def test_an_unknown_key_is_named(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^file\.yaml: unknown key '{key}'(; did you mean '[a-z._]+'\?)?$"):
        parse(tree(key, 1), "file.yaml")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("advantages.estimator", "ppo"),
        ("advantages.estimator", "GRPO"),
        ("rewards.potential", -0.1),
        ("advantages.lam", 1.5),
        ("advantages.gamma", 0),
        ("ppo.clip_low", 1.0),
        ("ppo.clip_high", 0),
        ("ppo.dual_clip", 1.0),
        ("ppo.kl_estimator", "k4"),
        ("ppo.kl_coefficient", -1),
        ("ppo.learning_rate", ".inf"),
        ("ppo.learning_rate", float("nan")),
        ("ppo.micro_batch", 0),
        ("ppo.micro_batch_tokens", 0),
        ("model.lora.rank", -1),
        ("model.lora.alpha", 0),
        ("model.lora.dropout", 0.1),
        ("ppo.epochs", 0),
        ("rollout.temperature", 0),
        ("rollout.top_k", 2),
        ("rollout.engine", "sglang"),
        ("rollout.vllm.url", "127.0.0.1:8000"),
        ("search.url", "127.0.0.1:8000/retrieve"),
        ("search.url", "http:///retrieve"),
        ("search.timeout", 0),
        ("rollout.attempts", "many"),
        ("rewards.turn", 0.1),
        ("rewards.failed", 0.1),
        ("rewards.outcome", -1),
        ("world.hops", []),
        ("world.kinds", ["riddle"]),
        ("device", "tpu"),
        ("seed", -1),
        ("iterations", 1.5),
        ("evaluation.metric", "accuracy"),
        ("store.lock_wait", None),
        ("seed", True),
        ("seed", 2**63),
        ("world.seed", 2**63),
        ("world.hops", [True, 2]),
        ("ppo.learning_rate", True),
        ("ppo.target_kl", False),
        ("threads", 1025),
        ("threads", True),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(key: str, value: Json) -> None:
    """B14: an unknown estimator raises here, before any work; C6: there is no top_k."""
    with pytest.raises(ConfigError, match=key.rpartition(".")[2]) as caught:
        parse(tree(key, value), "f")
    assert key in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_hop_out_of_range_is_refused_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"world\.hops\.1: .*\(got 5\)"):
        parse({"world": {"hops": [2, 5]}}, "f")


def test_every_problem_is_named_in_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"seed": "x", "ppo": {"epochs": 0, "lr": 1}}, "f")
    message = str(caught.value)
    assert all(key in message for key in ("seed", "ppo.epochs", "ppo.lr"))
    assert "\n" not in message


FILE: dict[str, Json] = {"data": {"path": "x.json"}, "tools": ["search"]}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"tools": ["lookup", "browser"]}, "tools: unknown tool 'browser'"),
        ({"tools": ["lookup", "lookup"]}, "tools: a tool is named twice"),
        ({**FILE, "tools": ["sql", "search"]}, "tools: 'sql' needs the folder of the questions' databases"),
        ({**FILE, "tools": ["lookup"]}, "tools: 'lookup' needs the built-in world"),
        ({**FILE, "warm_start": {"curriculum_steps": 1}}, "warm_start.curriculum_steps"),
        ({**FILE, "warm_start": {"sloppy_steps": 1}}, "warm_start.sloppy_steps"),
        ({"data": {"validation_path": "x"}}, "data.validation_path is set, but data.path is not"),
        ({"data": {"path": "x.json", "format": "parquet"}, "tools": ["search"]}, "data.format: 'parquet'"),
        ({"search": {"corpus": "c.jsonl"}}, "search.corpus is set, but 'search' is not among the tools"),
        ({"search": {"url": "http://a/b"}}, "search.url is set, but 'search' is not among the tools"),
        (
            {**FILE, "search": {"corpus": "c.jsonl", "url": "http://a/b"}},
            "search.corpus and search.url are both set",
        ),
        ({"rewards": {"evidence": 1.5}}, "rewards.evidence 1.5 is above rewards.outcome 1.0"),
        ({"rollout": {"questions": 3}, "ppo": {"minibatches": 4}}, "ppo.minibatches 4 is above the draw of 3"),
        ({"advantages": {"estimator": "rloo"}}, "advantages.estimator leave_one_out .* rollout.attempts is 1"),
        (
            {"advantages": {"estimator": "group_relative"}},
            "advantages.estimator group_relative .* rollout.attempts is 1",
        ),
        (
            {"rewards": {"potential": 0.1}, "advantages": {"gamma": 0.9}},
            "rewards.potential needs advantages.gamma 1, not 0.9",
        ),
        ({"ppo": {"kl_estimator": "k1"}}, "kl_estimator k1 in the loss"),
        ({"rollout": {"max_context": 2048}}, "rollout.max_context 2048 is above model.tiny.context 1024"),
        ({"model": {"tiny": {"width": 100, "heads": 3}}}, "width 100"),
        ({"keep_checkpoints": ["best"]}, "keep_checkpoints must hold 'last'"),
        ({"keep_checkpoints": ["last", "every:0"]}, "keep_checkpoints: 'every:0'"),
        ({"keep_checkpoints": ["last", "every:²"]}, "keep_checkpoints: 'every:²'"),
        ({"keep_checkpoints": ["last", "every:٣"]}, "keep_checkpoints: 'every:٣'"),
        ({"world": {"people": 101}}, "world: its splits need 1608 names, there are 1600"),
        ({"world": {"warm_start_scale": 6}}, "world: its splits need 1620 names"),
        ({"world": {"validation": 100}}, "evaluation.questions 120 is above world.validation 100"),
        ({"keep_checkpoints": ["last", "some"]}, "keep_checkpoints: 'some'"),
        ({"world": {"hops": [2, 3], "kinds": ["comparison"]}}, "world.hops: none of world.kinds .* can have 3 hops"),
        ({"world": {"hops": [1], "kinds": ["bridge_comparison"]}}, "world.hops: none of world.kinds"),
        ({"world": {"hops": [3], "kinds": ["compositional", "comparison"]}}, "world.kinds: comparison has 2 hops"),
    ],
)
def test_contradictory_settings_name_the_keys(settings: dict[str, Json], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse(settings, "f")


@pytest.mark.parametrize(
    "settings",
    [
        {"ppo": {"kl_estimator": "k1", "kl_in": "reward"}},
        {"ppo": {"kl_estimator": "k1", "kl_coefficient": 0}},
        {"ppo": {"micro_batch": 10_000}},
        {"world": {"hops": [2, 4], "kinds": ["comparison", "bridge_comparison"]}},
        {"keep_checkpoints": ["last", "every:5"]},
        {"keep_checkpoints": ["all"]},
        {"device": "cuda:1"},
        {"seed": 2**63 - 1, "masks": {"loss": False}},
        {"world": {"people": 100}},
        {"advantages": {"estimator": "reinforce++", "gamma": 0.9}},
        {"advantages": {"estimator": "grpo"}, "rollout": {"attempts": 2}},
        {"rewards": {"potential": 5.0}},
        {**FILE, "search": {"corpus": "c.jsonl"}},
        {**FILE, "search": {"url": "http://127.0.0.1:8000/retrieve"}},
        {**FILE, "world": {"people": 10_000, "validation": 1}},
    ],
)
def test_settings_that_agree_are_taken(settings: dict[str, Json]) -> None:
    """C3: a micro-batch above the minibatch is one pass."""
    parse(settings, "f")


@pytest.mark.parametrize(
    ("short", "name"),
    [("grpo", "group_relative"), ("rloo", "leave_one_out"), ("reinforce++", "reinforce_plus_plus"), ("gae", "gae")],
)
def test_an_estimator_s_short_name_is_the_same_run(short: str, name: str) -> None:
    one, other = (parse({"advantages": {"estimator": each}, "rollout": {"attempts": 4}}, "f") for each in (short, name))
    assert one.advantages.estimator == name
    assert one.identity == other.identity


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(ValidationError):
        Config().seed = 3


OPERATIONAL: dict[str, Json] = {
    "iterations": 99,
    "device": "cpu",
    "threads": 7,
    "keep_checkpoints": ["all"],
    "rollout.vllm.python": "/opt/python",
    "rollout.vllm.url": "http://127.0.0.1:8000",
    "rollout.vllm.arguments": ["--x"],
    "rollout.vllm.cpu_cache_gib": 9,
    "rollout.vllm.start_timeout": 1.0,
    "rollout.vllm.timeout": 2.0,
    "search.timeout": 2.0,
    "ppo.micro_batch": 3,
    "ppo.micro_batch_tokens": 512,
    "ppo.gradient_checkpointing": True,
    "store.lock_wait": 1.0,
    "evaluation.test": True,
    "tracking.experiment": "mine",
    "tracking.tags": {"colour": "blue"},
    "tracking.traces": 0,
}


def test_operational_keys_are_these() -> None:
    assert operational_keys() == set(OPERATIONAL)


def test_a_section_that_is_a_plain_mapping_is_one_key_and_can_be_hashed() -> None:
    """Configurations are keys of caches."""
    config = parse({"tracking": {"tags": {"colour": "blue"}}}, "f")
    assert config.flat()["tracking.tags"] == {"colour": "blue"}
    assert hash(config) != hash(Config())


def test_a_question_file_has_no_test_split() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.test needs the built-in world's test split"):
        parse({"data": {"path": "q.json"}, "tools": ["search"], "evaluation": {"test": True}}, "f")


def test_changes_are_laid_over_section_by_section() -> None:
    tree: dict[str, Json] = {"a": {"x": 1, "y": [1, 2]}, "b": 3, "c": None}
    changes: dict[str, Json] = {"a": {"y": [9], "z": {"w": 1}}, "b": None, "c": {"v": 2}}
    assert lay_over(tree, changes) == {"a": {"x": 1, "y": [9], "z": {"w": 1}}, "b": None, "c": {"v": 2}}
    assert lay_over(tree, {"a": None}) == tree, "an empty section changes nothing"
    assert tree["a"] == {"x": 1, "y": [1, 2]}


def test_identity_ignores_operational_keys() -> None:
    changed = Config()
    for key, value in OPERATIONAL.items():
        changed = parse(tree(key, value), "f")
        assert changed != Config()
        assert changed.identity == Config().identity, key
        assert key not in changed.identity_keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 1),
        ("model.path", "else"),
        ("model.tiny.width", 64),
        ("world.seed", 1),
        ("world.hops", [2]),
        ("tools", ["search"]),
        ("rollout.temperature", 0.9),
        ("rollout.shard_size", 8),
        ("rewards.turn", 0.0),
        ("advantages.lam", 1.0),
        ("ppo.learning_rate", 1e-5),
        ("masks.loss", False),
        ("warm_start.steps", 1),
        ("evaluation.questions", 7),
    ],
)
def test_identity_changes_with_what_is_computed(key: str, value: Json) -> None:
    changed = parse(tree(key, value), "f")
    assert changed.identity != Config().identity
    differing = {name for name, old in Config().identity_keys().items() if changed.identity_keys()[name] != old}
    assert differing == {key}


@pytest.mark.parametrize(("key", "value"), [("search.corpus", "c.jsonl"), ("search.url", "http://a/b")])
def test_where_search_looks_is_part_of_the_identity(key: str, value: Json) -> None:
    changed = parse(lay_over({"tools": ["search"]}, tree(key, value)), "f")
    assert changed.identity != parse({"tools": ["search"]}, "f").identity


def test_a_key_that_a_later_version_adds_leaves_identities_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored runs go on: an added key stands at its default, which is no part of the hash."""
    before = parse({"seed": 2}, "f").identity
    flat = Config.flat
    monkeypatch.setattr(Config, "flat", lambda self: {**flat(self), "search.added_later": 7})
    assert parse({"seed": 2}, "f").identity == before


def test_identity_does_not_depend_on_how_the_keys_were_written(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("ppo: {epochs: 3, learning_rate: 1e-4}\nseed: 2\n")
    assert load(path).identity == parse({"seed": 2, "ppo": {"learning_rate": 0.0001, "epochs": 3}}, "f").identity


def test_a_configuration_survives_json() -> None:
    made = parse({"world": {"hops": [3]}, "rollout": {"system_prompt": "Grüße"}}, "f")
    assert Config.model_validate_json(made.model_dump_json()) == made


def test_overrides_are_yaml_values_of_dotted_keys(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("ppo:\n  epochs: 3\n")
    made = load(
        path,
        ["ppo.epochs=5", "world.hops=[2, 4]", "rollout.system_prompt=''", "ppo.learning_rate=1e-5", "ppo.dual_clip=3"],
    )
    assert made.rollout.system_prompt == ""
    assert (made.ppo.epochs, made.world.hops, made.ppo.learning_rate, made.ppo.dual_clip) == (5, (2, 4), 1e-5, 3.0)


@pytest.mark.parametrize("override", ["ppo.epochs", "=3", "ppo..epochs=3", "seed.x=1", "ppo.epochs=[", "ppo.lr=1"])
def test_a_wrong_override_is_a_config_error_that_names_it(tmp_path: Path, override: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("seed: 1\n")
    with pytest.raises(ConfigError, match=r"ppo|=3|seed"):
        load(path, [override])


@pytest.mark.parametrize(
    ("text", "named"), [("- 1\n", "list"), ("a: [", "not YAML"), ("just text", "str"), ("\x00", "not YAML|read")]
)
def test_a_file_that_is_no_configuration_is_a_config_error(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absent_file_is_a_config_error_and_an_empty_one_the_defaults(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        load(tmp_path / "absent.yaml")
    (tmp_path / "empty.yaml").write_text("")
    assert load(tmp_path / "empty.yaml") == Config()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("seed: 1\nseed: 2\n", "seed"),
        ("ppo:\n  epochs: 1\nseed: 1\nppo: {}\n", "ppo"),
        ("ppo: {epochs: 1, epochs: 1}", "epochs"),
    ],
)
def test_a_key_that_stands_twice_is_a_config_error_that_names_it(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"'{key}' stands twice"):
        load(path)


def test_a_key_may_change_one_that_is_merged_in(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("ppo: {<<: {epochs: 3, minibatches: 2}, epochs: 4}\n")
    made = load(path).ppo
    assert (made.epochs, made.minibatches) == (4, 2)


def test_an_empty_section_is_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("ppo:\nmodel:\n  tiny:\n")
    assert load(path) == Config()
    assert load(path, ["ppo.epochs=7"]).ppo.epochs == 7
