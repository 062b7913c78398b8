"""What interrupts a command, told to its user: Ctrl-C, and a full disk. Other errors are left to cli.py."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from agent_r1.errors import ConfigError, RunError, StoreError

INTERRUPTED = 130
FULL = 50e6  # bytes; no checkpoint fits into less


@contextmanager
def orderly(home: Path, go_on: str) -> Iterator[None]:
    """Ctrl-C says what goes on from there; an error on a full disk says that the disk is full."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"stopped; go on with: {go_on}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except (ConfigError, RunError):
        raise
    except Exception as error:  # Prefect, MLflow, DuckDB and torch all meet a full disk with errors of their own
        free = shutil.disk_usage(home).free
        if free < FULL:
            raise StoreError(f"the disk of home {home} is full ({free / 1e6:.0f} MB left): {error}") from error
        raise
