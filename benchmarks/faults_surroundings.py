"""Faults of what is around a run: the disk, the clock, signals, other processes, pipes, and where its home lies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults_kills import DRIVER, NEVER, QUIET, RUN, Ended, cli, run, train, without_prefect
from benchmarks.faults_named import HALF, Case, Fault, Skipped
from benchmarks.likeness import lasting

LEFT = (0, 200_000, 600_000, 2_000_000)
"""Bytes that a full disk still has, so that it is now the store, now a checkpoint, now MLflow that meets its end."""
YESTERDAY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static const long day = 86400;
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, t);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec -= day;
    return failed;
}
int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec; t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""
"""A library that makes a process believe it is a day earlier; clocks that only go forwards are left alone."""
READER = """
import sys, time
from pathlib import Path
from storage.database import Store
with Store(Path(sys.argv[1]) / "store.duckdb").read() as con:
    print(con.execute("SELECT count(*) FROM stages").fetchone(), flush=True)
    time.sleep(float(sys.argv[2]))
"""
HEARING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from benchmarks import kill_driver
sys.exit(kill_driver.main(*kill_driver.read(sys.argv[1:])))
"""
"""kill_driver.py where Ctrl-C is heard: whoever is started in the background of a shell inherits deaf ears."""


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 64 MB in memory. Skipped where we may not mount."""
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        raise Skipped("a tmpfs cannot be mounted here: run as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def disk_full(case: Case) -> None:
    """A disk with this much left, while the last iteration goes on; then there is room again."""
    for left in LEFT:
        with small_disk(case.folder / "disk") as disk:
            home = Path(shutil.copytree(case.fresh(HALF), disk / "home"))
            filler = disk / "filler"
            with filler.open("wb") as file:
                file.write(bytes(max(shutil.disk_usage(disk).free - left, 0)))
            ended = case.resume(home=home)
            if ended.returncode == 0:
                case.same(ended, f"{left} bytes left", home)
                continue
            says = ("home",) if ended.returncode == 2 else (str(home), "full")
            case.clear(ended, f"{left} bytes left", says, ended.returncode)
            filler.unlink()
            case.same(case.resume(home=home), f"{left} bytes left, then room", home)


def read_only(case: Case) -> None:
    """The home's file system is mounted read-only when a run goes on."""
    with small_disk(case.folder / "disk") as disk:
        home = Path(shutil.copytree(case.fresh(HALF), disk / "home"))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        case.clear(case.resume(home=home), "read-only", (str(home), "cannot be written"), 2)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        case.same(case.resume(home=home), "writable again", home)


def forbidden(case: Case) -> None:
    """Nothing in the home may be written any more, from the second update on (a process without root's privilege)."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        raise Skipped("root may write everywhere, and there is no setpriv")
    home = case.fresh(HALF)
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []

    def forbid(_process: int) -> None:
        for path in (home / "runs" / RUN / "checkpoints", home / "runs" / RUN, home):
            path.chmod(0o555)
        (home / "store.duckdb").chmod(0o444)

    ended = _met(case, "update 2 0", train(home), forbid, drop)
    for path in (home, home / "runs" / RUN, home / "runs" / RUN / "checkpoints", home / "store.duckdb"):
        path.chmod(0o755)
    case.clear(ended, "forbidden", (str(home), "ermission"))
    case.same(case.resume(), "allowed again")


def _met(
    case: Case, stage: str, arguments: Sequence[str], meet: Callable[[int], None], before: Sequence[str] = ()
) -> Ended:
    """A process to which something happens when a stage begins; it is held meanwhile."""
    notes = case.folder / "notes"
    notes.write_text("")
    command = [*before, sys.executable, "-c", HEARING, *NEVER, "--", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**without_prefect(), **QUIET, "KILL_NOTES": str(notes)},
    )
    while f"begin {stage}" not in notes.read_text() and process.poll() is None:
        time.sleep(0.01)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGSTOP)
        meet(process.pid)
        os.kill(process.pid, signal.SIGCONT)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def yesterday(case: Case) -> None:
    """The clock goes back a day between the kill and going on."""
    library = case.folder / "yesterday.so"
    source = library.with_suffix(".c")
    source.write_text(YESTERDAY)
    if shutil.which("cc") is None:
        raise Skipped("there is no C compiler to make a clock that goes wrong")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    said = run(["-c", "import time; print(time.time())"], LD_PRELOAD=str(library)).stdout
    if time.time() - float(said) < 80_000:
        raise Skipped("the clock of a process cannot be changed here")
    home = case.fresh(HALF)
    case.same(cli("resume", RUN, "--home", str(home), LD_PRELOAD=str(library)), "a day earlier")


def together(case: Case) -> None:
    """Two runs of one home at once, and a reader who holds the store for some seconds, twice."""
    home = case.fresh(HALF)
    other = [each.replace(RUN, "other") if each == RUN else each for each in train(home)]
    commands = [["-m", "flows.cli", *train(home)], ["-m", "flows.cli", *other], *([["-c", READER, str(home), "4"]] * 2)]
    processes = [
        subprocess.Popen(
            [sys.executable, *each], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=without_prefect()
        )
        for each in commands
    ]
    said = [process.communicate(timeout=300) for process in processes]
    for process, name, (_, error) in zip(processes, (RUN, "other", "reader", "reader"), said, strict=True):
        if process.returncode != 0:
            case.wrong.append(f"{name} ended with {process.returncode}: {error[-300:]}")
    case.same(subprocess.CompletedProcess(commands[0], processes[0].returncode, *said[0]), "beside others", only=RUN)


def twice(case: Case) -> None:
    """A second process on a run that is going on."""
    home = case.fresh(HALF)

    def second(process: int) -> None:
        case.clear(case.resume(), "the second", (f"run '{RUN}' is in use by process {process}",))

    case.same(_met(case, "update 2 0", train(home), second), "the first")


def stopped(number: signal.Signals) -> Callable[[Case], None]:
    """A signal in the middle of a rollout shard."""

    def play(case: Case) -> None:
        home = case.home
        shutil.rmtree(home, ignore_errors=True)
        case.times += 1
        ended = _met(case, "rollout 1 0", train(home), lambda process: os.kill(process, number))
        if ended.returncode != 130 or f"go on with: agent-r1 resume {RUN}" not in ended.stderr:
            case.wrong.append(f"ended with {ended.returncode}: {ended.stderr[-300:]}")
        case.wrong += [f"a process is left over: {each}" for each in lasting(home)]
        case.saw("exit 130, says how to go on")
        case.same(case.resume(), "resumed")

    return play


def server_killed(case: Case) -> None:
    """kill -9 of the run's Prefect server, as the OOM killer would, before a run and in the middle of one."""
    for stage in ("prepare 0 0", "rollout 1 0", "update 2 0"):
        home = case.home
        shutil.rmtree(home, ignore_errors=True)
        case.times += 1
        ended = _met(case, stage, train(home), _kill_server)
        case.wrong += [f"a process is left over: {each}" for each in lasting(home)]
        if ended.returncode == 0:
            case.same(ended, stage)
        else:
            case.clear(ended, stage, ("Prefect", "agent-r1 resume"))
            case.same(case.resume(), f"{stage}, resumed")


