"""A small house that lives through simulated days at the level of its stores: real records, real
ledger, real files of sessions, models and training sets; only the arithmetic is left out.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from ml_assets.assets.released_model.promote import Released, release
from ml_assets.automation.housekeeping.collect import CollectionResult, Housekeeping
from ml_assets.graph.publish import Draft, Work
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.records.ledger import chain as ledger
from ml_assets.records.ledger.stages import champion
from ml_assets.settings import Retention, Settings, read_settings
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.records import (
    Decision,
    EvaluationReport,
    Evidence,
    GateResult,
    InputVersion,
    Interval,
    Measured,
)
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program import (
    SCHEMA_FILE,
    SHARD_FILE,
    ModelManifest,
    Preprocessing,
    Ref,
    Shard,
    ShardSchema,
    TrainOutput,
    TrainRequest,
    TrainResult,
    World,
)
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address
from ml_assets.store.objects import LocalObjects, describe
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.worlds.opened import pipeline_of

PIPELINE = "irises"
URI = f"s3://{BUCKET}/state"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MODEL = Mlp(family="mlp", width=4, depth=1)
NO_PREPROCESSING = Preprocessing(numeric=(), null_flags=(), categorical=())


@dataclass(frozen=True)
class Trained:
    """One training of the house."""

    model: str
    session: str
    data: str


@dataclass
class House:
    """A state folder whose clock the test turns."""

    root: Path
    retention: Retention = field(default_factory=Retention)
    now: datetime = BEGIN
    made: int = 0
    trained: Trained | None = None
    decided: list[Evidence] = field(default_factory=list)
    made_by: dict[str, str] = field(default_factory=dict)
    """Model that was decided on -> its session."""
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        self.store = EmbeddedStore(self.root / "snapshots", lambda: self.now)
        self.objects = LocalObjects(self.root / "objects")

    @property
    def settings(self) -> Settings:
        found = read_settings({"ML_ASSETS_HOME": str(self.root)})
        return Settings(**{**vars(found), "retention": self.retention})

    def housekeeping(self) -> Housekeeping:
        return Housekeeping(self.settings, self.instance, clock=lambda: self.now)

    def collect(self) -> CollectionResult:
        return self.housekeeping().collect()

    def pass_days(self, days: float) -> None:
        self.now += days * DAY

    # --- what happens in a house ----------------------------------------------------------------

    def land(self, day: str) -> None:
        """A partition of data arrives and goes up to its features."""
        for stage, source in (("raw_snapshot", "flowers"), ("validated_table", "flowers")):
            self._publish(Address(PIPELINE, stage, source, day), self._bytes(4000))
        self._publish(Address(PIPELINE, "feature_set", None, day), self._bytes(4000))

    def reject(self, day: str) -> str:
        """Rows of a partition go to quarantine; the path on ``main``."""
        path = f"quarantine/{PIPELINE}/validated_table/flowers/{day}.parquet"
        with self.store.open(self.store.resolve(), f"reject-{self.made}") as workspace:
            workspace.put_bytes(path, self._bytes(3000))
            workspace.commit("rejected", {})
            workspace.publish()
        return path

    def lay_out(self, *shards: str) -> str:
        """A training set over shards of these names; its digest."""
        self.made += 1
        for name in shards:
            folder = self.objects.folder("shards", PIPELINE, digest_of(name))
            (folder / SHARD_FILE).write_text(name)
            self._stamp(folder)
        parts = tuple(Shard(rows=1, digest=digest_of(n), table=digest_of(n)) for n in shards)
        schema = ShardSchema(
            task="multiclass",
            classes=("a", "b"),
            preprocessing=NO_PREPROCESSING,
            label_rate=(0.5, float(self.made)),
            splits={"train": parts},
        )
        digest = digest_of(schema)
        folder = self.objects.folder("shards", PIPELINE, digest)
        (folder / "rows.bin").write_bytes(self._bytes(20_000))
        (folder / SCHEMA_FILE).write_bytes(canonical_json(schema))
        self._stamp(folder)
        return digest

    def begin_session(self, data: str) -> SessionFolder:
        """An attempt is begun and has saved a checkpoint."""
        session = SessionFolder(
            self.objects.path("sessions", f"{PIPELINE}-train-{digest_of(self.made)[:20]}")
        )
        with session.held(lambda: None):
            session.write_session_file(PIPELINE, "train")
            session.begin(self._request(session, data))
            session.events(1).write_bytes(b"")
            checkpoint = Path(session.checkpoints) / "step-000010.a1"
            checkpoint.mkdir(parents=True)
            (checkpoint / "state.distcp").write_bytes(self._bytes(30_000))
        self._stamp(session.root)
        return session

    def train(self) -> Trained:
        """A whole training, published."""
        data = self.lay_out()
        session = self.begin_session(data)
        model = self._finish(session)
        self._publish(
            Address(PIPELINE, "training_set"),
            (self.objects.path("shards", PIPELINE, data) / SCHEMA_FILE).read_bytes(),
            version=data,
            attributes={"uri": "somewhere", "digest": data},
            name=SCHEMA_FILE,
        )
        trained = Trained(model.digest, session.session, data)
        attributes = {
            "session": trained.session,
            "model": model.model_dump(),
            "data": {"uri": "somewhere", "digest": data},
        }
        version = InputVersion(
            key=f"{PIPELINE}/training_set",
            partition=None,
            version=data,
            commit=self.store.resolve(),
        )
        for stage in ("checkpoints", "trained_model"):
            address = Address(PIPELINE, stage)
            self._publish(address, b"", model.digest, attributes, (version,))
        self.trained = trained
        return trained

    def decide(self, *, passes: bool) -> Evidence | None:
        """The newest model is judged; a passing one is released."""
        trained = self.trained
        if trained is None or any(e.model == trained.model for e in self.decided):
            return None
        lines = ledger.read(self.store, PIPELINE)
        report = report_on(trained, self.made)
        address = Address(PIPELINE, "evaluation_report")
        inputs = tuple(
            InputVersion(key=f"{PIPELINE}/{stage}", partition=None, version=v, commit=None)
            for stage, v in (("trained_model", trained.model), ("training_set", trained.data))
        )
        measured = Measured(latency_ms=1.0, rows_per_second=1.0).model_dump()
        metrics = {"accuracy": report.metrics["accuracy"].value}
        attributes = {"measured": measured, "metrics": metrics}
        self._publish(address, canonical_json(report), digest_of(report), attributes, inputs)
        page = self.objects.write_bytes(
            self._bytes(5000), "reports", PIPELINE, f"{trained.model[:16]}.html"
        )
        self._stamp(page)
        evidence = Evidence(
            model=trained.model,
            report=digest_of(report),
            data=trained.data,
            code="code",
            policy=digest_of("policy"),
            champion=champion(lines),
        )
        ledger.record_decision(self.store, decision_on(evidence, passes, self.now), "team")
        self.decided.append(evidence)
        self.made_by[evidence.model] = trained.session
        if passes:
            policy = ReleaseSpec(to="production")
            moved = release(self.store, PIPELINE, evidence, policy, "team", "run")
            assert isinstance(moved, Released), moved
            self._publish(
                Address(PIPELINE, "released_model"),
                b"",
                trained.model,
                {"session": trained.session, "model": {"uri": "x", "digest": trained.model}},
            )
        return evidence

    # --- inside -----------------------------------------------------------------------------------

    def _request(self, session: SessionFolder, data: str) -> TrainRequest:
        return TrainRequest(
            session=session.session,
            attempt=1,
            model=MODEL,
            training=TrainingSpec(),
            data=Ref(uri="somewhere", digest=data),
            resume=None,
            output=TrainOutput(checkpoints="x", model="x", events="x", result="x"),
            world=World(),
        )

    def _finish(self, session: SessionFolder) -> Ref:
        session.model.mkdir()
        (session.model / "weights.safetensors").write_bytes(self._bytes(8000))
        manifest = ModelManifest(
            model=MODEL,
            task="multiclass",
            classes=("a", "b"),
            preprocessing=NO_PREPROCESSING,
            weights=describe(session.model, ["weights.safetensors"])[0],
            step=10,
        )
        (session.model / "model.json").write_bytes(canonical_json(manifest))
        produced = Ref(uri=str(session.model), digest=digest_of(manifest))
        result = TrainResult(
            session=session.session,
            attempt=1,
            step=10,
            best_step=10,
            stopped="epochs",
            model=produced,
            metrics={},
            seconds=1.0,
        )
        session.result(1).write_bytes(canonical_json(result))
        adopted = self.objects.adopt(produced, "models", "model.json")
        self._stamp(session.root)
        self._stamp(Path(adopted.uri))
        return adopted

    def _publish(
        self,
        address: Address,
        content: bytes,
        version: str | None = None,
        attributes: dict[str, Any] | None = None,
        inputs: tuple[InputVersion, ...] = (),
        name: str = "report.json",
    ) -> None:
        self.made += 1
        work = Work(address, f"code-{self.made}", inputs, f"run-{self.made}")
        with Draft(
            pipeline_of(settings=self.settings, store=self.store), work, self.store.resolve()
        ) as draft:
            if content:
                draft.text(name, content)
            digest = hashlib.sha256(content).hexdigest()
            draft.publish(attributes=attributes or {}, data_version=version or digest)

    def _bytes(self, size: int) -> bytes:
        """Content that is there once: nothing is kept because something else is equal to it."""
        self.made += 1
        return hashlib.shake_256(str(self.made).encode()).digest(size)

    def _stamp(self, path: Path) -> None:
        """Files are as old as the house's clock says."""
        for file in (*path.rglob("*"), path):
            os.utime(file, (self.now.timestamp(), self.now.timestamp()))


