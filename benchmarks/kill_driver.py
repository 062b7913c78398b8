"""Run the command line, and kill this very process (kill -9) in the middle of one stage. Run as a script.

Arguments: STAGE ITERATION SHARD SECONDS [PLACE NTH] -- the command line. SECONDS after the stage's work began, or after
it came to the place for the NTH time, the process is gone. `any` as STAGE counts from the beginning of the process.
With KILL_NOTES in the environment, that file says line by line which stage began and which was over. With `serve`
alone, such lines come from standard input as JSON, and each gets a process that is forked from this one, which has
imported everything: that saves a few seconds a kill. Which kills there should be is left to the callers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

PLACES: dict[str, tuple[str, str]] = {
    "before trainer.pt": ("storage.checkpoints", "save_trainer"),  # the policy's files are written
    "while syncing files": ("storage.checkpoints", "fsync_file"),
    "before the manifest": ("storage.checkpoints", "asdict"),  # called once for each file that it will name
    "between two renames": ("pathlib.Path", "rename"),
    "after the renames": ("storage.checkpoints", "fsync_folder"),  # for the second time: its name is there, no receipt
    "before the old one goes": ("storage.checkpoints", "_delete"),
    "before the receipt": ("storage.stages", "record"),  # rows are written, not committed
    "at the commit": ("storage.metrics", "save"),
    "after the commit": ("storage.database._Engine", "detach"),
    "inside publishing": ("storage.tracking.Tracker", "_ask"),
}
"""Where a kill can strike, and what is called there; it strikes before the call, at the commit after it."""


@dataclass
class Aim:
    """The kill that is meant, and how near the process is to it."""

    stage: str
    iteration: int
    shard: int
    seconds: float
    place: str = ""
    nth: int = 1
    active: bool = False
    saved: bool = False
    calls: int = 0
    notes: str | None = field(default_factory=lambda: os.environ.get("KILL_NOTES"))

    def strike(self) -> None:
        """Gone, now or in some seconds."""
        if self.seconds <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def count(self) -> None:
        """The place was come to; strike where it is the time for it."""
        self.calls += 1
        if self.calls == self.nth:
            self.strike()

    def note(self, *words: object) -> None:
        """For whoever asks where the process was."""
        if self.notes:
            with Path(self.notes).open("a", encoding="utf-8") as file:
                print(*words, file=file)


def main(aim: Aim, arguments: list[str]) -> int:
    """The command line's exit code, where it ends before the kill."""
    if aim.stage == "any":
        aim.strike()
    from flows import cli
    from tasks import annotate, evaluate, prepare, publish, reannotate, rollout, test, update, warm_start
    from tasks import stage as rule

    whole = rule.run_stage

    def run_stage(context: Any, name: str, number: int, inputs: Any, work: Callable[[], Any], part: int = 0) -> Any:
        def killed_work() -> Any:
            aim.note("begin", name, number, part)
            if (name, number, part) == (aim.stage, aim.iteration, aim.shard):
                aim.active = True
                if not aim.place:
                    aim.strike()
            return work()

        done = whole(context, name, number, inputs, killed_work, part)
        aim.active = False
        aim.note("over", name, number, part)
        return done

    for module in (prepare, warm_start, rollout, annotate, update, evaluate, test, publish, reannotate):
        setattr(module, "run_stage", run_stage)  # noqa: B010 - a module has no such attribute for a type checker
    if aim.place:
        _lie_in_wait(aim)
    return cli.main(arguments)


def _lie_in_wait(aim: Aim) -> None:
    owner, name = PLACES[aim.place]
    module, _, last = owner.rpartition(".")
    place = getattr(sys.modules[module], last) if last[0].isupper() or last[0] == "_" else sys.modules[owner]
    called = getattr(place, name)
    if aim.place == "after the commit":
        _notice_saving(aim)

    def watched(*args: Any, **kwargs: Any) -> Any:
        if aim.place == "at the commit":
            done = called(*args, **kwargs)
            if aim.active:
                aim.count()
            return done
        if aim.active and _there(aim, args):
            aim.count()
        return called(*args, **kwargs)

    setattr(place, name, watched)


def _there(aim: Aim, args: tuple[Any, ...]) -> bool:
    """Whether this call is the one that is meant: some places are calls with a certain argument only."""
    if aim.place == "between two renames":  # the old checkpoint has another name already
        return args[0].name.startswith(".tmp-") and args[0].with_name(args[0].name.replace(".tmp-", ".old-")).exists()
    if aim.place == "before the old one goes":
        return args[0].name.startswith(".old-") and args[0].exists()
    return aim.saved if aim.place == "after the commit" else True


def _notice_saving(aim: Aim) -> None:
    """The connection is closed many times; the time that is meant comes after the stage's rows were saved."""
    metrics = sys.modules["storage.metrics"]
    save = metrics.save

    def noticed(*args: Any) -> None:
        save(*args)
        aim.saved = aim.active

    setattr(metrics, "save", noticed)  # noqa: B010


def read(arguments: list[str]) -> tuple[Aim, list[str]]:
    """What the arguments of this script say: the kill, and the command line."""
    split = arguments.index("--")
    given = arguments[:split]
    place = (given[4], int(given[5])) if len(given) > 4 else ("", 1)
    return Aim(given[0], int(given[1]), int(given[2]), float(given[3]), *place), arguments[split + 1 :]


def serve() -> int:
    """A process for each line of standard input; its return code is printed when it has ended."""
    for name in ("flows.training", "flows.reports", "storage.tracking", "tasks.engine", "prefect.events.worker"):
        import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if process == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for target, path in ((1, asked["out"]), (2, asked["err"])):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), target)
            os.environ.update(asked["environment"])
            aim, arguments = read(asked["arguments"])
            return main(aim, arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["serve"] else main(*read(sys.argv[1:])))