def _kill_server(process: int) -> None:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    for pid, parent, *args in (line.split() for line in listed.splitlines()):
        if int(parent) == process and any("server_child.py" in each for each in args):
            os.kill(int(pid), signal.SIGKILL)


def pipes(case: Case) -> None:
    """Standard output ends after a line, or standard input and output are not there."""
    command = " ".join(f"'{each}'" for each in (sys.executable, "-m", "flows.cli", "resume", RUN))
    for what, end in (("| head -1", "| head -1"), ("closed", "<&- >&-"), ("all closed", "<&- >&- 2>&-")):
        home = case.fresh(HALF)
        shell = ["bash", "-o", "pipefail", "-c", f"{command} --home '{home}' {end}"]
        ended = subprocess.run(shell, capture_output=True, text=True, timeout=300, env=without_prefect())
        if "Traceback" in ended.stderr or "Exception" in ended.stderr:
            case.wrong.append(f"{what}: {ended.stderr[-400:]}")
        case.wrong += [f"{what}: a process is left over: {each}" for each in lasting(home)]
        case.saw(f"{what}: exit {ended.returncode}")
        case.same(case.resume(), f"{what}, then resumed")


def odd_path(case: Case) -> None:
    """A home on a path with blanks, quotes and letters of other alphabets."""
    home = case.folder / "Мой дом" / "größer & 'better' 家"
    case.times += 1
    killed = run(["-P", str(DRIVER), "update", "2", "0", "0", "--", *train(home)])
    if killed.returncode != -9:
        case.wrong.append(f"not killed: {killed.stderr[-300:]}")
    case.same(case.resume(home=home), "killed and resumed", home)


SURROUNDINGS = {
    "disk full": Fault("an error that says so; with room again: same result", disk_full, True),
    "home read-only from the start": Fault(
        "an error that says so, exit 2; writable again: same result", read_only, True
    ),
    "home stops being writable": Fault("an error that says so; writable again: same result", forbidden),
    "clock goes back a day": Fault("same result, one value a step", yesterday),
    "two runs and readers at once": Fault("all end, same result", together),
    "two processes on one run": Fault("the second says who has it; the first: same result", twice),
    "SIGTERM in a shard": Fault("exit 130, no process left; resumed: same result", stopped(signal.SIGTERM)),
    "Ctrl-C in a shard": Fault("exit 130, no process left; resumed: same result", stopped(signal.SIGINT)),
    "Prefect server killed": Fault("goes on, or an error that says so; resumed: same result", server_killed),
    "output and input closed": Fault("no traceback, no process left; resumed: same result", pipes),
    "home on an odd path": Fault("same result", odd_path),
}
"""Faults of what is around a run, by name."""
