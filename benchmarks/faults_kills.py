"""kill -9 at seeded moments: which kills there are, and a run that is killed some times and then goes on to its end.

How a process is killed is kill_driver.py's, what is compared likeness.py's, what is written down faults.py's.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from agent_r1.questions.records import Json
from benchmarks import kill_driver
from benchmarks.likeness import Stage, differences, finished, lasting
from tasks.context import STAGES

DRIVER = Path(kill_driver.__file__)
RUN = "small"
SMALL = (
    "threads=1", "iterations=2", "keep_checkpoints=[all]", "model.tiny.width=32", "model.tiny.layers=1",
    "model.tiny.heads=2", "world.warm_start=60", "world.train=40", "world.validation=12", "world.test=8",
    "warm_start.curriculum_steps=2", "warm_start.steps=4", "warm_start.sloppy_steps=2", "rollout.questions=8",
    "rollout.shard_size=4", "rollout.max_turns=3", "ppo.minibatches=2", "evaluation.questions=6",
    "evaluation.test=true",
)  # fmt: skip
ITERATIONS = 2
QUIET = {"PREFECT_LOGGING_LEVEL": "CRITICAL"}  # as runs have it; here Prefect is imported before they can say so
NEVER = ("none", "0", "0", "0")  # no stage has this name
UPDATES: tuple[Stage, ...] = (("warm_start", 0, 0), ("update", 1, 0), ("update", 2, 0))
CHECKPOINT = (
    ("before trainer.pt", 1), ("while syncing files", 9), ("before the manifest", 7), ("after the renames", 2),
)  # fmt: skip
COMMIT = (("before the receipt", 1), ("at the commit", 1), ("after the commit", 1))
AT_COMMIT = 0.006  # seconds after the last row: the commit and the closing of the file take about as long
ASKED = {0: 60, 1: 25, 2: 25}  # how often a publish of the iteration asks MLflow, at least
ASKING = 0.02  # seconds after the question was put: the answer takes about as long


Ended: TypeAlias = "subprocess.CompletedProcess[str]"


@dataclass(frozen=True, order=True)
class Kill:
    """One kill that is meant: within a stage, `seconds` after it began or came to `place` for the `nth` time."""

    iteration: int
    position: int
    shard: int
    seconds: float
    place: str = ""
    nth: int = 1

    @property
    def stage(self) -> str:
        """The name of the stage."""
        return STAGES[self.position] if self.position >= 0 else "any"

    @property
    def arguments(self) -> list[str]:
        """As kill_driver.py takes them."""
        place = [self.place, str(self.nth)] if self.place else []
        return [self.stage, str(self.iteration), str(self.shard), f"{self.seconds:.4f}", *place]


def drawn(seed: int, number: int, lasted: dict[Stage, float]) -> list[Kill]:
    """The kills of run `number`, in the order of the DAG: a function of the seed and of how long stages take."""
    rng = random.Random(f"{seed} {number}")
    kinds = [STAGES[(number * 2 + each) % len(STAGES)] for each in range(2)]
    others = ("checkpoint", "commit", "mlflow", "renames", "anywhere")
    kinds += [others[(number * 2 + each) % len(others)] for each in range(2)]
    return sorted(kill for kind in kinds for kill in _kills(kind, rng, lasted))


def _kills(kind: str, rng: random.Random, lasted: dict[Stage, float]) -> Iterator[Kill]:
    if kind == "anywhere":  # also while the process starts
        yield Kill(-1, -1, 0, rng.uniform(0.0, 8.0))
    elif kind == "checkpoint":
        place, calls = rng.choice(CHECKPOINT)
        nth = 2 if place == "after the renames" else rng.randint(1, calls)
        yield _kill(rng.choice(UPDATES), 0.0, place, nth)
    elif kind == "renames":  # the first kill leaves a checkpoint without a receipt, the second meets it
        update = rng.choice(UPDATES)
        yield _kill(update, -2.0, "after the renames", 2)
        yield _kill(update, -1.0, rng.choice(("between two renames", "before the old one goes")), 1)
    elif kind == "commit":
        place, nth = rng.choice(COMMIT)
        seconds = rng.uniform(0.0, AT_COMMIT) if place == "at the commit" else 0.0
        yield _kill(rng.choice(sorted(lasted)), seconds, place, nth)
    elif kind == "mlflow":
        iteration = rng.randint(0, ITERATIONS)
        seconds = rng.choice((0.0, rng.uniform(0.0, ASKING)))
        yield _kill(("publish", iteration, 0), seconds, "inside publishing", rng.randint(1, ASKED[iteration]))
    else:
        stage = rng.choice(sorted(each for each in lasted if each[0] == kind))
        yield _kill(stage, rng.uniform(0.0, lasted[stage]))


def _kill(stage: Stage, seconds: float, place: str = "", nth: int = 1) -> Kill:
    name, iteration, shard = stage
    return Kill(iteration, STAGES.index(name), shard, seconds, place, nth)


def train(home: Path) -> list[str]:
    """The command line of the run that is killed; said again, it goes on."""
    return ["train", "quickstart", "--run", RUN, "--home", str(home), *(f"--set={each}" for each in SMALL)]


def without_prefect() -> dict[str, str]:
    """The environment, without what says that there is a Prefect server already."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}


