"""A configuration file as nested keys: YAML in which no key may stand twice, and overrides laid over it.

What the keys mean, and which there are, is left to config.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

import yaml

from agent_r1.errors import ConfigError
from agent_r1.questions.records import Json


class _Loader(yaml.SafeLoader):
    """YAML as PyYAML reads it, but for keys that stand twice: of those PyYAML would silently take the last."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, object]:
    seen: list[object] = []
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":  # <<, whose keys may stand again beside it
            continue
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark
            )
        seen.append(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(path: Path, overrides: Sequence[str] = ()) -> dict[str, Json]:
    """The nested keys of a YAML file under `key.sub=value` overrides (values are YAML).

    ConfigError names the file, and what is wrong with it or with the override.
    """
    try:
        tree = _yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected keys and values, found {type(tree).__name__}")
    for each in overrides:
        override(tree, each)
    return tree


def lay_over(tree: dict[str, Json], changes: dict[str, Json]) -> dict[str, Json]:
    """A new tree with the changes in place: sections key by key, everything else as a whole. An empty one is none."""
    made = dict(tree)
    for key, value in changes.items():
        below = made.get(key)
        if isinstance(value, dict) and (below is None or isinstance(below, dict)):
            made[key] = lay_over(below or {}, value)
        elif value is not None or not isinstance(below, dict):
            made[key] = value
    return made


def override(tree: dict[str, Json], setting: str) -> None:
    """Lay one `key.sub=value` over nested keys, in place. ConfigError says what is wrong with it."""
    key, equals, text = setting.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {setting!r}: expected key.sub=value")
    try:
        value = _yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {setting!r}: the value is not YAML") from error
    node = tree
    for part in parts[:-1]:
        if node.get(part) is None:  # a section that is not there, or empty
            node[part] = {}
        child = node[part]
        if not isinstance(child, dict):
            raise ConfigError(f"--set {setting!r}: {part!r} is not a section")
        node = child
    node[parts[-1]] = value


def _yaml(text: str) -> Json:
    return yaml.load(text, Loader=_Loader)
