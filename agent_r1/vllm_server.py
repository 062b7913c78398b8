"""A vLLM server: one of the run's own, or one that already runs, by URL. Weights in, tokens in, tokens out.

Its process is vllm_process.py's, which tokens to send vllm_sampler.py's; when weights change is left to tasks.
Endpoints are those of vLLM 0.32.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from agent_r1.config import Config
from agent_r1.errors import ConfigError, EngineError, EngineLostError
from agent_r1.model import release_memory, resolve_device
from agent_r1.questions.records import Json
from agent_r1.vllm_process import VllmProcess, interpreter

ADAPTER = "policy"
ADAPTER_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
AT_ONCE = 256  # requests in flight
ANSWER_SECONDS = 30.0
LOAD_SECONDS = 300.0  # for taking new weights, which a large model reads from disk
CHANGING = "being changed"
ON_GPU = ("--enable-sleep-mode", "--gpu-memory-utilization", "0.8")
ON_CPU = ("--enforce-eager", "--no-enable-chunked-prefill")  # chunks and seeds together kill 0.32's CPU build
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # the endpoints for weights; on a socket that only this user can open
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
GENERATE, RELOAD, NAME, FORGET = (
    "/inference/v1/generate", "/collective_rpc", "/update_weight_version", "/reset_prefix_cache",
)  # fmt: skip
PUT_ON = "/v1/load_lora_adapter"

log = logging.getLogger(__name__)


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
        self._device = resolve_device(config.device)
        self._process = VllmProcess(log)
        self._shares_gpu = self._device.type == "cuda" and self.ours
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
        if self.ours and not self._process.running:
            self._start(weights)
        elif self._held != weights or self._asleep or self._version() != weights.version:
            try:
                self._take(weights)
            except EngineError as error:
                if not self.ours:
                    raise
                log.warning("vLLM does not take new weights and is started anew: %s", error)
                self.close()
                self._start(weights)

    def rest(self) -> None:
        """Give up the GPU's memory, weights included, until the next `load`; nothing where it is not shared."""
        if self._shares_gpu and self._process.running and not self._asleep:
            try:
                self._post("/sleep?level=2")
                self._asleep = True
            except EngineError as error:  # a server that is gone has given up its memory, too
                log.warning("vLLM cannot give up its memory and is ended: %s", error)
                self.close()

    def close(self) -> None:
        """End our server and everything it started; one that we did not start goes on."""
        self._asleep, self._held = False, None
        self._process.stop()

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
            uds=self._socket, verify=self._verify, limits=httpx.Limits(max_connections=AT_ONCE)
        )
        limit = httpx.Timeout(self._settings.timeout, pool=None)
        adapter = {} if self._held is None or self._held.adapter is None else {"model": ADAPTER}
        async with httpx.AsyncClient(transport=transport, base_url=self._base, timeout=limit) as client:

            async def one(request: Mapping[str, Json]) -> Generated:
                return _read(_checked(await client.post(GENERATE, json={**request, **adapter})))

            return await asyncio.gather(*map(one, requests))

    def check(self) -> None:
        """EngineError or ConfigError where the server cannot be had: before any work. Nothing is started."""
        if self._config.model.lora.rank:
            self._adapter_rank()
        if self.ours:
            interpreter(self._settings.python)
        else:
            self._check_served()

    def _check_served(self) -> None:
        paths = self._get("/openapi.json").get("paths")
        known = paths if isinstance(paths, dict) else {}
        missing = [path for path in (GENERATE, RELOAD, NAME, FORGET) if path not in known]
        if missing:
            raise EngineError(
                f"{self._base} has no {missing[0]}: start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-scale-out"
            )
        served = self._get("/server_info?config_format=json").get("vllm_config")
        model = served.get("model_config") if isinstance(served, dict) else None
        if not isinstance(served, dict) or not isinstance(model, dict):
            raise EngineError(f"{self._base} says nothing of its configuration at /server_info: it is no vLLM we know")
        if self._config.model.lora.rank and (PUT_ON not in known or not served.get("lora_config")):
            raise EngineError(
                f"{self._base} takes no adapters: start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and "
                f"--max-lora-rank {self._adapter_rank()}"
            )
        mode, temperature = model.get("logprobs_mode"), self._config.rollout.temperature
        if mode != "processed_logprobs" and (mode != "raw_logprobs" or temperature != 1):
            raise EngineError(
                f"{self._base} says {mode} for log-probabilities, and rollout.temperature is {temperature}: start it "
                "with --logprobs-mode processed_logprobs"
            )
        longest, most = model.get("max_model_len"), self._config.rollout.max_context
        if not isinstance(longest, int) or longest < most:
            raise EngineError(
                f"{self._base} takes contexts of {longest} tokens, rollout.max_context is {most}: start it with "
                f"--max-model-len {most}"
            )

    def _start(self, weights: Weights) -> None:
        python = interpreter(self._settings.python)
        if self._shares_gpu:
            release_memory()
        settings = {**ENVIRONMENT, "VLLM_CPU_KVCACHE_SPACE": str(self._settings.cpu_cache_gib)}
        if self._config.threads is not None:
            settings |= {"OMP_NUM_THREADS": str(self._config.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        if self._device.index is not None and self._device.type == "cuda":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            named = self._device.index < len(visible) and visible[self._device.index]
            settings["CUDA_VISIBLE_DEVICES"] = named or str(self._device.index)
        try:
            self._process.start(python, lambda socket: self._arguments(weights, socket), settings)
            self._process.wait_until(self._healthy, self._settings.start_timeout)
            self._name(weights)
        except BaseException:
            self.close()
            raise

    def _arguments(self, weights: Weights, socket: Path) -> list[str]:
        dtype, most = self._config.model.dtype, self._config.rollout.max_context
        gpu = self._device.type == "cuda"
        if dtype == "auto":
            dtype = "bfloat16" if gpu else "float32"
        return [
            *("-m", "vllm.entrypoints.openai.api_server", "--model", str(weights.folder.absolute())),
            *("--uds", str(socket), "--enable-scale-out", "--dtype", dtype),
            *("--max-model-len", str(most), "--enable-prefix-caching"),
            *("--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"),
            *(ON_GPU if gpu else (*ON_CPU, "--max-num-batched-tokens", str(max(8192, most)))),
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

    def _healthy(self) -> bool:
        try:
            with self._client(timeout=2) as client:
                return client.get("/health").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _take(self, weights: Weights) -> None:
        """Read new weights in place; a base that the server still has is not read again for other adapters."""
        held, self._held = self._held, None
        same = held is not None and not self._asleep and self._version() == held.version
        self._post(NAME, {"new_version": CHANGING})  # whoever asks meanwhile is not told the old weights' name
        if self._asleep:
            release_memory()
            self._post("/wake_up?tags=weights")
        if not same or weights.adapter is None or held is None or held.folder != weights.folder:
            path = str(weights.folder.absolute())
            self._post(RELOAD, {"method": "reload_weights", "kwargs": {"weights_path": path}})
        if self._asleep:
            self._post("/wake_up?tags=kv_cache")
            self._asleep = False
        self._name(weights)

    def _name(self, weights: Weights) -> None:
        """Put adapters on, forget what is cached, and let completions say the name of what they are sampled from."""
        if weights.adapter is not None:
            path = str(weights.adapter.absolute())
            self._post(PUT_ON, {"lora_name": ADAPTER, "lora_path": path, "load_inplace": True})
        if self._post(FORGET).get("success") is not True:
            raise EngineError("vLLM keeps what the old weights left in its prefix cache")
        self._post(NAME, {"new_version": weights.version})
        self._held = weights

    def _version(self) -> Json:
        return self._get("/weight_info").get("weight_version")

    def _get(self, path: str) -> dict[str, Json]:
        return self._ask("GET", path, None, ANSWER_SECONDS)

    def _post(self, path: str, body: Mapping[str, Json] | None = None) -> dict[str, Json]:
        return self._ask("POST", path, body, LOAD_SECONDS)

    def _ask(self, method: str, path: str, body: Mapping[str, Json] | None, seconds: float) -> dict[str, Json]:
        try:
            with self._client(timeout=seconds) as client:
                return _checked(client.request(method, path, json=body))
        except (httpx.TransportError, httpx.InvalidURL) as error:
            where = "our vLLM" if self.ours else f"rollout.vllm.url: {self._base}"
            raise EngineLostError(f"{where} does not answer ({path}): {error or type(error).__name__}") from error

    def _client(self, timeout: float) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=self._socket, verify=self._verify)
        return httpx.Client(transport=transport, base_url=self._base, timeout=timeout)

    @property
    def _socket(self) -> str | None:
        return str(self._process.socket) if self.ours else None

    @property
    def _base(self) -> str:
        return self._settings.url or "http://vllm"

    @property
    def _verify(self) -> bool:
        """Certificates cost time to read and are of no use on a socket of ours."""
        return self._base.startswith("https")

    def _said(self) -> str:
        return self._process.said() if self.ours else f" ({self._base})"


def _checked(response: httpx.Response) -> dict[str, Json]:
    """The JSON object of an answer, an empty one where it is something else (adapters are acknowledged in words).

    EngineLostError where the server failed, EngineError where it refused.
    """
    if response.is_server_error:
        raise EngineLostError(f"vLLM failed at {response.request.url.path}: {response.text[:300]}")
    if not response.is_success:
        raise EngineError(f"vLLM refused {response.request.url.path}: {response.status_code} {response.text[:300]}")
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
            f"vLLM's {GENERATE} answers in a form that is not known here (0.32's is): {str(answer)[:300]}"
        ) from error
