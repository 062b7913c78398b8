"""Stages that compute next to nothing but store, checkpoint and resume for real. As a script: a whole run of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_r1.config import Config, parse
from storage import checkpoints
from tasks.context import RunContext
from tasks.stage import Receipt, Work, run_stage

SHARDS = 2


def config(**changes: Any) -> Config:
    """Two iterations of something small."""
    return parse({"iterations": 2, "store": {"lock_wait": 5.0}, **changes}, "test")


class Fakes:
    """The eight stages. `begun` lists what was computed, in order; the stage named `fail_at` raises instead."""

    def __init__(self, fail_at: str = "", note: Callable[[str], None] = lambda _: None) -> None:
        self.begun: list[str] = []
        self.closed: list[str] = []
        self.fail_at = fail_at
        self.note = note

    def _begin(self, name: str) -> None:
        self.begun.append(name)
        self.note(name)
        if name == self.fail_at:
            raise RuntimeError(f"{name} fails")

    def _checkpoint(self, context: RunContext, iteration: int) -> Work:
        def write(folder: Path) -> None:
            (folder / "policy").mkdir()
            (folder / "policy" / "model.safetensors").write_text(f"weights {iteration}")

        digest = checkpoints.publish(context.checkpoint(iteration), write).digest
        return Work(
            {"checkpoint": iteration, "weights": digest, "files": {context.name(context.checkpoint(iteration)): digest}}
        )

    def prepare(self, context: RunContext) -> Receipt:
        def work() -> Work:
            self._begin("prepare")
            return Work({"questions": 3})

        return run_stage(context, "prepare", 0, {}, work)

    def warm_start(self, context: RunContext, prepared: Receipt, start_from: str | None) -> Receipt:
        def work() -> Work:
            self._begin("warm_start")
            return self._checkpoint(context, 0)

        return run_stage(context, "warm_start", 0, {"prepared": dict(prepared), "start_from": start_from}, work)

    def shards(self, _context: RunContext) -> int:
        return SHARDS

    def rollout(
        self, context: RunContext, iteration: int, shard: int, _prepared: Receipt, checkpoint: Receipt
    ) -> Receipt:
        def work() -> Work:
            self._begin(f"rollout {iteration}.{shard}")
            return Work({"trajectories": 4})

        return run_stage(context, "rollout", iteration, {"checkpoint": dict(checkpoint)}, work, shard)

    def annotate(self, context: RunContext, iteration: int, _prepared: Receipt, rollouts: list[Receipt]) -> Receipt:
        def work() -> Work:
            self._begin(f"annotate {iteration}")
            return Work({"rows": 8}, metrics={"rollout/reward_mean": iteration / 10})

        return run_stage(context, "annotate", iteration, {"rollouts": [dict(one) for one in rollouts]}, work)

    def update(self, context: RunContext, iteration: int, checkpoint: Receipt, annotated: Receipt) -> Receipt:
        def work() -> Work:
            self._begin(f"update {iteration}")
            return self._checkpoint(context, iteration)

        inputs = {"checkpoint": dict(checkpoint), "annotated": dict(annotated)}
        return run_stage(context, "update", iteration, inputs, work)

    def evaluate(self, context: RunContext, iteration: int, _prepared: Receipt, checkpoint: Receipt) -> Receipt:
        def work() -> Work:
            self._begin(f"evaluate {iteration}")
            scores = {"eval/sampled/exact_match": iteration / 4, "eval/greedy/exact_match": iteration / 2}
            return Work({"questions": 3}, metrics=scores)

        return run_stage(context, "evaluate", iteration, {"checkpoint": dict(checkpoint)}, work)

    def test(self, context: RunContext, iteration: int, _prepared: Receipt, checkpoint: Receipt) -> Receipt:
        def work() -> Work:
            self._begin(f"test {iteration}")
            return Work({"questions": 5}, metrics={"test/sampled/exact_match": iteration / 5})

        return run_stage(context, "test", iteration, {"checkpoint": dict(checkpoint)}, work)

    def publish(
        self,
        context: RunContext,
        iteration: int,
        _prepared: Receipt,
        checkpoint: Receipt,
        _evaluated: Receipt | None,
    ) -> Receipt:
        def work() -> Work:
            self._begin(f"publish {iteration}")
            return Work({"metrics": 1})

        return run_stage(context, "publish", iteration, {"checkpoint": dict(checkpoint)}, work)

    def close(self, _context: RunContext, status: str, _draw: object = None) -> None:
        self.closed.append(status)

    def install(self, put: Callable[[ModuleType, str, Any], None]) -> None:
        """Put these functions in the places of the real tasks."""
        from tasks import annotate, evaluate, prepare, publish, rollout, test, update, warm_start

        for module in (prepare, warm_start, rollout, annotate, update, evaluate, test, publish):
            name = module.__name__.rpartition(".")[2]
            put(module, name, getattr(self, name))
        put(rollout, "shards", self.shards)
        put(publish, "close", self.close)


def main(home: Path, run: str, pause: float) -> None:
    """A run under Prefect whose stages say when they begin and take `pause` seconds."""
    from flows import session
    from flows.start import begin

    def note(name: str) -> None:
        print(f"begin {name}", flush=True)
        time.sleep(pause)

    def import_training() -> None:
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        def put(module: ModuleType, name: str, function: Any) -> None:
            plain = name in ("shards", "close")
            setattr(module, name, function if plain else task(name=name, cache_policy=NO_CACHE)(function))

        Fakes(note=note).install(put)

    session._import_training = import_training  # while the server starts, as the real ones
    session.run_training(home, run, lambda: begin(home, run, config()), lambda line: print(line, flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
