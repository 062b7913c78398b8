"""What MLflow shows of a run: parameters, metrics by iteration, data sets, tables, traces, its best checkpoint.

The rows in the store are the truth, and every method may be called again with the same rows without changing what is
shown. What is worth showing is left to publish, the form of traces to traces.py, versions of models to registry.py.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import unquote, urlsplit

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # MLflow reads these when it is imported, and wants the word true
os.environ["DO_NOT_TRACK"] = "true"
os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # by default minutes: a run need not wait for its view
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
os.environ.setdefault("MLFLOW_ASYNC_TRACE_LOGGING_RETRY_TIMEOUT", "10")

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracing.client import TracingClient
from mlflow.tracking import MlflowClient

from agent_r1.errors import TrackingError
from agent_r1.questions.records import Json
from storage import registry, traces
from storage.addresses import check_reachable, without_login
from storage.files import folder_lock
from storage.metrics import MetricRow
from storage.mlflow_file import address, make_database, remember
from storage.registry import Best
from storage.traces import Traced

__all__ = ["Best", "Status", "Traced", "Tracker"]

EXPERIMENT = "agent-r1"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # the UI then opens on runs and curves
LONGEST_PARAM = 6000  # MLflow's limits
LONGEST_DIGEST = 36
PARAMS_A_BATCH = 100
METRICS_A_BATCH = 1000
DAMAGE = re.compile("malformed|not a database|disk I/O|no such table|Can't locate revision")
LOCK_WAIT = 120.0  # seconds, on top of the 20 that MLflow itself waits each time

for name in ("mlflow", "alembic"):
    logging.getLogger(name).setLevel(logging.WARNING)
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # a line for each time it tries again
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # a traceback for each time it meets a lock

SHOWN = "agent_r1.shown"  # the last iteration of which everything is shown
Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
T = TypeVar("T")


class Tracker:
    """An experiment of MLflow at `tracking_uri`; by default a SQLite file and a folder of artifacts in `home`.

    TrackingError, in one line, where MLflow cannot be reached or refuses.
    """

    def __init__(self, home: Path, tracking_uri: str | None = None, experiment: str = EXPERIMENT) -> None:
        self.home = home.resolve()
        self.name = experiment
        self.own = tracking_uri is None
        self.uri = tracking_uri or address(self.home / "mlflow.db")
        self.home.mkdir(parents=True, exist_ok=True)
        check_reachable(self.uri)
        with folder_lock(self.home):  # two that make MLflow's tables at once break each other
            if self.own:
                self._ask(lambda: make_database(self.home / "mlflow.db"))
            self.client = self._ask(lambda: MlflowClient(tracking_uri=self.uri, registry_uri=self.uri))
            self.experiment = self._experiment()
            remember(self.home / "mlflow.db")

    def ensure_run(
        self,
        run: str,
        identity: str,
        params: Mapping[str, Json],
        tags: Mapping[str, str],
        known_id: str | None = None,
    ) -> str:
        """The id of the MLflow run that shows `run`: the known one, else one with our tags, else a new one.

        A deleted run is not found again. MLflow's parameters never change, so a parameter that has another value on
        resume is kept as a tag, `agent_r1.changed.<key>`.
        """
        ours = {"agent_r1.run": run, "agent_r1.identity": identity, "agent_r1.home": str(self.home)}
        found = self._living(known_id) or self._tagged(ours)
        if found is None:
            new_tags = {**tags, **ours}
            found = self._ask(lambda: self.client.create_run(self.experiment, tags=new_tags, run_name=run))
        stored = found.data.params
        plain = {key: _plain(value) for key, value in params.items()}
        new = [Param(key, value) for key, value in plain.items() if key not in stored]
        changed = {f"agent_r1.changed.{key}": plain[key] for key in plain if stored.get(key, plain[key]) != plain[key]}
        run_id = found.info.run_id
        for start in range(0, len(new), PARAMS_A_BATCH):
            self._log_batch(run_id, params=new[start : start + PARAMS_A_BATCH])
        self._log_batch(run_id, tags=[RunTag(key, value) for key, value in {**tags, **ours, **changed}.items()])
        return run_id

    def discard(self, run_id: str) -> None:
        """Move the MLflow run to MLflow's trash, from where the UI can restore it; the next ensure_run makes a new one.

        For doing iterations again: MLflow cannot replace a point, so a new run gets the rows that count instead. Not
        an error where the run is gone already.
        """
        if self._living(run_id) is not None:
            self._ask(lambda: registry.forget(self.client, run_id))
            self._ask(lambda: self.client.delete_run(run_id))

    def shown(self, run_id: str) -> int:
        """The last iteration of which everything is shown, -1 for none."""
        return int(self._run(run_id).data.tags.get(SHOWN, "-1"))

    def set_shown(self, run_id: str, iteration: int) -> None:
        """Remember that everything up to the iteration is shown."""
        self._log_batch(run_id, tags=[RunTag(SHOWN, str(iteration))])

    def log_metrics(self, run_id: str, rows: Iterable[MetricRow]) -> int:
        """Add the values that are not there yet, at their own times, and return how many those were.

        A value that stands at its step already is passed over, whenever it was measured. One that differs (see
        discard for how to avoid it) is added with its own time, so that the later one is the latest.
        """
        rows = list(rows)
        last = {each.key: each.step for each in self._run(run_id).data._metric_objs}
        behind = {row.key for row in rows if row.iteration <= last.get(row.key, -1)}  # others are new for sure
        stored = {key: self._history(run_id, key) for key in behind}
        new = [
            Metric(row.key, row.value, int(row.at.timestamp() * 1000), row.iteration)
            for row in rows
            if not _same(stored.get(row.key, {}).get(row.iteration), row.value)
        ]
        for start in range(0, len(new), METRICS_A_BATCH):
            self._log_batch(run_id, metrics=new[start : start + METRICS_A_BATCH])
        return len(new)

    def log_dataset(
        self, run_id: str, name: str, digest: str, source: str, context: str, profile: Mapping[str, Json]
    ) -> None:
        """Name a data set that the run uses; `context` is train, validation or test, `profile` its counts."""
        dataset = Dataset(
            name=name,
            digest=digest[:LONGEST_DIGEST],
            source_type="local",
            source=json.dumps({"uri": source}),
            profile=json.dumps(dict(profile)),
        )
        given = DatasetInput(dataset, [InputTag("mlflow.data.context", context)])
        self._ask(lambda: self.client.log_inputs(run_id, datasets=[given]))

    def log_table(self, run_id: str, name: str, rows: Sequence[Mapping[str, Json]]) -> None:
        """Write `name`.json, a table that the UI shows, in place of one of that name."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        table = {"columns": columns, "data": [[_cell(row.get(column)) for column in columns] for row in rows]}
        self.log_text(run_id, f"{name}.json", json.dumps(table, ensure_ascii=False))
        tables = json.loads(self._run(run_id).data.tags.get("mlflow.loggedArtifacts", "[]"))
        entry = {"path": f"{name}.json", "type": "table"}
        if entry not in tables:
            text = json.dumps([*tables, entry])
            self._log_batch(run_id, tags=[RunTag("mlflow.loggedArtifacts", text)])

    def log_text(self, run_id: str, path: str, text: str) -> None:
        """Write a text artifact in place of one at that path."""
        self._ask(lambda: self.client.log_text(run_id, text, path))

    def log_file(self, run_id: str, path: str, content: bytes) -> None:
        """Write a file as an artifact in place of one at that path."""
        folder, _, name = path.rpartition("/")
        with tempfile.TemporaryDirectory() as made:
            (Path(made) / name).write_bytes(content)
            self._ask(lambda: self.client.log_artifact(run_id, str(Path(made) / name), folder or None))

    def log_traces(self, run_id: str, shown: Sequence[Traced]) -> None:
        """Show trajectories as traces of the run. One that is there already is not doubled."""
        if not shown:
            return
        client = self._ask(lambda: TracingClient(self.uri))
        infos = [traces.info(each, run_id, self.experiment) for each in shown]
        spans = [span for each in shown for span in traces.spans(each, run_id)]
        for each in infos:
            self._ask(lambda each=each: client.start_trace(each))
        self._ask(lambda: client.log_spans(self.experiment, spans))

    def register(self, run: str, run_id: str, best: Best | None) -> None:
        """Let the model registry have one version of the run, of its best checkpoint, or none.

        An HTTP server takes no folder of ours as source: there a small file that names the checkpoint stands for it.
        """
        if self.uri.startswith("sqlite:"):
            name, source = f"agent-r1.{run}", "" if best is None else best.folder.as_uri()
        else:
            home = hashlib.sha256(str(self.home).encode()).hexdigest()[:6]  # other homes have runs of that name, too
            name, source = f"agent-r1.{run}.{home}", "" if best is None else self._described(run_id, best)
        self._ask(lambda: registry.register(self.client, name, run_id, best, source))

    def _described(self, run_id: str, best: Best) -> str:
        """Where the file is that names the checkpoint; the weights stay where they are."""
        place = f"best/{best.folder.parent.name}"
        about = {"folder": str(best.folder), "weights": best.weights, **best.tags}
        self.log_text(run_id, f"{place}/checkpoint.json", json.dumps(about, indent=1, ensure_ascii=False))
        return f"{self._run(run_id).info.artifact_uri}/{place}"

    def set_status(self, run_id: str, status: Status) -> None:
        """Say how the run stands; one that is RUNNING has no end."""
        if status == "RUNNING":
            self._ask(lambda: self.client.update_run(run_id, status))
        else:
            self._ask(lambda: self.client.set_terminated(run_id, status))

    def _run(self, run_id: str) -> Run:
        return self._ask(lambda: self.client.get_run(run_id))

    def _living(self, run_id: str | None) -> Run | None:
        if run_id is None:
            return None
        try:
            run = self._run(run_id)
        except TrackingError as error:
            cause = error.__cause__
            if isinstance(cause, MlflowException) and cause.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        ours = run.info.lifecycle_stage == "active" and run.info.experiment_id == self.experiment
        return run if ours else None

    def _tagged(self, tags: Mapping[str, str]) -> Run | None:
        query = " AND ".join(f'tags.`{key}` = "{value}"' for key, value in tags.items())
        found = self._ask(lambda: self.client.search_runs([self.experiment], query, max_results=1))
        return found[0] if found else None

    def _experiment(self) -> str:
        """The experiment's id. One whose artifacts lie elsewhere, because the home was moved, is left to be read."""
        artifacts = self.home / "mlartifacts"
        experiment = self._ask(lambda: self.client.get_experiment_by_name(self.name))
        if experiment is not None and self.own:
            before, old_id = _path(experiment.artifact_location), experiment.experiment_id
            if before != artifacts:
                moved = f"{self.name} {old_id} (moved from {before.parent})"
                if experiment.lifecycle_stage != "active":
                    self._ask(lambda: self.client.restore_experiment(old_id))
                self._ask(lambda: self.client.rename_experiment(old_id, moved))
                experiment = None
        if experiment is None:
            remote = self.uri.startswith(("http", "databricks"))
            folder = None if remote else artifacts.as_uri()
            return self._ask(lambda: self.client.create_experiment(self.name, artifact_location=folder, tags=KIND))
        if experiment.lifecycle_stage != "active":
            self._ask(lambda: self.client.restore_experiment(experiment.experiment_id))
        return experiment.experiment_id

    def _history(self, run_id: str, key: str) -> dict[int, float]:
        points = self._ask(lambda: self.client.get_metric_history(run_id, key))
        return {point.step: point.value for point in sorted(points, key=lambda point: point.timestamp)}

    def _log_batch(
        self,
        run_id: str,
        metrics: Sequence[Metric] = (),
        params: Sequence[Param] = (),
        tags: Sequence[RunTag] = (),
    ) -> None:
        self._ask(lambda: self.client.log_batch(run_id, metrics, params, tags, synchronous=True))

    def _ask(self, call: Callable[[], T]) -> T:
        """The call's answer; it is made again while MLflow's SQLite file is locked by another process."""
        deadline = time.monotonic() + LOCK_WAIT
        while True:
            try:
                return call()
            except Exception as error:  # a boundary: errors of SQLAlchemy, alembic and requests come through MLflow
                if "database is locked" not in str(error) or time.monotonic() > deadline:
                    said = f"MLflow at {self.uri}: {' '.join(str(error).split())}"
                    if self.own and DAMAGE.search(said):
                        said += ". It is only a view: delete mlflow.db and mlartifacts, then all is shown anew"
                    raise TrackingError(without_login(said)) from error
            time.sleep(0.2)


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _plain(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:LONGEST_PARAM]


def _same(stored: float | None, value: float) -> bool:
    return stored is not None and (stored == value or (math.isnan(stored) and math.isnan(value)))


def _cell(value: Json) -> Json:
    return None if isinstance(value, float) and not math.isfinite(value) else value
