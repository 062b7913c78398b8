"""The best checkpoint of a run in MLflow's model registry, under the alias `best`. Which one it is, publish says.

A version says no more than is there: versions of checkpoints that are gone, or were made anew, are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

ALIAS = "best"
WEIGHTS = "agent_r1.weights"


@dataclass(frozen=True)
class Best:
    """A checkpoint to register: its policy's folder, the sha256 of its weights, and what else its tags say."""

    folder: Path
    weights: str
    tags: Mapping[str, str]


def register(client: MlflowClient, name: str, run_id: str, best: Best | None, source: str) -> None:
    """Let the registered model `name` have one version, of the best checkpoint, or none. May be done again.

    `source` is where the version says that it lies.
    """
    versions = client.search_model_versions(f"name = '{name}'")
    kept = None
    if best is not None:
        kept = next((each for each in versions if _is(each, run_id, best, source)), None)
        if kept is None:
            if not versions:
                _ensure_model(client, name)
            tags = {**best.tags, WEIGHTS: best.weights}
            kept = client.create_model_version(name, source, run_id, tags=tags, await_creation_for=0)
            client.set_registered_model_alias(name, ALIAS, kept.version)
        elif ALIAS not in client.get_model_version(name, kept.version).aliases:
            client.set_registered_model_alias(name, ALIAS, kept.version)
    for each in versions:
        if kept is None or each.version != kept.version:
            client.delete_model_version(name, each.version)


def forget(client: MlflowClient, run_id: str) -> None:
    """Delete the versions that an MLflow run has."""
    for each in client.search_model_versions(f"run_id = '{run_id}'"):
        client.delete_model_version(each.name, each.version)


def _is(version: ModelVersion, run_id: str, best: Best, source: str) -> bool:
    made = (version.source, version.run_id, version.tags.get(WEIGHTS))
    return made == (source, run_id, best.weights)


def _ensure_model(client: MlflowClient, name: str) -> None:
    try:
        client.create_registered_model(name, description="The best checkpoint of an Agent-R1 run.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
