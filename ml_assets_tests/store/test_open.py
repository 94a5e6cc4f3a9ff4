"""Two snapshot stores on one object store: neither deletes what it cannot see the need of."""

from pathlib import Path

import pytest

from ml_assets.adapters.resources import StoresResource
from ml_assets.store.open import ephemeral_place, identity_of, mark_of
from ml_assets_tests.actions.house import URI, HouseOnS3, there
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.worlds.opened import pipeline_of


def at_work(house: HouseOnS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first asset of a run does."""
    monkeypatch.setenv("ML_ASSETS_HOME", str(house.root))
    monkeypatch.setenv("ML_ASSETS_OBJECTS", URI)
    StoresResource().open(pipeline_of(), keeps_objects=True)


def test_what_only_another_homes_ledger_needs_is_not_deleted(
    tmp_path: Path, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = HouseOnS3(tmp_path / "one")
    other = HouseOnS3(tmp_path / "other")
    released = one.train()
    one.decide(passes=True)
    one.upload(bucket)
    at_work(one, monkeypatch)
    other.pass_days(100)  # nothing that it knows of reaches any of it
    [told] = [line for line in other.collect().left if line.startswith("objects: ")]
    assert there(bucket, "models") == {released.model}
    assert f"stores/{identity_of(one.settings.snapshots)}.json" in told
    assert "ML_ASSETS_SNAPSHOTS" in told
    one.pass_days(100)
    assert any("1 other snapshot store" in line for line in one.collect().left)
    bucket.client.delete_object(
        Bucket=BUCKET, Key=f"state/stores/{identity_of(one.settings.snapshots)}.json"
    )
    assert other.collect().freed_bytes > 0  # as the message says, where the first one is no more
    assert there(bucket, "models") == set()


def test_homes_of_one_snapshot_store_are_one_entry(
    tmp_path: Path, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = HouseOnS3(tmp_path)
    for _ in range(2):
        at_work(house, monkeypatch)
    house.collect()
    assert len(there_below(bucket, "stores")) == 1
    assert house.collect().left == ()


def test_another_spelling_of_a_servers_address_is_no_other_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKEFS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY", "b")
    found = set[str]()
    for written in ("http://host", "http://host/", "http://HOST:80"):
        monkeypatch.setenv("LAKEFS_ENDPOINT", written)
        found.add(identity_of("lakefs://data/main"))
    assert len(found) == 1
    monkeypatch.setenv("LAKEFS_ENDPOINT", "http://host:8080")
    assert identity_of("lakefs://data/main") not in found


def test_what_a_killed_command_left_in_a_store_of_its_own_goes_in_its_time(
    tmp_path: Path, bucket: S3Server
) -> None:
    house = HouseOnS3(tmp_path)
    place = ephemeral_place(URI, "predict")
    assert mark_of(place) and not mark_of(URI)
    key = f"{place.removeprefix(f's3://{BUCKET}/')}/shards/irises/{'0' * 64}/schema.json"
    bucket.client.put_object(Bucket=BUCKET, Key=key, Body=b"{}")
    house.collect()
    assert key in [one.removeprefix(f"{BUCKET}/") for one in there_below(bucket, "scratch")]
    house.pass_days(2)
    house.collect()
    assert there_below(bucket, "scratch") == []


def there_below(bucket: S3Server, top: str) -> list[str]:
    return [key for key in bucket.everything() if f"state/{top}/" in key]
