"""TRL's side of a comparison, run by the interpreter of .venv-bench: trl_side.py SUBJECT_FOLDER SETTINGS_JSON.

It imports nothing of ours. For each line on stdin it does one thing inside TRL's own training loop and prints a line
of JSON. The thing is a rollout, GRPOTrainer's generation with its tool loop, or an update, a whole step of GRPOTrainer
on completions that a rollout function hands it.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_template


class Commands(TrainerCallback):
    """Waits for a command before each step of the loop, and reports it."""

    def __init__(self, place: Path, settings: dict) -> None:
        self.place, self.settings = place, settings
        self.trainer: GRPOTrainer | None = None
        self.started = self.busy = 0.0
        self.begun = False

    def on_step_begin(self, *_, **__):
        if not self.begun:
            self.begun = True
            report({"ready": True})
        for _ in sys.stdin:
            if self.settings["what"] == "update":
                self.started, self.busy = time.perf_counter(), time.process_time()
                return
            report(self.rollout())
        sys.exit(0)

    def on_step_end(self, *_, **__):
        rows = completions(self.place)
        report(
            {
                "seconds": time.perf_counter() - self.started,
                "cpu_seconds": time.process_time() - self.busy,
                "trajectories": len(rows),
                "tokens": sum(len(row["token_ids"]) for row in rows),
                "action_tokens": sum(sum(row["action_mask"]) for row in rows),
            }
        )

    def rollout(self) -> dict:
        """What a training step of GRPOTrainer does before it scores: tokenise, generate, parse, call, generate on."""
        trainer, settings = self.trainer, self.settings
        texts = [text for _, text in read(self.place, "questions")[: settings["questions"]]]
        prompts = [[{"role": "user", "content": text}] for text in texts for _ in range(settings["attempts"])]
        trainer._sync_tool_dicts = [{tool.__name__: tool for tool in trainer._standalone_tools}] * len(prompts)
        trainer._async_tool_dicts = [{}] * len(prompts)
        CALLS.clear()
        started, busy = time.perf_counter(), time.process_time()
        _, ids, mask, *_ = trainer._generate(prompts)
        return {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - busy,
            "trajectories": len(ids),
            "turns": sum(1 + sum(now > before for before, now in pairwise(row)) for row in mask),
            "tokens": sum(sum(row) for row in mask),
            "calls": len(CALLS),
        }


CALLS: list[bool] = []


def make_tool(place: Path):
    """The lookup tool as TRL takes it: a function with types and a docstring."""
    facts = {(entity, relation): value for entity, relation, value in read(place, "facts")}

    def lookup(entity: str, relation: str) -> str:
        """Look up a fact: the value of a relation of an entity.

        Args:
            entity: the entity's name
            relation: the relation, such as director
        """
        CALLS.append(True)
        return facts.get((entity.strip(), relation.strip()), "nothing found")

    return lookup


@cache
def read(place: Path, name: str) -> list:
    return json.loads((place / f"{name}.json").read_text(encoding="utf-8"))


def completions(place: Path) -> list[dict]:
    return read(place, "completions")


def given(place: Path):
    """A rollout function that returns the stored completions."""

    def rollout(*_: object) -> dict:
        rows = completions(place)
        starts = [row["action_mask"].index(True) for row in rows]
        return {
            "prompt_ids": [row["token_ids"][:start] for row, start in zip(rows, starts, strict=True)],
            "completion_ids": [row["token_ids"][start:] for row, start in zip(rows, starts, strict=True)],
            "env_mask": [list(map(int, row["action_mask"][start:])) for row, start in zip(rows, starts, strict=True)],
            "logprobs": None,
        }

    return rollout


def report(found: dict) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**found, "peak_mib": memory}), flush=True)


def main(place: Path, settings: dict) -> None:
    torch.set_num_threads(settings["threads"])
    tokenizer = AutoTokenizer.from_pretrained(place / "policy", padding_side="left")
    tokenizer.response_template = qwen3_template
    updating = settings["what"] == "update"
    rows = len(completions(place)) if updating else settings["questions"] * settings["attempts"]
    commands = Commands(place, settings)
    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=settings["dtype"] == "bfloat16",
            model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
            num_generations=settings["attempts"],
            per_device_train_batch_size=settings["micro_batch"] if updating else rows,
            gradient_accumulation_steps=rows // settings["micro_batch"] if updating else 1,
            max_completion_length=settings["max_context"],
            generation_kwargs={"max_new_tokens": settings["max_new_tokens"]},
            max_tool_calling_iterations=settings["max_turns"] - 1,
            gradient_checkpointing=False,
            beta=0.0,
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            max_steps=1000,
            save_strategy="no",
            report_to="none",
            logging_strategy="no",
            disable_tqdm=True,
            **settings.get("more", {}),
        )
        texts = [text for _, text in read(place, "questions")]
        trainer = GRPOTrainer(
            model=str(place / "policy"),
            reward_funcs=(lambda **_: [sum(row["rewards"]) for row in completions(place)]) if updating else _nothing,
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": text}] for text in texts]}),
            processing_class=tokenizer,
            tools=None if updating else [make_tool(place)],
            rollout_func=given(place) if updating else None,
            callbacks=[commands],
        )
        commands.trainer = trainer
        trainer.train()


def _nothing(completions: list, **_: object) -> list[float]:
    return [0.0] * len(completions)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
