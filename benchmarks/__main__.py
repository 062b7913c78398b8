"""One command, one table: python -m benchmarks [--only PART ...]. JSON beside it, in benchmarks/results.

rollout and update are measured against TRL, in pairs; vllm is rollouts by vLLM against the embedded engine; update is
measured against the machine's matrix multiplication, too; overhead is what an iteration spends beside computing; store
and growth are about DuckDB. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig

from agent_r1.questions.records import Json
from agent_r1.vllm_process import default_interpreter, installed_version
from benchmarks import matmul, overhead, pairs, store
from benchmarks.subjects import MAX_CONTEXT, MAX_TURNS, SUBJECTS, Subject, make, read_completions
from tasks.versions import code_version, library_versions, machine

HERE = Path(__file__).parent
PARTS = ("rollout", "vllm", "update", "overhead", "store", "growth")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TAUGHT = ("warm_start.curriculum_steps=0", "warm_start.steps=0", "warm_start.sloppy_steps=0")
RUNS = {
    "quickstart": ("quickstart", ()),
    "smollm2": (
        "hotpotqa-smollm2",
        ("data.path=null", "tools=[lookup]", "rollout.system_prompt=''", "evaluation.questions=8"),
    ),
}
"""The shipped configuration that a subject's overhead is measured with, and what is changed of it."""

Found = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for."""

    work: Path
    threads: int
    rounds: int
    trl: Path | None
    """The interpreter of TRL's environment, none where there is none: then our side alone is measured."""


def main() -> int:
    """Measure, write the JSON, print the table."""
    asked = _arguments()
    plan = Plan(asked.work, asked.threads, asked.rounds, asked.trl if asked.trl.exists() else None)
    if plan.trl is None:
        print(f"{asked.trl} is not there: nothing is compared with TRL (make install-bench)", file=sys.stderr)
    torch.set_num_threads(plan.threads)
    asked.results.mkdir(parents=True, exist_ok=True)
    for part in asked.only:
        for subject in asked.subjects if part in ("rollout", "vllm", "update", "overhead") else [None]:
            name = part if subject is None else f"{part}-{subject}"
            found = _measure(part, None if subject is None else SUBJECTS[subject], plan)
            about: Found = {"code": code_version(), "machine": machine(), "threads": plan.threads}
            about |= {"versions": {**library_versions(), "python": platform.python_version()}}
            text = json.dumps({"part": name, **about, "found": found}, indent=1) + "\n"
            (asked.results / f"{name}.json").write_text(text, encoding="utf-8")
    print(table(asked.results))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts (all)")
    parser.add_argument("--subjects", nargs="+", choices=tuple(SUBJECTS), default=tuple(SUBJECTS), help="these models")
    parser.add_argument("--rounds", type=int, default=5, help="measurements, in pairs where there are two sides (5)")
    parser.add_argument("--threads", type=int, default=1, help="of torch and OpenMP, on both sides (1)")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="where policies and stores are kept")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="where the JSON goes")
    trl = HERE.parent / ".venv-bench" / "bin" / "python"
    parser.add_argument("--trl", type=Path, default=trl, help="python with TRL (.venv-bench)")
    return parser.parse_args()


def _measure(part: str, subject: Subject | None, plan: Plan) -> Found:
    print(f"{part} {subject.name if subject else ''} ...", file=sys.stderr, flush=True)
    if subject is not None:
        of: dict[str, Callable[[Subject, Path, Plan], Found]] = {
            "rollout": _rollout,
            "vllm": _vllm,
            "update": _update,
            "overhead": _overhead,
        }
        return of[part](subject, make(subject, plan.work, plan.threads), plan)
    if part == "store":
        return {**store.formats(10_000, plan.rounds)}
    folder = plan.work / "stores"
    folder.mkdir(parents=True, exist_ok=True)
    return {**store.growth((10_000, 1_000_000), plan.rounds, folder)}


def _settings(subject: Subject, what: str, plan: Plan) -> dict[str, Json]:
    """What both sides are told."""
    return {
        "what": what,
        "threads": plan.threads,
        "dtype": subject.dtype,
        "questions": subject.questions,
        "attempts": subject.attempts,
        "micro_batch": subject.micro_batch,
        "max_new_tokens": subject.max_new_tokens,
        "max_context": MAX_CONTEXT,
        "max_turns": MAX_TURNS,
    }


