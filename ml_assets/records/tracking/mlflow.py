"""MLflow: links and copies of records, so that people find runs and models there.

The only MlflowClient code. A dead server never raises here: it is an outcome, and the caller
catches up later, because every write can be repeated.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

from ml_assets.records.tracking.mlflow_server import Server
from ml_assets.records.tracking.registered_model import (
    MODEL_TAG,
    STAGE_TAG,
    STAGES,
    claim,
    mark_recalled,
    opened,
    tagged,
    told_by_another,
    versions_of,
)
from ml_assets.settings import Settings

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

SESSION_TAG = "ml_assets.session"
URI_TAG = "ml_assets.uri"

P = ParamSpec("P")
T = TypeVar("T")

_silent_until: dict[str, float] = {}
"""URI -> when (monotonic) metrics are tried again after it did not answer."""


@dataclass(frozen=True)
class Logged:
    """MLflow has it."""


@dataclass(frozen=True)
class Unavailable:
    """MLflow did not take it; say it again later."""

    reason: str
    """One line for an operator; it holds no credentials."""


@dataclass(frozen=True)
class AnotherHome(Unavailable):
    """The registered model shows the ledger of another home, and stays as it is."""


def attempted(
    do: Callable[Concatenate["Tracking", P], T],
) -> Callable[Concatenate["Tracking", P], T | Unavailable]:
    """Decorate what is done at the server: where that does not work it is ``Unavailable``."""

    @wraps(do)
    def tried(self: "Tracking", *args: P.args, **kwargs: P.kwargs) -> T | Unavailable:
        try:
            done = do(self, *args, **kwargs)
        except Exception as error:  # MLflow raises its own, SQLAlchemy's, requests' and more
            _silent_until[self.uri] = time.monotonic() + self.pause
            return Unavailable(self._server.said(error))
        _silent_until.pop(self.uri, None)
        return done

    return tried


@dataclass
class Tracking:
    """One tracking server or database.

    Args:
        uri: ``sqlite:///...``, another database URL, or ``http(s)://...``.
        home: the state folder; locks lie below it, and artifacts where ``uri`` is a database.
    """

    uri: str = field(repr=False)
    home: Path
    pause: float = 15.0
    """Seconds that metrics are held back after the server did not answer."""
    _known: dict[tuple[str, str], set[int]] = field(default_factory=dict, repr=False)
    """(run, metric) -> steps that MLflow has."""
    _writer: str = field(default_factory=lambda: uuid.uuid4().hex, repr=False)

    @classmethod
    def of(cls, settings: Settings) -> "Tracking":
        """The server or database that the settings name."""
        return cls(settings.tracking_uri, settings.home)

    @attempted
    def ensure_database(self) -> Logged:
        """Make the database where it is missing: whole, and by one process only."""
        self._server.client()
        return Logged()

    @attempted
    def open_run(
        self, experiment: str, session: str, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> str:
        """The run of a training session, made at the first call; its id.

        A run that failed is running again; one that finished stays finished.
        """
        client = self._server.client()
        with self._server.lock(f"run-{session}"):
            home = self._experiment(client, experiment)
            run = _run_of(client, home.experiment_id, session)
            if run is None:
                name = f"{experiment} {session[:12]}"
                first = {SESSION_TAG: session}
                run = client.create_run(home.experiment_id, tags=first, run_name=name)
            elif run.info.status in ("FAILED", "KILLED"):
                client.update_run(run.info.run_id, status="RUNNING")
            run_id = run.info.run_id
            _log_tags(client, run_id, tags)
            _log_params(
                client, run_id, {k: v for k, v in params.items() if k not in run.data.params}
            )
        return run_id

    def log_metrics(
        self,
        run_id: str,
        metrics: Mapping[int, Mapping[str, float]],
        times: Mapping[int, datetime] = MappingProxyType({}),
        *,
        now: bool = False,
    ) -> Logged | Unavailable:
        """Log step -> {name: value}; a step that MLflow has for a name is skipped.

        Args:
            times: step -> when it was told; now where it is not said. A point of the same time and
                value is one point to MLflow, also where a slow server gets it twice.
            now: try even where the server did not answer a moment ago (the last chance of a run).
        """
        if self.silent is not None and not now:
            return self.silent
        return self._log_metrics(run_id, metrics, times)

    @property
    def silent(self) -> Unavailable | None:
        """Return whether the server did not answer a moment ago."""
        wait = _silent_until.get(self.uri, 0.0) - time.monotonic()
        if wait <= 0:
            return None
        return Unavailable(f"the server did not answer; next try in {wait:.0f} s or later")

    @attempted
    def log_artifact(self, run_id: str, file: Path) -> Logged:
        """Copy a file to a run; a file of that name is replaced."""
        self._server.client().log_artifact(run_id, str(file))
        return Logged()

    @attempted
    def log_text(self, run_id: str, text: str, name: str) -> Logged:
        """Write a file of a run; a file of that name is replaced."""
        self._server.client().log_text(run_id, text, name)
        return Logged()

    @attempted
    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> Logged:
        """Set tags of a run; too long ones are cut."""
        _log_tags(self._server.client(), run_id, tags)
        return Logged()

    @attempted
    def link_model(
        self, pipeline: str, model: str, uri: str, session: str, run_id: str | None
    ) -> Logged:
        """Register a model as a version of its pipeline's registered model, one for each model.

        Args:
            model: its digest.
            uri: where the object store holds it.
            run_id: the run of its session; None: it is looked up by the session.
        """
        client = self._server.client()
        tags = {MODEL_TAG: model, SESSION_TAG: session, URI_TAG: uri}
        with self._server.lock(f"model-{pipeline}"):
            opened(client, pipeline)
            versions = versions_of(client, pipeline, model)
            for version in versions:
                for name, value in tags.items():
                    if version.tags.get(name) != value:
                        client.set_model_version_tag(pipeline, version.version, name, value)
            if not versions:
                run_id = run_id or self._run_id(client, pipeline, session)
                source = self._source(uri, run_id)
                client.create_model_version(pipeline, source, run_id, tags=tags)
        return Logged()

    @attempted
    def set_stage_aliases(
        self,
        pipeline: str,
        stages: Mapping[Any, str] | Callable[[], Mapping[Any, str]],
        ledger: str,
        recalled: Callable[[], Mapping[str, str]] = dict[str, str],
    ) -> Logged | Unavailable:
        """Make the aliases staging, canary, production what the ledger says; others are left.

        A recalled model has none. A version that loses its alias is tagged archived. The registered
        model belongs to the first ledger that speaks here: another one changes nothing
        (``AnotherHome``).

        Args:
            ledger: the digest of its first line.
            stages: stage -> model digest; or how to read it, which is then done under the lock, so
                that of two projections at once the last one is not the older one.
            recalled: how to read model digest -> its recall, as above.
        """
        client = self._server.client()
        missing: list[str] = []
        there: dict[str, str] = {}
        with self._server.lock(f"model-{pipeline}"):
            if other := claim(client, pipeline, ledger, self.home):
                return AnotherHome(other)
            wanted, bad = stages() if callable(stages) else stages, recalled()
            found = opened(client, pipeline).aliases
            for stage in STAGES:
                model = wanted.get(stage)
                model = None if model in bad else model
                versions = versions_of(client, pipeline, model) if model else []
                if model and not versions:
                    missing.append(f"{stage} (model {model[:12]})")
                if versions and str(found.get(stage)) != str(versions[0].version):
                    client.set_registered_model_alias(pipeline, stage, str(versions[0].version))
                if not versions and stage in found:
                    client.delete_registered_model_alias(pipeline, stage)
                if versions:
                    there[str(versions[0].version)] = stage
            left = {str(found[one]) for one in STAGES if one in found} | tagged(client, pipeline)
            for version, stage in {**dict.fromkeys(left, "archived"), **there}.items():
                client.set_model_version_tag(pipeline, version, STAGE_TAG, stage)
            mark_recalled(client, pipeline, bad)
        if missing:
            return Unavailable(
                f"{pipeline} has no version in MLflow for {', '.join(missing)}: link the model"
            )
        return Logged()

    @attempted
    def shown_stages(self, pipeline: str, ledger: str) -> Mapping[str, str] | Unavailable:
        """Stage -> digest of the model that its alias leads to now; nothing is made by asking."""
        if not self._server.is_made:
            return Unavailable("there is no database yet")
        client = self._server.client()
        found = client.search_registered_models(f"name = '{pipeline}'", max_results=1)
        if others := [said for one in found if (said := told_by_another(one, ledger))]:
            return AnotherHome(others[0])
        return {
            stage: client.get_model_version(pipeline, str(version)).tags.get(
                MODEL_TAG, f"of version {version}"
            )
            for model in found
            for stage, version in model.aliases.items()
            if stage in STAGES
        }

    @attempted
    def close(self, run_id: str, status: str) -> Logged:
        """End a run as FINISHED, FAILED or KILLED; one that finished stays finished."""
        client = self._server.client()
        if client.get_run(run_id).info.status not in (status, "FINISHED"):
            client.set_terminated(run_id, status)
        return Logged()

    @property
    def _server(self) -> Server:
        return Server(self.uri, self.home)

    @attempted
    def _log_metrics(
        self,
        run_id: str,
        metrics: Mapping[int, Mapping[str, float]],
        times: Mapping[int, datetime],
    ) -> Logged:
        from mlflow.entities import Metric

        client = self._server.client()
        now = datetime.now(UTC)
        with self._server.lock(f"metrics-{run_id}") as last:
            if last.is_not(self._writer):
                self._known.clear()
            new: list[Metric] = []
            for step in sorted(metrics):
                stamp = int(times.get(step, now).timestamp() * 1000)
                for name, value in sorted(metrics[step].items()):
                    if step not in self._steps(client, run_id, name):
                        new.append(Metric(name, value, stamp, step))
            try:
                for batch in _batches(new, 1000):
                    client.log_batch(run_id, metrics=batch)
            except BaseException:
                self._known.clear()  # whether it arrived is not known
                raise
            for metric in new:
                self._known[run_id, metric.key].add(metric.step)
            last.becomes(self._writer)
        return Logged()

    def _steps(self, client: "MlflowClient", run_id: str, name: str) -> set[int]:
        if (run_id, name) not in self._known:
            history = client.get_metric_history(run_id, name)
            self._known[run_id, name] = {metric.step for metric in history}
        return self._known[run_id, name]

    def _experiment(self, client: "MlflowClient", name: str) -> "Experiment":
        with self._server.lock("experiments"):
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                folder = self._server.artifacts / name
                where = folder.as_uri() if self._server.is_database else None
                return client.get_experiment(client.create_experiment(name, where))
            if experiment.lifecycle_stage == "deleted":
                client.restore_experiment(experiment.experiment_id)
            return experiment

    def _run_id(self, client: "MlflowClient", experiment: str, session: str) -> str | None:
        found = client.get_experiment_by_name(experiment)
        run = _run_of(client, found.experiment_id, session) if found else None
        return run.info.run_id if run else None

    def _source(self, uri: str, run_id: str | None) -> str:
        """What a server accepts: it refuses a path of this machine as the source of a version."""
        local = urlsplit(uri).scheme in ("", "file")
        if self._server.is_database or not local:
            return uri
        return f"runs:/{run_id}/model" if run_id else f"ml-assets:/{Path(uri).name}"


def _run_of(client: "MlflowClient", experiment_id: str, session: str) -> "Run | None":
    wanted = f"tags.`{SESSION_TAG}` = '{session}'"
    oldest = ["attributes.start_time ASC"]
    found = client.search_runs([experiment_id], wanted, max_results=1, order_by=oldest)
    return found[0] if found else None


def _log_tags(client: "MlflowClient", run_id: str, tags: Mapping[str, str]) -> None:
    from mlflow.entities import RunTag

    for batch in _batches([RunTag(k, _cut(v, 5000)) for k, v in sorted(tags.items())], 100):
        client.log_batch(run_id, tags=batch)


def _log_params(client: "MlflowClient", run_id: str, params: Mapping[str, str]) -> None:
    from mlflow.entities import Param

    for batch in _batches([Param(k, _cut(v, 500)) for k, v in sorted(params.items())], 100):
        client.log_batch(run_id, params=batch)


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """MLflow's limits for one call: 1000 metrics, 100 parameters, 100 tags."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
