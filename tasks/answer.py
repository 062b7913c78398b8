"""answer: any policy on any questions, by one method or several, with one model, and one search index for each file.

What a method is, agent_r1/methods.py says. `stored` keeps what was answered as a run, by the rule of resuming; no
Prefect task, because nothing here is worth another try.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent_r1 import model
from agent_r1.chat import Tokenizer
from agent_r1.config import Config
from agent_r1.dataset import Split, of_file, splits
from agent_r1.environments import Environments, open_environments
from agent_r1.errors import ConfigError, RunError
from agent_r1.evaluation import Score, evaluation_metrics, scores
from agent_r1.hf_sampler import EmbeddedSampler
from agent_r1.methods import configured, environments_for, needed, put, retrieve
from agent_r1.questions.records import Json, Question
from agent_r1.sampler import Sampler
from agent_r1.trajectory import CallRecord, Purpose, Trajectory
from agent_r1.vllm_server import Weights
from agent_r1.world.generate import write_database
from storage import questions, trajectories
from storage.files import sha256
from tasks import publish
from tasks.corpus import finder_over
from tasks.engine import LOG, on_server, server_of
from tasks.evaluate import MODES, answer
from tasks.prepare import write_ids
from tasks.stage import Connection, Receipt, RunContext, Work, input_hash, run_stage

Made = dict[Purpose, list[Trajectory]]


@dataclass(frozen=True)
class Asked:
    """Which questions: those of a split, or all of a file's; with `questions` the first so many of them."""

    data: Path | None
    split: str
    questions: int | None = None
    format: str = "auto"

    @property
    def name(self) -> str:
        """What to call them."""
        return self.split if self.data is None else str(self.data)


@dataclass(frozen=True)
class Opened:
    """A policy that is ready to answer, and the configuration of each method."""

    configs: Mapping[str, Config]
    tokenizer: Tokenizer
    sample: Callable[[Callable[[Sampler], Made]], Made]


@dataclass(frozen=True)
class Answered:
    """What a method answered, greedy and sampled, and what was found for each question before it, where it searches."""

    questions: Mapping[str, Question]
    made: Made
    given: Mapping[str, CallRecord]

    @property
    def metrics(self) -> dict[str, float]:
        """Over all questions."""
        found: dict[str, float] = {}
        for mode, rows in self.made.items():
            found |= evaluation_metrics(mode, rows, self.questions, given=self.given)
        return found

    @property
    def scores(self) -> list[Score]:
        """By data set and by hops."""
        return scores({str(mode): rows for mode, rows in self.made.items()}, self.questions, self.given)


def split_of(config: Config, asked: Asked) -> Split:
    """The questions, their passages and their world. ConfigError or DataError where there are none."""
    if asked.data is not None:
        folder = None if config.data.databases is None else Path(config.data.databases)
        found = of_file(asked.split, asked.data, asked.format, config.data.unscorable, folder)
    else:
        known = {each.name: each for each in splits(config)}
        if asked.split not in known:
            raise ConfigError(f"--split: there is no split {asked.split!r}; there is {', '.join(known)}")
        found = known[asked.split]
    return replace(found, questions=found.questions[: asked.questions])


@contextmanager
def open_policy(policy: str, config: Config, methods: Sequence[str]) -> Iterator[Opened]:
    """A model folder or hub id, loaded once for all methods, in this process or on a vLLM server."""
    served = config.rollout.engine == "vllm"
    asked = {"model": config.model.model_copy(update={"path": policy})}
    loaded = model.create(config.model_copy(update=asked | ({"device": "cpu"} if served else {})))
    configs = {method: configured(method, config, loaded.tokenizer) for method in methods}
    if not served:
        yield Opened(configs, loaded.tokenizer, lambda make: make(EmbeddedSampler(loaded)))
        return
    longest = max(configs.values(), key=lambda each: each.rollout.max_context)
    with tempfile.TemporaryDirectory(prefix="agent-r1-") as folder:
        loaded.save(Path(folder))
        weights = Weights(Path(folder) / "policy", policy)
        with server_of(longest, Path(folder) / LOG) as server:
            yield Opened(configs, loaded.tokenizer, lambda make: on_server(server, weights, make))


