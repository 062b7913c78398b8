"""A run's session without Prefect, and with stages that compute next to nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for fakes.py, which is a script, too

import whole_runs
from fakes import Fakes
from whole_runs import Scripted

from flows import session


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Fakes]:
    """Put fresh fake stages in place, of which one may fail, and leave Prefect out."""
    from flows import training

    def no_server(_home: Path, _meanwhile: Callable[[], object]) -> nullcontext[None]:
        return nullcontext()

    def no_dead_runs(_tags: Sequence[str], _alive: object) -> int:
        return 0

    def install(fail_at: str = "") -> Fakes:
        made = Fakes(fail_at)
        made.install(monkeypatch.setattr)
        return made

    monkeypatch.setattr(session, "prefect_server", no_server)
    monkeypatch.setattr(session, "crash_dead_runs", no_dead_runs)
    monkeypatch.setattr(training, "train", training.train.fn)
    return install


@pytest.fixture
def whole(fakes: Callable[[str], Fakes], monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Put the real stages in place, without Prefect and MLflow; what is returned says what the policy says."""
    del fakes  # which leave Prefect out
    monkeypatch.setattr(Scripted, "script", ("<answer>none</answer>",))
    whole_runs.install(monkeypatch.setattr)
    return Scripted
