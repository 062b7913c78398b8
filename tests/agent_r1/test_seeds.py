"""Seeds: functions of their purpose and of nothing else."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from agent_r1.seeds import derive, generator, uniforms


def test_a_seed_is_the_hash_of_its_purpose() -> None:
    text = b"7\x1fstr:rollout\x1fint:3"
    assert derive(7, "rollout", 3) == int.from_bytes(hashlib.sha256(text).digest()[:8], "big") // 2


@pytest.mark.parametrize(
    "other",
    [(8, "action", 1, "q", 0), (7, "action", 1, "q", 1), (7, "action", "1", "q", 0), (7, "action", 1, "q0"), (7,)],
)
def test_every_part_of_a_purpose_matters(other: tuple[int | str, ...]) -> None:
    seed, *purpose = other
    assert isinstance(seed, int)
    assert derive(seed, *purpose) != derive(7, "action", 1, "q", 0)


def test_seeds_fit_63_bits() -> None:
    assert all(0 <= derive(number, "x") < 2**63 for number in range(200))


def test_a_generator_starts_anew_each_time_it_is_asked_for() -> None:
    assert generator(1, "a").random(3).tolist() == generator(1, "a").random(3).tolist()
    assert generator(1, "a").random(3).tolist() != generator(1, "b").random(3).tolist()


def test_more_uniforms_begin_with_the_fewer() -> None:
    few, many = uniforms(5, 3), uniforms(5, 9)
    assert few.tolist() == many[:3].tolist()
    assert few.dtype == np.float64
    assert ((many >= 0) & (many < 1)).all()