def run(arguments: Sequence[str], **environment: str) -> Ended:
    """A process of the command line, or of what `arguments` say after python."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**without_prefect(), **environment},
        timeout=600,
    )


def cli(*arguments: str, **environment: str) -> Ended:
    """The command line in a process of its own."""
    return run(["-m", "flows.cli", *arguments], **environment)


def undisturbed(folder: Path) -> Path:
    """The home of the run that nobody disturbs, made once."""
    home = folder / "undisturbed"
    if not (home / "finished").exists():
        done = cli(*train(home))
        assert done.returncode == 0, done.stderr
        (home / "finished").touch()
    return home


def lasted(home: Path) -> dict[Stage, float]:
    """How many seconds each stage took."""
    return {key: (end - start).total_seconds() for key, (start, end) in finished(home).items()}  # type: ignore[operator]


class Forks:
    """Processes of the command line that need not import anything: forked from one that has.

    With the address of a Prefect server, they do not start one of their own.
    """

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self._out, self._err = folder / "forked.out", folder / "forked.err"
        environment = {**without_prefect(), **QUIET, **({} if url is None else {"PREFECT_API_URL": url})}
        self._server = subprocess.Popen(
            [sys.executable, "-P", str(DRIVER), "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, kill: Sequence[str], arguments: Sequence[str], **environment: str) -> Ended:
        """The command line, killed as kill_driver.py's arguments say."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        asked = {"arguments": [*kill, "--", *arguments], "environment": environment}
        line = json.dumps({**asked, "out": str(self._out), "err": str(self._err)})
        print(line, file=self._server.stdin, flush=True)
        code = int(self._server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, self._out.read_text(), self._err.read_text())

    def close(self) -> None:
        """The process that has imported everything goes."""
        self._server.communicate()


def killed_and_finished(home: Path, kills: Sequence[Kill], calm: Path, forks: Forks) -> dict[str, Json]:
    """Kill a run so many times, let it go on to its end, and say what each kill hit and what differs then."""
    notes = home.with_suffix(".notes")
    hits: list[Json] = []
    wrong: list[str] = []
    begun = time.monotonic()
    for kill in kills:
        before = finished(home)
        notes.write_text("")
        if kill.position < 0:  # its start, too, is what may be hit
            ended = run(["-P", str(DRIVER), *kill.arguments, "--", *train(home)], KILL_NOTES=str(notes))
        else:
            ended = forks.run(kill.arguments, train(home), KILL_NOTES=str(notes))
        struck = ended.returncode == -9
        hits.append({"kill": asdict(kill), "stage": kill.stage, "struck": struck, "hit": hit(notes.read_text())})
        if not struck and ended.returncode != 0:
            wrong.append(f"ended with {ended.returncode}: {ended.stderr[-300:]}")
        wrong += [f"a process is left over: {line[:200]}" for line in lasting(home)]
        after = finished(home)
        wrong += [f"{key} was done again or lost" for key, when in before.items() if after.get(key) != when]
    ended = forks.run(NEVER, train(home))
    if ended.returncode != 0:
        wrong.append(f"going on ended with {ended.returncode}: {ended.stderr[-300:]}")
    else:
        wrong += differences(home, calm)
    return {"hits": hits, "wrong": list(wrong), "seconds": time.monotonic() - begun}


def hit(notes: str) -> str:
    """Where the process was: the stage that had begun and was not over, else before, between or after stages."""
    lines = notes.splitlines()
    if not lines:
        return "before the first stage"
    state, stage, *_ = lines[-1].split()
    return stage if state == "begin" else "between stages"
