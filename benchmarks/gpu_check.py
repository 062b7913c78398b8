"""Does it train on this machine's GPU, and how fast: `python benchmarks/gpu_check.py`, under 5 minutes, no downloads.

A random Qwen3-shaped model of half a billion weights trains two iterations in bfloat16 on the built-in world, sampled
by vLLM where an environment has it (`make install-vllm`, or --vllm-python), else embedded. Without a GPU the same is
done with a tiny shape. Nothing is learned: random weights say random tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from agent_r1 import tiny
from agent_r1.vllm_process import default_interpreter, installed_version
from flows import cli


@dataclass(frozen=True)
class Shape:
    """Of the model and of an iteration."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    key_value_heads: int
    questions: int
    new_tokens: int


HALF_A_BILLION = Shape(151_936, 1024, 24, 16, 8, questions=128, new_tokens=128)
TINY = Shape(1000, 64, 2, 4, 2, questions=16, new_tokens=16)


@dataclass(frozen=True)
class Report:
    """What was measured. Token rates are of the second iteration, an update's without padding, times epochs."""

    device: str
    engine: str
    weights_millions: float
    seconds: float
    logprob_gap_mean: float
    logprob_gap_max: float
    rollout_tokens_per_second: float
    update_tokens_per_second: float
    matmul_tflops: float
    update_utilisation: float
    device_utilisation: float | None
    peak_trainer_gb: float
    peak_device_gb: float | None


def main() -> None:
    """Print the report, as lines and as JSON into --json."""
    parser = argparse.ArgumentParser(description="Train two iterations and say how fast.")
    parser.add_argument("--engine", choices=("auto", "vllm", "embedded"), default="auto")
    parser.add_argument(
        "--vllm-python", help="interpreter of an environment with vLLM", default=str(default_interpreter())
    )
    parser.add_argument("--json", type=Path, help="file for the report")
    given = parser.parse_args()
    served = given.engine == "vllm" or (
        given.engine == "auto" and installed_version(Path(given.vllm_python)) is not None
    )
    report = measure("vllm" if served else "embedded", given.vllm_python)
    for name, value in asdict(report).items():
        print(f"{name:28} {value if not isinstance(value, float) else f'{value:.4g}'}")
    if given.json:
        given.json.write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")


def measure(engine: str, vllm_python: str) -> Report:
    """Two iterations of a run of the command line in a temporary home."""
    cuda = torch.cuda.is_available()
    shape = HALF_A_BILLION if cuda else TINY
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder, Watch(cuda) as watch:
        home, model = Path(folder) / "home", Path(folder) / "model"
        weights = make(shape, model)
        flops = matmul_flops(shape, cuda)
        settings: dict[str, object] = {
            "model.path": model,
            "model.dtype": "bfloat16",
            "device": "cuda" if cuda else "cpu",
            "rollout.engine": engine,
            "rollout.questions": shape.questions,
            "rollout.shard_size": shape.questions,
            "rollout.max_new_tokens": shape.new_tokens,
            "rollout.max_context": 1024,
            "rollout.max_turns": 3,
            "ppo.micro_batch": 16,
            "ppo.epochs": 1,
            "ppo.learning_rate": 1e-6,
            "evaluation.questions": 1,
            "evaluation.every": 2,
            "keep_checkpoints": "[last]",
        }
        if engine == "vllm":
            settings |= {
                "rollout.vllm.python": vllm_python,
                "rollout.vllm.arguments": "[--gpu-memory-utilization, '0.5']",
            }
            settings |= {} if cuda else {"rollout.vllm.arguments": "[]", "rollout.vllm.cpu_cache_gib": 1}
        off = ["curriculum_steps", "steps", "sloppy_steps"]
        settings |= {f"warm_start.{name}": 0 for name in off}
        chosen = [f"--set={key}={value}" for key, value in settings.items()]
        if code := cli.main(["train", "--run", "check", "--home", str(home), "--iterations", "2", *chosen]):
            sys.exit(code)
        metrics, tokens = read(home)
    epochs, seconds = 1, metrics["time/update_seconds"]
    # forward and backward of every epoch (6 a weight and token); forward of the policy and the reference before, and of
    # the critic's states after (2 each); the output layer as if on every token
    needed = (6 * epochs + 2 * 3) * weights * tokens
    return Report(
        device=torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads",
        engine=engine,
        weights_millions=weights / 1e6,
        seconds=time.monotonic() - began,
        logprob_gap_mean=metrics["rollout/logprob_gap_mean"],
        logprob_gap_max=metrics["rollout/logprob_gap_max"],
        rollout_tokens_per_second=metrics["rollout/tokens_per_second"],
        update_tokens_per_second=epochs * tokens / seconds,
        matmul_tflops=flops / 1e12,
        update_utilisation=needed / seconds / flops,
        device_utilisation=watch.utilisation,
        peak_trainer_gb=torch.cuda.max_memory_allocated() / 1e9 if cuda else peak_resident_gb(),
        peak_device_gb=watch.peak_gb,
    )


def make(shape: Shape, folder: Path) -> int:
    """Save a random model with the built-in tokenizer, which knows a part of the vocabulary; how many weights."""
    tokenizer = tiny.tokenizer()
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=3 * shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.get_vocab()[str(tokenizer.eos_token)],
        pad_token_id=tokenizer.get_vocab()[str(tokenizer.pad_token)],
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def matmul_flops(shape: Shape, cuda: bool) -> float:
    """Floating point operations a second of the model's largest square-ish product, in bfloat16: the best of ten."""
    device = "cuda" if cuda else "cpu"
    rows = 8192 if cuda else 512
    a = torch.randn(rows, shape.width, device=device, dtype=torch.bfloat16)
    b = torch.randn(shape.width, 3 * shape.width, device=device, dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(10):
            torch.mm(a, b)
        if cuda:
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / 10)
    return 2 * rows * shape.width * 3 * shape.width / best


def read(home: Path) -> tuple[dict[str, float], int]:
    """The second iteration's metrics, and the tokens of its segments."""
    with duckdb.connect(str(home / "store.duckdb"), read_only=True) as con:
        metrics = dict(con.execute("SELECT key, value FROM metrics WHERE iteration = 2").fetchall())
        counted = con.execute("SELECT sum(len(token_ids)) FROM annotations WHERE iteration = 2").fetchone()
    assert counted is not None
    return metrics, int(counted[0])


def peak_resident_gb() -> float:
    """Of this process, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


class Watch:
    """Asks nvidia-smi twice a second for the GPU's utilisation and used memory, vLLM's included."""

    def __init__(self, cuda: bool) -> None:
        self._on = cuda
        self._seen: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        if self._on:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._on:
            self._thread.join()

    @property
    def utilisation(self) -> float | None:
        """Mean share of the time in which the GPU did anything, from 0 to 1; None without a GPU."""
        return sum(each for each, _ in self._seen) / len(self._seen) if self._seen else None

    @property
    def peak_gb(self) -> float | None:
        """The most memory in use at once, by all processes; None without a GPU."""
        return max((each for _, each in self._seen), default=None)

    def _watch(self) -> None:
        ask = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "--id=0"]
        while not self._stop.wait(0.5):
            said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split(",")
            with suppress(ValueError):  # a GPU that is shared out says [N/A]
                utilisation, mebibytes = map(float, said)
                self._seen.append((utilisation / 100, mebibytes * 2**20 / 1e9))


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
