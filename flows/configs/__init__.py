"""Shipped configurations as package data, and finding one by name. Reading them is left to agent_r1/config.py."""

from __future__ import annotations

from pathlib import Path

from agent_r1.errors import ConfigError, did_you_mean

CONFIGS = Path(__file__).parent


def find_config(name: str, below: str = "") -> Path:
    """A file, else a shipped one of that name in that folder of configs. ConfigError names those there are."""
    if Path(name).is_file():
        return Path(name)
    shipped = {path.stem: path for path in sorted((CONFIGS / below).glob("*.yaml"))}
    if name not in shipped:
        names = ", ".join(shipped) or "none"
        raise ConfigError(
            f"{name}: no such file, and no shipped configuration; those are {names}{did_you_mean(name, shipped)}"
        )
    return shipped[name]
