"""warm_start: checkpoint 0, taught by demonstrations or taken from another run."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from agent_r1 import model
from agent_r1.model import Policy
from agent_r1.ppo import make_learner
from agent_r1.warm_start import warm_start as teach
from storage import checkpoints
from tasks.data import load_questions, open_split, question_ids, with_gold_passages
from tasks.stage import Receipt, RunContext, Work, run_stage
from tasks.update import publish_checkpoint


@task(name="warm_start", task_run_name="warm start", cache_policy=NO_CACHE, persist_result=False)
def warm_start(context: RunContext, prepared: Receipt, start_from: str | None) -> Receipt:
    """Receipt: checkpoint 0. `start_from` is RUN@I of this home, whose policy and critic then begin this run."""
    inputs = {"prepared": dict(prepared), "start_from": start_from}
    return run_stage(context, "warm_start", 0, inputs, lambda: _warm_start(context, start_from))


def _warm_start(context: RunContext, start_from: str | None) -> Work:
    metrics: dict[str, float] = {}
    if start_from is None:
        policy = model.create(context.config)
        if context.config.warm_start.total_steps:
            metrics = _teach(context, policy)
    else:
        run, _, iteration = start_from.rpartition("@")
        folder = RunContext(context.home, run, context.config).checkpoint(int(iteration))
        checkpoints.verify(folder)
        policy = model.load(folder, context.config)
    if context.config.model.lora.rank:  # from here on: the warm start taught all weights
        policy = model.add_adapters(policy, context.config)
    return publish_checkpoint(context, 0, make_learner(policy, context.config), metrics)


def _teach(context: RunContext, policy: Policy) -> dict[str, float]:
    split = "warm_start" if context.config.data.path is None else "train"
    questions = with_gold_passages(context, split, load_questions(context, question_ids(context, split)))
    with open_split(context, split, policy.tokenizer) as environment:
        return teach(policy, list(questions.values()), environment, context.config)
