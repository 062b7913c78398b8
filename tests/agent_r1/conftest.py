"""A very small policy with random weights, made once, and its chat."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # for scripted.py

from scripted import SMALL, FakeTool

from agent_r1.chat import Chat
from agent_r1.config import parse
from agent_r1.model import Policy, create

# The same examples every time and nothing kept; a busy machine is no failure.
settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")
torch.set_num_threads(1)  # threads that wait for each other on busy cores take most of the time


@pytest.fixture(scope="session")
def policy() -> Policy:
    """Two layers, random weights; tests must not change it."""
    return create(parse({"model": SMALL}, "test"))


@pytest.fixture
def chat(policy: Policy) -> Chat:
    """A chat with one fake tool named look, without a system prompt."""
    return Chat(policy.tokenizer, [FakeTool("look")], "")
