"""DESIGN.md's table of imports: flows -> tasks -> storage -> agent_r1, and which outside package may be met where.

Imports inside functions and under TYPE_CHECKING count. Only packages of the table's third column are looked at.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("agent_r1", "storage", "tasks", "flows")
ONLY: dict[str, tuple[str, ...]] = {
    "torch": ("agent_r1/", "storage/checkpoints.py"),
    "transformers": ("agent_r1/",),
    "tokenizers": ("agent_r1/tiny.py",),
    "peft": ("agent_r1/",),
    "safetensors": ("agent_r1/model.py", "agent_r1/lora.py", "storage/checkpoints.py"),
    "pydantic": ("agent_r1/config.py", "agent_r1/sections.py", "agent_r1/experiment.py", "agent_r1/tools/function.py"),
    "docstring_parser": ("agent_r1/tools/function.py",),
    "bm25s": ("agent_r1/tools/search_index.py",),
    "duckdb": ("agent_r1/tools/sql", "agent_r1/world/", "storage/"),
    "sqlite3": ("agent_r1/tools/sql", "storage/health.py"),
    "mcp": ("agent_r1/tools/mcp",),
    "anyio": ("agent_r1/tools/mcp",),
    "vllm": (),  # of another environment: agent_r1/vllm_process.py starts it as a process
    "httpx": ("agent_r1/vllm_server.py", "agent_r1/tools/search_server.py"),
    "pyarrow": ("agent_r1/questions/", "storage/"),
    "pandas": ("storage/",),
    "mlflow": ("storage/tracking.py", "storage/traces.py", "storage/registry.py", "storage/mlflow_file.py"),
    "prefect": ("tasks/", "flows/"),
    "typer": ("flows/",),
    "rich": ("flows/",),
    "uvicorn": ("flows/",),
    "matplotlib": ("flows/",),
    "scipy": ("agent_r1/comparison.py",),
    "yaml": ("agent_r1/config_file.py", "tasks/publish.py", "flows/"),
}
"""Outside package -> the beginnings of the paths that may import it. For Prefect's server, see flows/server.py."""


def files(layer: str) -> list[Path]:
    found = sorted((ROOT / layer).rglob("*.py"))
    assert found, f"{layer} has no files: it tests nothing"
    return found


def imports(path: Path) -> set[tuple[str, ...]]:
    """The dotted names that a file imports anywhere in it, import_module("...") with a plain string included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            argument = node.args[0] if node.args else None
            if isinstance(argument, ast.Constant):
                names.add(str(argument.value))
    return {tuple(name.split(".")) for name in names}


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_nothing_above_it(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :]) | {"tests", "benchmarks"}
    wrong = [(str(path.relative_to(ROOT)), name) for path in files(layer) for name in imports(path) if name[0] in above]
    assert wrong == []


@pytest.mark.parametrize("package", ONLY)
def test_an_outside_package_is_met_only_where_the_table_says(package: str) -> None:
    wrong = [
        where
        for layer in LAYERS
        for path in files(layer)
        if any(name[0] == package for name in imports(path))
        and not (where := path.relative_to(ROOT).as_posix()).startswith(ONLY[package])
    ]
    assert wrong == []


def test_storage_knows_agent_r1_s_records_and_configuration_only() -> None:
    known = {"config", "sections", "errors", "trajectory", "questions", "tools"}
    for path in files("storage"):
        for name in imports(path):
            if name[0] == "agent_r1":
                assert name[1] in known, f"{path.relative_to(ROOT)}: {'.'.join(name)}"
                assert name[1] != "questions" or name[2] == "records", f"{path.relative_to(ROOT)}: {'.'.join(name)}"
                assert name[1] != "tools" or name[2] == "protocol", f"{path.relative_to(ROOT)}: {'.'.join(name)}"


def test_tools_know_nothing_of_gold() -> None:
    """F6: no tool may import what rewards, scores or asks."""
    gold = {"rewards", "scoring", "evaluation", "dataset", "execution"}
    for path in [*(ROOT / "agent_r1" / "tools").rglob("*.py"), ROOT / "agent_r1" / "world" / "lookup.py"]:
        for name in imports(path):
            assert name[0] != "agent_r1" or name[1] not in gold, f"{path.relative_to(ROOT)}: {'.'.join(name)}"
            assert name[:3] != ("agent_r1", "world", "ask"), f"{path.relative_to(ROOT)}: {'.'.join(name)}"
            assert name[-1] not in ("Question", "Evidence"), f"{path.relative_to(ROOT)}: {'.'.join(name)}"


def test_every_folder_of_code_is_a_layer() -> None:
    """A new top-level package needs a place in the table. Benchmarks measure all layers, and none imports them."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {*LAYERS, "benchmarks"}


def test_the_finder_of_imports_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        "import a.b\nfrom c import d\ndef f():\n    import e\n    import_module('g.h')\n"
        "if TYPE_CHECKING:\n    from i.j import k\n"
    )
    assert imports(path) == {("a", "b"), ("c", "d"), ("e",), ("g", "h"), ("i", "j", "k")}
