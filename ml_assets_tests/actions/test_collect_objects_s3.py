"""House-keeping of an object store on S3 that several homes share: the same retention."""

from datetime import timedelta
from pathlib import Path

import pytest

from ml_assets.spec.base import digest_of
from ml_assets.store.s3 import client as s3
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.actions.house import URI, HouseOnS3, there
from ml_assets_tests.servers.s3 import BUCKET, S3Server


def test_what_nothing_reaches_goes_in_its_time_whoever_put_it_there(
    tmp_path: Path, bucket: S3Server
) -> None:
    house = HouseOnS3(tmp_path)
    old = house.train()
    house.decide(passes=True)
    new = house.train()
    house.decide(passes=True)
    interrupted = house.begin_session(house.lay_out()).session
    house.upload(bucket)
    house.collect()
    assert there(bucket, "models") == {old.model, new.model}
    assert there(bucket, "sessions") == {old.session, new.session, interrupted}
    house.pass_days(100)
    outcome = house.collect()
    assert outcome.freed_bytes > 0
    assert new.model in there(bucket, "models") and new.data in there(bucket, "shards")
    assert interrupted not in there(bucket, "sessions")
    assert house.collect().freed_bytes == 0


def test_an_interrupted_session_keeps_its_checkpoints_and_its_data_with_all_its_shards(
    tmp_path: Path, bucket: S3Server
) -> None:
    house = HouseOnS3(tmp_path)
    house.lay_out("first week", "second week")
    data = house.lay_out("second week", "third week")
    interrupted = house.begin_session(data).session
    house.upload(bucket)
    house.pass_days(20)
    house.collect()
    assert there(bucket, "sessions") == {interrupted}
    assert there(bucket, "shards") == {data, digest_of("second week"), digest_of("third week")}
    assert any("/checkpoints/" in key for key in bucket.everything())


@pytest.mark.parametrize("where", ["a folder", "another place on S3"])
def test_checkpoints_in_a_place_of_their_own_go_in_their_time(
    tmp_path: Path, bucket: S3Server, where: str
) -> None:
    house = HouseOnS3(tmp_path)
    trained = house.train()
    house.decide(passes=True)
    house.train()
    house.decide(passes=True)
    house.upload(bucket)
    moved = {key: key for key in bucket.everything() if f"{trained.session}/checkpoints/" in key}
    assert moved
    place = f"s3://{BUCKET}/apart" if where == "another place on S3" else str(tmp_path / "apart")
    for key in moved:
        content = bucket.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        bucket.client.delete_object(Bucket=BUCKET, Key=key)
        name = f"{trained.session}/{key.partition('/checkpoints/')[2]}"
        if where == "a folder":
            file = tmp_path / "apart" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        else:
            bucket.client.put_object(Bucket=BUCKET, Key=f"apart/{name}", Body=content)

    def lying() -> bool:
        on_s3 = any(key.startswith(f"apart/{trained.session}/") for key in bucket.everything())
        return on_s3 or (tmp_path / "apart" / trained.session).is_dir()

    house.checkpoints = place
    house.collect()
    assert lying()
    house.pass_days(40)
    assert house.collect().freed_bytes > 0
    assert not lying()


def test_the_cache_of_what_is_there_goes_when_nobody_asks_for_it(
    tmp_path: Path, bucket: S3Server
) -> None:
    house = HouseOnS3(tmp_path)
    trained = house.train()
    house.decide(passes=True)
    house.upload(bucket)
    objects = S3Objects(house.settings.cache, URI)
    model = objects.here("models", trained.model)
    house.collect()
    assert model.is_dir()
    house.pass_days(2)
    house.collect()
    assert not model.exists() and trained.model in there(bucket, "models")
    assert objects.here("models", trained.model).is_dir()


def test_a_store_that_is_away_costs_nothing_and_is_told(
    tmp_path: Path, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "TRIES", 1)
    house = HouseOnS3(tmp_path)
    house.train()
    house.upload(bucket)
    house.now += timedelta(days=100)
    bucket.faults.failing = -1
    outcome = house.collect()
    assert any(left.startswith("objects: ") for left in outcome.left)
    bucket.faults.failing = 0
    assert there(bucket, "models")
