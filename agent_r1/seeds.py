"""The one file where randomness comes from: a seed is a function of what it is for, never of when it is asked for."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for a purpose, such as ``derive(7, "rollout", 3, question_id, attempt)``; the same everywhere."""
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A numpy generator for a purpose."""
    return np.random.Generator(np.random.PCG64(derive(seed, *purpose)))


def uniforms(seed: int, count: int) -> np.ndarray:
    """`count` float64 numbers in [0, 1) that depend on `seed` alone; one is spent per sampled token."""
    return np.random.Generator(np.random.PCG64(seed)).random(count)
