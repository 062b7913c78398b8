"""Named faults: what each is done to, what is right after it, and how that is judged.

Which there are is left to faults_damage.py (in a home) and faults_surroundings.py (around a run), what
is compared to likeness.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_r1.questions.records import Json
from benchmarks.faults_kills import NEVER, RUN, Ended, Forks, train
from benchmarks.likeness import differences

HALF = "half"
"""How far a run came before its home is damaged: killed where its second update began, or just after that's commit."""
COMMITTED = "committed"
KILLED = {
    HALF: ["update", "2", "0", "0"],
    COMMITTED: ["update", "2", "0", "0", "after the commit", "1"],  # the rows lie in the write-ahead log
}


class Skipped(Exception):
    """The fault cannot be made here; the message says why."""


@dataclass
class Case:
    """A home that is going to be damaged, and what is found wrong with what follows."""

    folder: Path
    calm: Path
    forks: Forks
    seen: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    times: int = 0

    @property
    def home(self) -> Path:
        """One path for all: MLflow remembers where its artifacts lie."""
        return self.folder.parent / "home"

    def fresh(self, state: str) -> Path:
        """The home as it was when its run was killed, or as it is at the end (`finished`)."""
        saved = self.folder.parent / f"saved-{state}"
        shutil.rmtree(self.home, ignore_errors=True)
        if not saved.exists():
            if state in KILLED:
                killed = self.forks.run(KILLED[state], train(self.home))
                assert killed.returncode == -9, killed.stderr
            else:
                whole = self.forks.run(NEVER, train(self.home))
                assert whole.returncode == 0, whole.stderr
            self.home.rename(saved)
        shutil.copytree(saved, self.home)
        self.times += 1
        return self.home

    def resume(self, *more: str, home: Path | None = None) -> Ended:
        """Go on with the run."""
        return self.forks.run(NEVER, ["resume", RUN, *more, "--home", str(home or self.home)])

    def same(self, ended: Ended, what: str, home: Path | None = None, only: str = "") -> None:
        """It has to have ended well, with what the undisturbed run ended with."""
        if ended.returncode != 0:
            self.wrong.append(f"{what}: ended with {ended.returncode}: {ended.stderr[-400:]}")
            return
        found = differences(home or self.home, self.calm, only, again=True)
        self.wrong += [f"{what}: {each}" for each in found]
        if not found:
            self.saw("goes on to the same result")

    def clear(self, ended: Ended, what: str, says: Sequence[str], code: int = 1) -> None:
        """It has to have ended with an error of one line that says all this."""
        lines = [line for line in ended.stderr.splitlines() if line.startswith("agent-r1: ")]
        if ended.returncode != code or len(lines) != 1 or "Traceback" in ended.stderr + ended.stdout:
            self.wrong.append(f"{what}: expected one line and {code}, got {ended.returncode}: {ended.stderr[-600:]}")
        missing = [each for each in says if each not in ended.stderr]
        if missing:
            self.wrong.append(f"{what}: its error does not say {missing}: {ended.stderr[-400:]}")
        self.saw(f"exit {ended.returncode}: {(lines or ['?'])[-1].removeprefix('agent-r1: ')}")

    def either(self, ended: Ended, what: str, says: Sequence[str], mend: Callable[[], object] = lambda: None) -> None:
        """It has to have gone on, or to have stopped clearly and to go on when what the error says was done."""
        warned = all(each in ended.stderr for each in says)
        if ended.returncode == 0 and not warned:
            self.same(ended, what)
            return
        if ended.returncode == 0:
            self.saw(f"goes on, warning: {ended.stderr.strip()[:300]}")
        else:
            self.clear(ended, what, says)
        mend()
        self.same(self.resume(), f"{what}, mended")

    def saw(self, what: str) -> None:
        """Once is enough."""
        shown = what.replace(str(self.home), "HOME")
        if shown not in self.seen:
            self.seen.append(shown)


@dataclass(frozen=True)
class Fault:
    """What is done, what is right after it, and the function that does it."""

    expected: str
    play: Callable[[Case], None]
    alone: bool = False
    """Whether its processes need a Prefect server of their own, whose records lie in the home."""

    def do(self, folder: Path, calm: Path, forks: Forks) -> dict[str, Json]:
        """Make the fault and judge what follows."""
        case = Case(folder, calm, forks)
        try:
            self.play(case)
        except Skipped as why:
            return {"skipped": str(why), "seen": [], "wrong": [], "times": 0}
        return {"seen": list(case.seen), "wrong": list(case.wrong), "times": case.times}
