"""Run the command line, and kill this very process (kill -9) in the middle of one stage. Run as a script.

Arguments: STAGE ITERATION SHARD SECONDS -- the command line. SECONDS after the stage's work began the process is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any


def main(stage: str, iteration: int, shard: int, seconds: float, arguments: list[str]) -> int:
    """The command line's exit code, where it ends before the stage begins."""
    from flows import cli
    from tasks import annotate, evaluate, prepare, publish, reannotate, rollout, test, update, warm_start
    from tasks import stage as rule

    whole = rule.run_stage

    def run_stage(context: Any, name: str, number: int, inputs: Any, work: Callable[[], Any], part: int = 0) -> Any:
        def killed_work() -> Any:
            if (name, number, part) == (stage, iteration, shard):
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return work()

        return whole(context, name, number, inputs, killed_work, part)

    for module in (prepare, warm_start, rollout, annotate, update, evaluate, test, publish, reannotate):
        setattr(module, "run_stage", run_stage)  # noqa: B010 - a module has no such attribute for a type checker
    return cli.main(arguments)


if __name__ == "__main__":
    split = sys.argv.index("--")
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[split + 1 :]))
