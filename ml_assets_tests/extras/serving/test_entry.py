"""What a server's log makes due."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.extras.serving.entry import labels_tick
from ml_assets.graph.code_version import code_version_of
from ml_assets.settings import read_settings
from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.opened import pipeline_of

ROLLOUT = "  release: {to: production, canary: {periods: 1}, rollout: {entity: [order]}}\n"
BEGAN = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=3)
DAYS = [f"{date(2023, 1, 1) + timedelta(days=n)}" for n in range(110)]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """One that is rolled out; nothing of it is made."""
    deliveries.plant(tmp_path, tmp_path)
    spec = tmp_path / "deliveries" / "defs.yaml"
    spec.write_text(spec.read_text() + ROLLOUT)
    settings = read_settings({"ML_ASSETS_HOME": str(tmp_path / "home")})
    return pipeline_of(tmp_path / "deliveries", settings=settings)


def test_features_that_are_published_anew_are_due_however_old_their_period(
    pipeline: Pipeline,
) -> None:
    before, after = BEGAN - timedelta(days=1), BEGAN + timedelta(days=1)
    code = code_version_of(pipeline, "online_evaluation")
    features = [record("feature_set", day, after if day == DAYS[0] else before) for day in DAYS]
    records = [record("predictions", f"{BEGAN:%Y-%m-%dT%H}", BEGAN), *features]
    records.append(record("online_evaluation", DAYS[0], BEGAN, code))
    publish(pipeline, *records)
    assert asked(pipeline) == (DAYS[0], DAYS[0])


def test_a_look_reads_what_is_new_since_the_last_one_and_no_hour_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year has 8,760 of them, and each evaluation names them all."""
    code = code_version_of(pipeline, "online_evaluation")
    hours = [hour(number) for number in range(20)]
    features = [record("feature_set", day, BEGAN + timedelta(hours=10)) for day in DAYS[:3]]
    seen = [version_of(one) for one in hours]
    publish(
        pipeline,
        *hours,
        *features,
        *(
            record("online_evaluation", one.partition, one.time, code, (version_of(one), *seen))
            for one in features
        ),
    )
    assert asked(pipeline) is None
    read = list[str]()
    whole = EmbeddedStore.read_bytes

    def counted(store: EmbeddedStore, commit: str, path: str) -> bytes:
        read.append(path)
        return whole(store, commit, path)

    monkeypatch.setattr(EmbeddedStore, "read_bytes", counted)
    publish(pipeline, hour(20))
    assert asked(pipeline) is None, "an hour after the features changes no evaluation"
    assert read == [address_of(hour(20)).record]
    publish(pipeline, hour(3, version="1" * 64))
    assert asked(pipeline) == (DAYS[0], DAYS[2]), "one before them does, published late"
    assert len(read) == 2 + len(features)
    assert asked(pipeline) == (DAYS[0], DAYS[2]), "until it is looked at"
    assert len(read) == 2 + len(features)


def hour(number: int, version: str = "0" * 64) -> StageRecord:
    """Answers of an hour since traffic began."""
    begin = BEGAN + timedelta(hours=number)
    return record("predictions", f"{begin:%Y-%m-%dT%H}", begin, version=version)


def version_of(made: StageRecord) -> InputVersion:
    return InputVersion(
        key=made.key, partition=made.partition, version=made.data_version, commit=None
    )


def address_of(made: StageRecord) -> Address:
    return Address.of(made.key, made.partition)


def publish(pipeline: Pipeline, *records: StageRecord) -> None:
    base = pipeline.store.resolve("main")
    with pipeline.store.open(base, f"on {base}") as workspace:
        for one in records:
            workspace.put_bytes(address_of(one).record, canonical_json(one))
        workspace.commit("as time has left it", {})
        workspace.publish()


def asked(pipeline: Pipeline) -> tuple[str, str] | None:
    """The periods that a look finds due, the first and the last."""
    with dg.DagsterInstance.ephemeral() as instance:
        requests = labels_tick(pipeline, instance).run_requests
    if not requests:
        return None
    (request,) = requests
    first, last = (request.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end"))
    return first, last


def record(
    stage: str,
    partition: str | None,
    time: datetime,
    code: str = "0" * 64,
    inputs: tuple[InputVersion, ...] = (),
    version: str = "0" * 64,
) -> StageRecord:
    return StageRecord(
        key=f"deliveries/{stage}",
        partition=partition,
        run_key="0" * 64,
        code_version=code,
        data_version=version,
        rows=1,
        inputs=inputs,
        attributes={},
        run="r",
        time=time,
    )
