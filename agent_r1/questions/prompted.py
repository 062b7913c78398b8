"""Training sets of Search-R1, verl and Agent-R1: a prompt that is made already, and what its answer is scored by.

The prompt is not used, as our own chat template asks the question: it is taken from where it stands alone, or cut out
of the prompt. https://github.com/PeterGriffinJin/Search-R1, https://github.com/0russwest0/Agent-R1
"""

from __future__ import annotations

from agent_r1.questions.flashrag import golden_answers
from agent_r1.questions.items import Value
from agent_r1.questions.records import Json, Question

_MARK = "Question: "
_SETS = {
    "hotpotqa/hotpot_qa": "hotpotqa",
    "xanhho/2WikiMultihopQA": "2wiki",
    "2wikimultihopqa": "2wiki",
    "bdsaglam/musique": "musique",
    "openai/gsm8k": "gsm8k",
}
"""What the projects call a set -> our name of it."""


def prompted_question(item: Value) -> Question:
    """A question of these projects; `metadata` says where it is from, and what Agent-R1's environment was to be.

    Ids count from 0 in each of the sets that a file was merged from, so the set is part of the id.
    """
    source, extra = item.get("data_source"), _extra(item)
    dataset = "" if source is None else source.text().strip().removeprefix("searchR1_")
    dataset = _SETS.get(dataset, dataset) or "search_r1"
    identity = item.get("id") or item.get("_id")
    kept = {
        "data_source": source,
        "ability": item.get("ability"),
        "split": extra and extra.get("split"),
        "index": extra and extra.get("index"),
        "env_kwargs": (kwargs := item.get("env_kwargs")) and kwargs.decoded(),
    }
    metadata: dict[str, Json] = {key: value.tree() for key, value in kept.items() if value is not None}
    return Question(
        id="" if identity is None else f"{dataset}:{identity.name()}",
        text=_text(item, extra),
        answers=_answers(item, extra),
        dataset=dataset,
        metadata=metadata,
    )


def is_agent_r1(item: Value) -> bool:
    """Whether an item is of Agent-R1: it names an environment, or its prompt begins with the question."""
    if not _is_prompted(item):
        return False
    named = {"agent_name", "env_kwargs"} & set(item.keys())
    return bool(named) or (item.get("prompt") is not None and _asked(item["prompt"]).startswith(_MARK))


def is_search_r1(item: Value) -> bool:
    """Whether an item is of Search-R1 or verl: of these sets, and not of Agent-R1."""
    return _is_prompted(item) and not is_agent_r1(item)


def _is_prompted(item: Value) -> bool:
    keys = set(item.keys())
    return "reward_model" in keys or {"prompt", "data_source"} <= keys


def _extra(item: Value) -> Value | None:
    """The struct extra_info, None where it is absent or something else."""
    extra = item.get("extra_info")
    extra = None if extra is None else extra.unwrapped()
    return extra if extra is not None and isinstance(extra.json, dict) else None


def _text(item: Value, extra: Value | None) -> str:
    """The question from its own column, else from extra_info, else out of the prompt."""
    alone = item.get("question") or (extra and extra.get("question"))
    if alone is not None:
        return alone.filled_text().strip()
    asked = _asked(item["prompt"])
    begins_with_it = asked.startswith(_MARK)  # then instructions follow in the next line
    text = asked.partition(_MARK)[2] if _MARK in asked else asked
    text = (text.partition("\n")[0] if begins_with_it else text).strip()
    if not text:
        raise item["prompt"].error(f"no question in it, expected one after {_MARK!r}")
    return text


def _asked(prompt: Value) -> str:
    """What the last user turn of a prompt says; a prompt may be text alone."""
    prompt = prompt.unwrapped()
    if isinstance(prompt.json, str):
        return prompt.text().strip()
    said = [turn["content"] for turn in prompt.elements() if turn["role"].text() == "user"]
    if not said:
        raise prompt.error("no turn of the user")
    return said[-1].text().strip()


def _answers(item: Value, extra: Value | None) -> tuple[str, ...]:
    """The ground truth of the reward, else the column of golden answers; none where it is null."""
    golden = item.get("golden_answers")
    model = item.get("reward_model") if golden is not None else item["reward_model"]
    model = None if model is None else model.unwrapped()
    truth = None if model is None else model.get("ground_truth")
    if truth is None and golden is not None:
        return golden_answers(golden)
    if truth is None:
        if model is not None and "ground_truth" not in model:
            raise model.error(f"no ground_truth in it; keys here: {', '.join(model.keys())}")
        return ()
    listed = extra and extra.get("answer")  # where several answers were joined to one text
    if listed is not None and isinstance(listed.json, list) and ", ".join(listed.texts()) == truth.json:
        return golden_answers(listed)
    return _targets(truth)


def _targets(truth: Value) -> tuple[str, ...]:
    """The answers of a text, a list, or an object with either under "target"."""
    if isinstance(truth.json, dict):
        return _targets(truth["target"])
    return golden_answers(truth)
