"""What computed a row: the version of this code and of the libraries that matter. Comparing them is left to flows."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from agent_r1.questions.records import Json

PACKAGE = "agent-r1"
LIBRARIES = ("duckdb", "mlflow", "numpy", "prefect", "tokenizers", "torch", "transformers")


@cache
def code_version() -> str:
    """The package's version, with commit and "+dirty" in a checkout: "0.1.0 3f2a9c1+dirty". Never fails without git."""
    version = installed(PACKAGE)
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return version
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return version
    dirty = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{version} {commit}{'+dirty' if dirty else ''}"


@cache
def machine() -> dict[str, Json]:
    """What a run computes on, for reading its seconds: processors and their kind, no name of the machine."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": models[0] if models else platform.processor(),
        "cpus": os.cpu_count(),
    }


@cache
def library_versions() -> dict[str, str]:
    """Python and the libraries whose version may change a number, "absent" where one is not installed."""
    return {"python": platform.python_version(), **{name: installed(name) for name in LIBRARIES}}


def installed(name: str) -> str:
    """The version of an installed package, "absent" for another."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