def _pair(subject: Subject, what: str, place: Path, plan: Plan) -> dict[str, list[dict[str, float]]]:
    settings = _settings(subject, what, plan)
    with pairs.ours(place, settings) as ours:
        if plan.trl is None:
            return pairs.take_turns({"ours": ours}, plan.rounds)
        with pairs.trl(place, settings, plan.trl) as trl:
            return pairs.take_turns({"ours": ours, "trl": trl}, plan.rounds)


def _rollout(subject: Subject, place: Path, plan: Plan) -> Found:
    measured = _pair(subject, "rollout", place, plan)
    return {**_compared(measured, ("turns", "tokens")), "measured": _plain(measured)}


def _vllm(subject: Subject, place: Path, plan: Plan) -> Found:
    """The embedded engine against vLLM, where `make install-vllm` has put it."""
    if installed_version(default_interpreter()) is None:
        print("vLLM is not there: it is not measured (make install-vllm)", file=sys.stderr)
        return {}
    embedded, served = (_settings(subject, what, plan) for what in ("rollout", "rollout_vllm"))
    with pairs.ours(place, embedded) as ours, pairs.ours(place, served) as vllm:
        measured = pairs.take_turns({"ours": ours, "vllm": vllm}, plan.rounds)
    ratio = statistics.median(pairs.ratios(measured["ours"], measured["vllm"], "tokens"))
    rates = _compared(measured, ("turns", "tokens"))
    del rates["vllm/peak_mib"]  # of our process, not of vLLM's
    return {**rates, "ratio/tokens": ratio, "measured": _plain(measured)}


def _update(subject: Subject, place: Path, plan: Plan) -> Found:
    measured = _pair(subject, "update", place, plan)
    with pairs.ours(place, _settings(subject, "update_critic", plan)) as ours:
        measured |= {"ours_with_critic_and_kl": pairs.take_turns({"ours": ours}, plan.rounds)["ours"]}
    rows = read_completions(place)
    shape = matmul.shape_of(AutoConfig.from_pretrained(place / "policy"))
    tokens = max(len(row.token_ids) for row in rows) * subject.micro_batch
    limit = matmul.rate(shape, tokens, DTYPES[subject.dtype])
    flop = matmul.update_flop(shape, rows)
    used: Found = {
        f"{side}/model_flop_utilisation": flop / statistics.median(each["seconds"] for each in of) / limit
        for side, of in measured.items()
        if side != "ours_with_critic_and_kl"
    }
    found = _compared(measured, ("tokens",))
    return {
        **found,
        **used,
        "matmul_gflop_per_s": limit / 1e9,
        "update_gflop": flop / 1e9,
        "measured": _plain(measured),
    }


def _overhead(subject: Subject, place: Path, plan: Plan) -> Found:
    config, changed = RUNS[subject.name]
    home = plan.work / f"home-{subject.name}"
    shutil.rmtree(home, ignore_errors=True)
    policy = f"model.path={place / 'policy'}"
    laps = overhead.measure(config, home, plan.threads, plan.rounds, (policy, *TAUGHT, *changed))
    return {**overhead.shares(laps), "measured": _plain({"seconds": laps})}


def _compared(measured: Mapping[str, list[dict[str, float]]], kinds: tuple[str, ...]) -> Found:
    """Medians of the rates and of the pairs' ratios, and the most memory."""
    found: Found = {}
    for kind in kinds:
        for side, of in measured.items():
            found[f"{side}/{kind}_per_s"] = pairs.median_rate(of, kind)
        if "trl" in measured:
            found[f"ratio/{kind}"] = statistics.median(pairs.ratios(measured["ours"], measured["trl"], kind))
    return {**found, **{f"{side}/peak_mib": max(each["peak_mib"] for each in of) for side, of in measured.items()}}


def _plain(measured: Mapping[str, list[dict[str, float]]]) -> Json:
    return {name: [dict(each) for each in of] for name, of in measured.items()}


def table(results: Path) -> str:
    """All parts that the folder holds, as lines of a Markdown table; other files may be there too."""
    lines = ["| part | figure | value |", "|---|---|---|"]
    for path in (path for part in PARTS for path in sorted(results.glob(f"{part}*.json"))):
        content = json.loads(path.read_text(encoding="utf-8"))
        for key, value in content["found"].items():
            if key != "measured":
                lines.append(f"| {content['part']} | {key} | {shown(key, value)} |")
    return "\n".join(lines)


def shown(key: str, value: float) -> str:
    """A figure as people read it."""
    if key.endswith(("share", "utilisation")):
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
