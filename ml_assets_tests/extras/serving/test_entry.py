"""What a server's log makes due."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg

from ml_assets.extras.serving.entry import labels_tick
from ml_assets.graph.code_version import code_version_of
from ml_assets.settings import read_settings
from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.opened import pipeline_of

ROLLOUT = "  release: {to: production, canary: {periods: 1}, rollout: {entity: [order]}}\n"
BEGAN = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=3)
DAYS = [f"{date(2023, 1, 1) + timedelta(days=n)}" for n in range(110)]


def test_features_that_are_published_anew_are_due_however_old_their_period(tmp_path: Path) -> None:
    deliveries.plant(tmp_path, tmp_path)
    spec = tmp_path / "deliveries" / "defs.yaml"
    spec.write_text(spec.read_text() + ROLLOUT)
    settings = read_settings({"ML_ASSETS_HOME": str(tmp_path / "home")})
    pipeline = pipeline_of(tmp_path / "deliveries", settings=settings)
    before, after = BEGAN - timedelta(days=1), BEGAN + timedelta(days=1)
    code = code_version_of(pipeline, "online_evaluation")
    features = [record("feature_set", day, after if day == DAYS[0] else before) for day in DAYS]
    records = [record("predictions", f"{BEGAN:%Y-%m-%dT%H}", BEGAN), *features]
    records.append(record("online_evaluation", DAYS[0], BEGAN, code))
    with pipeline.store.open(pipeline.store.resolve("main"), "1" * 64) as workspace:
        for one in records:
            address = Address.of(one.key, one.partition)
            workspace.put_bytes(address.record, canonical_json(one))
        workspace.commit("as a year has left it", {})
        workspace.publish()

    with dg.DagsterInstance.ephemeral() as instance:
        (request,) = labels_tick(pipeline, instance).run_requests or ()
    ends = [request.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end")]
    assert ends == [DAYS[0], DAYS[0]]


def record(stage: str, partition: str, time: datetime, code: str = "0" * 64) -> StageRecord:
    return StageRecord(
        key=f"deliveries/{stage}",
        partition=partition,
        run_key="0" * 64,
        code_version=code,
        data_version="0" * 64,
        rows=1,
        inputs=(),
        attributes={},
        run="r",
        time=time,
    )
