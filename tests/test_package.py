"""What is installed: every package and data file, no tests, nothing undeclared, everything pinned."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import agent_r1

ROOT = Path(__file__).parents[1]
TOP_LEVEL = ("agent_r1", "storage", "tasks", "flows")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]
PACKAGE_DATA: dict[str, list[str]] = PROJECT["tool"]["setuptools"]["package-data"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def files() -> Iterator[Path]:
    """Everything below the top-level packages, relative to the root, without what Python leaves there."""
    for name in TOP_LEVEL:
        for path in sorted((ROOT / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT)


def pins() -> dict[str, str]:
    """constraints.txt: the version of each package."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    parts = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in parts}


def test_every_folder_with_code_is_a_listed_package() -> None:
    assert {".".join(path.parent.parts) for path in files() if path.suffix == ".py"} == set(PACKAGES)


def test_every_listed_package_has_an_init_file() -> None:
    assert [name for name in PACKAGES if not (ROOT / name.replace(".", "/") / "__init__.py").is_file()] == []


def test_every_file_that_is_no_code_is_package_data() -> None:
    data = [path for path in files() if path.suffix != ".py"]
    left_out = [
        str(path)
        for path in data
        if not any(fnmatch(path.name, pattern) for pattern in PACKAGE_DATA.get(".".join(path.parent.parts), []))
    ]
    assert left_out == []
    assert {path.suffix for path in data} >= {".jinja", ".sql", ".yaml"}


def test_tests_are_never_packaged() -> None:
    assert {name.partition(".")[0] for name in PACKAGES} == set(TOP_LEVEL)


def test_every_package_that_the_code_imports_is_declared() -> None:
    """An extra's packages count where its modules import them."""
    declared = {canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]}
    with_mcp = declared | {canonicalize_name(Requirement(text).name) for text in EXTRAS["mcp"]}
    providers = metadata.packages_distributions()
    undeclared = {
        f"{path}: {name}"
        for path in files()
        if path.suffix == ".py"
        for name in imported(path)
        if name not in sys.stdlib_module_names and name not in TOP_LEVEL
        if (with_mcp if path.name.startswith("mcp") else declared).isdisjoint(
            canonicalize_name(provider) for provider in providers.get(name, ())
        )
    }
    assert undeclared == set()


def imported(path: Path) -> set[str]:
    """The top-level names that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_every_constraint_is_one_exact_public_version() -> None:
    found = pins()
    assert found["torch"] == "2.13.0"
    assert [name for name, version in found.items() if not version or not version.replace(".", "").isalnum()] == []


def test_every_declared_package_is_pinned_within_its_range() -> None:
    found = pins()
    texts = [*PROJECT["project"]["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    wanted = [Requirement(text) for text in texts]
    assert [str(one) for one in wanted if not one.specifier.contains(found[canonicalize_name(one.name)])] == []


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["project"]["version"]
    assert agent_r1.__version__ == version
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
