"""The errors a user may meet. The command line turns each into one readable line and an exit code."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" for the nearest of the known names, nothing where none is near."""
    nearest = get_close_matches(given, list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


class AgentR1Error(Exception):
    """The work failed for a reason that the message names; exit code 1."""

    exit_code = 1


class ConfigError(AgentR1Error, ValueError):
    """The configuration or the command is wrong; the message names the key; exit code 2."""

    exit_code = 2


class DataError(AgentR1Error, ValueError):
    """A data file is missing, broken or incomplete; the message names file, item and field."""


class CheckpointError(AgentR1Error):
    """A checkpoint is missing, damaged, or belongs to another model."""


class StoreError(AgentR1Error):
    """The store cannot be opened, is locked for too long, or has another schema version."""


class TrackingError(StoreError):
    """MLflow cannot be reached or refuses. It only shows what is stored, so this stops no run."""


class StoreLockedError(StoreError):
    """Another process has the store open; `holder` says which."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class EngineError(AgentR1Error):
    """The vLLM server cannot be had, or does not do what is needed; the message says what to change."""


class EngineLostError(EngineError):
    """The vLLM server died or does not answer: what it was doing has to be done again."""


class RunError(AgentR1Error):
    """A run does not exist, is in use by another process, or has another identity."""