@contextmanager
def open_split(
    home: Path, opened: Opened, config: Config, split: Split, methods: Sequence[str]
) -> Iterator[Callable[[str, str], Answered]]:
    """What answers a split's questions by a method, for a run of that name; all methods share their tools."""
    with open_tools(home, opened, config, split, methods) as environments:
        yield lambda method, run: _answered(opened, config, split, environments, method, run)


@contextmanager
def open_tools(
    home: Path, opened: Opened, config: Config, split: Split, methods: Sequence[str]
) -> Iterator[Environments]:
    """The tools of a split that the methods need, closed at the end."""
    with tempfile.TemporaryDirectory(prefix="agent-r1-") as folder:
        database = Path(folder) / "world.duckdb"
        if split.world is not None:
            write_database(split.world, database)
        tools = needed(methods, config)
        found_in = finder_over(config.search, home, split.passages) if "search" in tools.tools else []
        with open_environments(tools, database, found_in, opened.tokenizer) as environments:
            yield environments


def _answered(
    opened: Opened, config: Config, split: Split, environments: Environments, method: str, run: str
) -> Answered:
    found, asked = opened.configs[method], {question.id: question for question in split.questions}
    acting = environments_for(method, config, found, environments)
    given = retrieve(split.questions, found, environments) if method == "rag" else {}
    shown = {key: put(question, given) for key, question in asked.items()}
    made = opened.sample(lambda sampler: answer(sampler, acting, shown, found, run, 0, MODES))
    return Answered(asked, made, given)


def stored(
    context: RunContext,
    split: Split,
    source: Mapping[str, Json],
    tokenizer: Tokenizer,
    tags: Mapping[str, str],
    make: Callable[[], Answered],
) -> Receipt:
    """Receipt: the scores by data set and by hops. `source` says what answers which questions.

    RunError where the run holds answers to other questions, or of another policy.
    """
    done = context.ledger.find(0, "prepare")
    if done is not None and done.input_hash != input_hash(context, "prepare", 0, 0, source):
        raise RunError(
            f"run {context.run!r} exists and holds answers to other questions, over other files or with other weights: "
            "use another --run"
        )
    prepared = run_stage(context, "prepare", 0, source, lambda: _prepared(context, split, tokenizer))
    evaluated = run_stage(context, "evaluate", 0, {"prepared": dict(prepared)}, lambda: _evaluated(context, make()))
    run_stage(
        context,
        "publish",
        0,
        {"evaluated": dict(evaluated)},
        lambda: publish.published(context, 0, prepared, tags),
    )
    return evaluated


def _prepared(context: RunContext, split: Split, tokenizer: Tokenizer) -> Work:
    """The questions; and the tokenizer, by which trajectories are shown."""
    tokenizer.save_pretrained(context.folder / "policy")
    ids = write_ids(context, split)
    receipt: dict[str, Json] = {
        "questions": {split.name: len(split.questions)},
        "files": {context.name(ids): sha256(ids)},
    }
    return Work(receipt, lambda con: questions.add(con, split.name, split.questions))


def _evaluated(context: RunContext, answered: Answered) -> Work:
    def save(con: Connection) -> None:
        for purpose, rows in answered.made.items():
            trajectories.save(con, context.run, 0, purpose, 0, rows)

    rows: list[Json] = [
        {"dataset": each.dataset, "hops": each.hops, "questions": each.questions, "metrics": dict(each.metrics)}
        for each in answered.scores
    ]
    return Work({"questions": len(answered.questions), "scores": rows}, save, answered.metrics)


def scores_of(receipt: Receipt) -> list[Score]:
    """The scores that `stored` left."""
    rows = receipt["scores"]
    assert isinstance(rows, list)
    return [Score(**row) for row in rows if isinstance(row, dict)]  # type: ignore[arg-type]