@dataclass
class HouseOnS3(House):
    """Its objects lie in a bucket, as they came out of a local house; all times are those of now.

    The times of what lies on S3 are the server's.
    """

    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    checkpoints: str = f"{URI}/sessions/{{session}}/checkpoints"

    @property
    def settings(self) -> Settings:
        return replace(super().settings, objects=URI, checkpoints=self.checkpoints)

    def upload(self, bucket: S3Server) -> None:
        for file in self.objects.root.rglob("*"):
            if file.is_file() and file.name != "lock":
                key = f"state/{file.relative_to(self.objects.root).as_posix()}"
                bucket.client.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())
        shutil.rmtree(self.objects.root)


def there(bucket: S3Server, kind: str) -> set[str]:
    """The names of what of a kind lies in the bucket."""
    place = 3 if kind == "shards" else 2
    keys = [key.split("/") for key in bucket.everything()]
    return {key[place] for key in keys if key[1] == kind}


@contextmanager
def working_on(session: SessionFolder) -> Iterator[None]:
    """Hold a session's lock as a run does."""
    with (session.root / "lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def report_on(trained: Trained, number: int) -> EvaluationReport:
    value = 0.9 + number / 1e6
    interval = Interval(value=value, low=0.8, high=1.0)
    return EvaluationReport(
        pipeline=PIPELINE,
        model=trained.model,
        data=trained.data,
        rows=100,
        holdout=("", ""),
        label_rate=(0.5, 0.5),
        metrics={"accuracy": interval, "log_loss": interval},
        baselines={},
        champion=None,
        slices=(),
        calibration=(),
        roc=None,
        precision_recall=None,
        size_bytes=8000,
    )


def decision_on(evidence: Evidence, passes: bool, now: datetime) -> Decision:
    gate = GateResult(name="floor", passed=passes, value=0.9, bound=0.8, reason="as measured")
    return Decision(
        pipeline=PIPELINE,
        evidence=evidence,
        gates=(gate,),
        passed=passes,
        reason="the only gate passed" if passes else "floor failed",
        run=f"run-of-{evidence.model[:8]}",
        time=now,
    )
