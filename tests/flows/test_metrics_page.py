"""docs/metrics.md against what a run stores: each name is documented, and each documented name is stored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import Fakes

from agent_r1.config import parse
from flows.progress import Progress
from flows.screens import Quiet
from flows.start import begin
from flows.training import iterate
from storage import metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
WHERE = "(rollout|eval/greedy|eval/sampled)"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names that a run of one iteration stores: all stages but publish are real, on next to nothing."""
    from tasks import annotate, evaluate, prepare, publish, rollout, update, warm_start

    entities = {"people": 8, "cities": 4, "countries": 3, "companies": 4, "films": 4, "warm_start_scale": 1}
    config = parse(
        {
            "model": {"tiny": {"layers": 1, "width": 16, "heads": 2}},
            "world": {**entities, "hops": [2], "warm_start": 4, "train": 4, "validation": 2, "test": 1},
            "rollout": {"questions": 2, "attempts": 2, "max_turns": 2, "max_new_tokens": 4},
            "warm_start": {"curriculum_steps": 1, "steps": 1, "sloppy_steps": 1, "batch": 1},
            "evaluation": {"questions": 2},
            "ppo": {"importance_cap": 2},
        },
        "test",
    )
    context = begin(tmp_path_factory.mktemp("home"), "a", config).context
    with pytest.MonkeyPatch.context() as patch:
        for module in (prepare, warm_start, rollout, annotate, update, evaluate):
            name = module.__name__.rpartition(".")[2]
            patch.setattr(module, name, getattr(module, name).fn)
        patch.setattr(publish, "publish", Fakes().publish)
        iterate(context, None, Progress(context, Quiet()))
    with context.store.read() as con:
        return {row.key for row in metrics.load(con, "a")}


def documented() -> dict[str, re.Pattern[str]]:
    """The names in the first column of the page's tables, `*` and `<...>` standing for what may be there."""
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) == len(set(names))
    patterns = {name: re.sub(r"<\w+>", r"\\w+", name.replace("*", WHERE)) for name in names}
    return {name: re.compile(pattern) for name, pattern in patterns.items()}


def test_every_metric_that_a_run_stores_is_documented_once(stored: set[str]) -> None:
    patterns = documented().values()
    assert {key: sum(bool(one.fullmatch(key)) for one in patterns) for key in stored} == dict.fromkeys(stored, 1)


def test_every_documented_metric_is_stored(stored: set[str]) -> None:
    assert [name for name, one in documented().items() if not any(map(one.fullmatch, stored))] == []
