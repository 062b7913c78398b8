"""The fault campaign: python -m benchmarks.faults [--only kills NAME ...]. JSON lines in --results, and the table.

A run is killed at seeded moments in every stage and goes on; a home is damaged in every way that has a name here. What
is there already in --results is not done again, so the campaign may be stopped and taken up. See docs/faults.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent_r1.questions.records import Json
from benchmarks import faults_kills
from benchmarks.faults_damage import DAMAGE
from benchmarks.faults_surroundings import SURROUNDINGS
from benchmarks.faults_table import table
from flows.server import prefect_server
from tasks.versions import code_version, machine

HERE = Path(__file__).parent
KILLS = "kills"
ALONE = 3  # each third run that is killed has its own Prefect server, which takes most of the time of a short run
NAMED = {**DAMAGE, **SURROUNDINGS}


@dataclass(frozen=True)
class Servers:
    """Where processes are forked from: those that use a Prefect server that stands, and those that start their own."""

    standing: faults_kills.Forks
    alone: faults_kills.Forks

    def close(self) -> None:
        """Both go."""
        self.standing.close()
        self.alone.close()


def main() -> int:
    """Do what is not done, print the table; 1 where something was lost, doubled, unclear or left over."""
    asked = _arguments()
    asked.work.mkdir(parents=True, exist_ok=True)
    asked.results.mkdir(parents=True, exist_ok=True)
    names = asked.only or [KILLS, *NAMED]
    if not asked.table:
        with prefect_server(asked.work) as url:
            servers = Servers(faults_kills.Forks(asked.work, url), faults_kills.Forks(asked.work))
            if KILLS in names:
                _kill(asked, servers)
            for place, name in enumerate(NAMED):
                if name in names and place % asked.parts == asked.part:
                    _damage(name, asked, servers)
            servers.close()
    lines, wrong = table(_read(asked.results / "kills.jsonl"), _read(asked.results / "named.jsonl"), NAMED)
    print("\n".join(lines))
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=(KILLS, *NAMED), metavar="NAME", help="kills, or names of faults")
    parser.add_argument("--kills", type=int, default=120, help="how many are meant; some find their stage over (120)")
    parser.add_argument("--seed", type=int, default=0, help="of stages, places and moments (0)")
    parser.add_argument("--part", type=int, default=0, help="which part of the work this process does (0)")
    parser.add_argument("--parts", type=int, default=1, help="among how many processes it is divided (1)")
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    parser.add_argument("--work", type=Path, default=HERE / ".work" / "faults", help="where homes are made")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "faults", help="where the JSON lines go")
    asked = parser.parse_args()
    asked.work = asked.work.resolve() / f"part-{asked.part}"
    if not 0 <= asked.part < asked.parts:
        parser.error(f"--part {asked.part}: expected 0 to {asked.parts - 1}, of --parts {asked.parts}")
    return asked


def _kill(asked: argparse.Namespace, servers: Servers) -> None:
    calm = faults_kills.undisturbed(asked.work)
    lasted = faults_kills.lasted(calm)
    known = {(one["seed"], one["run"]) for one in _read(asked.results / "kills.jsonl")}
    meant = number = 0
    while meant < asked.kills:
        kills = faults_kills.drawn(asked.seed, number, lasted)
        meant += len(kills)
        if number % asked.parts == asked.part and (asked.seed, number) not in known:
            home = asked.work / f"killed-{number}"
            shutil.rmtree(home, ignore_errors=True)
            forks = servers.standing if number % ALONE else servers.alone
            found = faults_kills.killed_and_finished(home, kills, calm, forks)
            _write(asked.results / "kills.jsonl", {"seed": asked.seed, "run": number, **found})
            if not found["wrong"]:
                shutil.rmtree(home)
        number += 1


def _damage(name: str, asked: argparse.Namespace, servers: Servers) -> None:
    if any(one["fault"] == name for one in _read(asked.results / "named.jsonl")):
        return
    calm = faults_kills.undisturbed(asked.work)
    place = asked.work / name.replace(" ", "-")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    begun = time.monotonic()
    seen = NAMED[name].do(place, calm, servers.alone if NAMED[name].alone else servers.standing)
    _write(asked.results / "named.jsonl", {"fault": name, **seen, "seconds": time.monotonic() - begun})
    if not seen["wrong"]:
        shutil.rmtree(place)


def _write(path: Path, found: dict[str, Json]) -> None:
    about: dict[str, Json] = {"at": datetime.now(UTC).isoformat(), "code": code_version(), "machine": machine()}
    line = json.dumps({**found, **about}) + "\n"
    print(line[:400], file=sys.stderr, end="" if len(line) < 400 else "\n", flush=True)
    with path.open("ab", buffering=0) as file:  # in one piece: there may be two processes
        file.write(line.encode())


def _read(path: Path) -> list[dict[str, Json]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
