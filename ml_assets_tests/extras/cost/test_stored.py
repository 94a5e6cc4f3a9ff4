"""What lies in the stores: on S3 every byte of the bucket is somebody's, whatever a cache has."""

from collections import Counter
from pathlib import Path

import pytest

from ml_assets.extras.cost.account import stored
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.s3 import client as s3
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.actions.house import PIPELINE, URI, HouseOnS3
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.opened import pipeline_of


@pytest.fixture
def house(tmp_path: Path, bucket: S3Server) -> HouseOnS3:
    """A released model, and a training that goes on, in a bucket."""
    house = HouseOnS3(tmp_path)
    house.train()
    house.decide(passes=True)
    house.begin_session(house.lay_out())
    house.upload(bucket)
    return house


def place(house: HouseOnS3) -> Pipeline:
    folder = house.root / "pipeline" / PIPELINE
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "defs.yaml").write_text(irises.SPEC)
    objects = S3Objects(house.settings.cache, URI)
    return pipeline_of(folder, settings=house.settings, store=house.store, objects=objects)


def in_the_bucket(bucket: S3Server) -> dict[str, int]:
    """Bytes by the kind that a key begins with, checkpoints among their sessions."""
    found = Counter[str]()
    for key in bucket.everything():
        found[key.split("/")[1]] += bucket.client.head_object(Bucket=BUCKET, Key=key)[
            "ContentLength"
        ]
    return dict(found)


def test_every_byte_of_the_bucket_is_counted_once(house: HouseOnS3, bucket: S3Server) -> None:
    there = in_the_bucket(bucket)
    found = stored(place(house), house.settings.checkpoints)
    kinds = dict(found.by_pipeline[PIPELINE])
    assert kinds.pop("checkpoints") > 0
    kinds = {kind: size for kind, size in kinds.items() if kind in there}
    own = found.by_pipeline[PIPELINE]
    assert kinds["sessions"] + own["checkpoints"] == there["sessions"]
    assert {k: v for k, v in kinds.items() if k != "sessions"} == {
        k: v for k, v in there.items() if k != "sessions"
    }
    assert sum(found.by_job.values()) == there["sessions"] + there["models"]
    assert found.left_out == ""


def test_what_this_machine_has_fetched_is_not_counted_again(house: HouseOnS3) -> None:
    where = place(house)
    before = stored(where, house.settings.checkpoints)
    assert house.trained is not None
    where.objects.here("models", house.trained.model)
    assert stored(where, house.settings.checkpoints).by_pipeline == before.by_pipeline


def test_a_store_that_is_away_is_told_and_nothing_is_made_up(
    house: HouseOnS3, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "TRIES", 1)
    bucket.faults.failing = -1
    found = stored(place(house), house.settings.checkpoints)
    assert found.left_out.startswith("objects: ")
    assert found.by_job == {}
    assert "tables" in found.by_pipeline[PIPELINE]
