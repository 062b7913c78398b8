"""A run that is trained on by a schedule: the flow of one firing, and the Prefect runner that fires.

How far a firing goes is left to start.further, what a run is to session.py, the server to server.py.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, FlowRun, State
from prefect.runner import Runner
from prefect.schedules import Schedule
from prefect.states import Cancelled, Completed
from prefect.types.entrypoint import EntrypointType

from agent_r1.config import load
from agent_r1.errors import AgentR1Error, ConfigError
from flows.configs import find_config
from flows.home import check_home, check_run_name
from flows.interruption import INTERRUPTED
from flows.locks import RunInUse, holder
from flows.server import crash_dead_runs
from flows.session import run_tags, run_training, sigterm_is_ctrl_c
from flows.start import begin, further
from flows.terminal import say, say_aside

if TYPE_CHECKING:
    from prefect.flows import Flow

POLL_SECONDS = 2.0
LINUX_SET_PARENT_DEATH_SIGNAL = 1


def _say_crashed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """In the process that fires: the firing's own is gone."""
    del flow
    why = (state.message or "").partition(". ")[0]
    say_aside(f"{_now()} run {flow_run.parameters.get('run')}: this firing crashed, the next one takes it up: {why}")


@flow(
    name="agent-r1 schedule",
    flow_run_name="{run}: firing",
    persist_result=False,
    validate_parameters=False,
    on_crashed=[_say_crashed],
)
def firing(
    config: str, home: str, run: str | None = None, iterations: int = 1, settings: list[str] | None = None
) -> State[Any]:
    """Train a run `iterations` further, or finish what an earlier firing left of its own; its state says how it went.

    `config` is a file or a shipped name and is read anew; `run` is named after it by default.
    """
    parent = _obey_parent()
    name = run or find_config(config).stem
    say(f"{_now()} run {name}: a firing, process {os.getpid()}")
    try:
        folder, loaded = check_home(Path(home)), load(find_config(config), settings or [])
        check_run_name(name)
        with sigterm_is_ctrl_c():  # from here on, also while the run is only begun
            context = run_training(
                folder, name, lambda: begin(folder, name, further(folder, name, loaded, iterations)), say
            )
    except RunInUse as error:
        return _ended(Cancelled, f"{error}: nothing done in this firing")
    except KeyboardInterrupt:
        state = _ended(Cancelled, f"run {name}: stopped; the next firing goes on with it")
        if os.getppid() != parent:  # gone, and its server maybe with it: Prefect would try to tell it for minutes
            os._exit(INTERRUPTED)
        return state
    except AgentR1Error as error:
        say_aside(f"{_now()} run {name}: this firing failed: {' '.join(str(error).split())}")
        raise
    return _ended(Completed, f"run {name}: {context.config.iterations} iterations are done")


def _ended(kind: Callable[..., State[Any]], message: str) -> State[Any]:
    say(f"{_now()} {message}")
    return kind(message=message)


def _now() -> str:
    return f"{datetime.now():%Y-%m-%d %H:%M:%S}"


def _obey_parent() -> int:
    """Be stopped in order by the process that fires, also by its end after kill -9; which process that is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches both: twice would break off the order
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(LINUX_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    return os.getppid()


@dataclass(frozen=True)
class Plan:
    """What is fired, and when."""

    home: Path
    run: str
    config: str
    iterations: int
    settings: tuple[str, ...]
    times: Schedule

    @property
    def deployment(self) -> str:
        """Its name in Prefect; a server that serves several homes must tell their runs apart."""
        return f"{self.run}-{hashlib.sha256(str(self.home).encode()).hexdigest()[:6]}"


def times(every: timedelta | None, cron: str | None) -> Schedule:
    """When to fire: each interval from now on, or at the times of a cron expression, of this machine's time zone.

    ConfigError where the expression is none.
    """
    if every is not None:
        return Schedule(interval=every)
    try:
        return Schedule(cron=cron, timezone=time_zone())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f'--cron {cron!r}: expected five fields, minute hour day month weekday, such as "0 3 * * *": {error}'
        ) from error


def time_zone() -> str:
    """This machine's time zone by name, UTC where it has none."""
    named = os.environ.get("TZ", "").lstrip(":") or str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    try:
        return ZoneInfo(named).key
    except (ZoneInfoNotFoundError, ValueError):
        return "UTC"


def serve(plan: Plan) -> None:
    """Fire until Ctrl-C or SIGTERM, which end in KeyboardInterrupt once the firing in progress has stopped in order.

    With an interval the first firing is at once. Firings never overlap: one that meets another is cancelled, so
    none are made up for after a break either.
    """
    runner = Runner(name=plan.deployment, query_seconds=POLL_SECONDS, prefetch_seconds=0, limit=None)

    def stop(_number: int, _frame: FrameType | None) -> None:
        if runner.started and not runner.stopping:
            runner.handle_sigterm()
        elif not runner.stopping:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        asyncio.run(_serve(runner, plan))
    finally:
        signal.signal(signal.SIGINT, before)
    raise KeyboardInterrupt


async def _serve(runner: Runner, plan: Plan) -> None:
    deployment = await runner.aadd_flow(
        firing,
        name=plan.deployment,
        schedule=plan.times,
        parameters={
            "config": plan.config,
            "home": str(plan.home),
            "run": plan.run,
            "iterations": plan.iterations,
            "settings": list(plan.settings),
        },
        tags=run_tags(plan.home, plan.run),
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    if plan.times.interval is not None:
        async with get_client() as client:
            await client.create_flow_run_from_deployment(deployment)
    await runner.start()


def forget_dead_firings(plan: Plan) -> None:
    """Crash what a killed schedule left in Prefect, so that it keeps no slot. Not while a process works on the run."""
    if holder(plan.home / "runs" / plan.run) is None:
        crash_dead_runs(run_tags(plan.home, plan.run))
