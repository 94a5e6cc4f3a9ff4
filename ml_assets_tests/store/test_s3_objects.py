"""The object store on S3: two homes with empty disks that share a bucket have the same objects."""

import os
import shutil
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from ml_assets.assets.training_set.shards import load_schema
from ml_assets.errors import StorageError, StoreAway
from ml_assets.settings import read_cluster
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.training_program import Ref
from ml_assets.store.objects import file_digest
from ml_assets.store.open import open_objects
from ml_assets.store.s3 import client as s3
from ml_assets.store.s3 import objects as s3_objects
from ml_assets.store.s3.client import S3Place
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.launch.real import write_set
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.worlds.shards import shard_of

URI = f"s3://{BUCKET}/state"


def home(folder: Path) -> S3Objects:
    found = open_objects(URI, folder)
    assert isinstance(found, S3Objects)
    return found


@pytest.fixture
def first(bucket: S3Server, tmp_path: Path) -> S3Objects:
    return home(tmp_path / "first")


@pytest.fixture
def second(bucket: S3Server, tmp_path: Path) -> S3Objects:
    return home(tmp_path / "second")


@pytest.fixture
def data(first: S3Objects) -> Ref:
    return write_set(first.folder("shards", "demo"))


def files(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in found}


def test_a_training_set_of_one_home_is_read_by_another(
    first: S3Objects, second: S3Objects, data: Ref
) -> None:
    first.publish(data)
    own = second.own(data, "shards", "demo")  # the record names the first one's folder
    assert Path(own.uri).is_relative_to(second.root)
    assert files(Path(own.uri).parent) == files(Path(data.uri).parent)
    shutil.rmtree(second.root)
    assert second.own(data, "shards", "demo") == own
    assert files(Path(own.uri).parent) == files(Path(data.uri).parent)


def cut(file: Path) -> None:
    os.truncate(file, 5)


def test_a_shard_that_a_cache_lost_or_of_which_it_lost_a_part_is_brought_again(
    first: S3Objects, second: S3Objects, data: Ref
) -> None:
    first.publish(data)
    own = second.own(data, "shards", "demo")
    shard, whole = shard_of(own, "train"), files(Path(data.uri).parent)
    parts = [shard / "numeric.npy", shard / "shard.json"]
    damages = [partial(damage, part) for part in parts for damage in (Path.unlink, cut)]
    for damage in (partial(shutil.rmtree, shard), *damages):
        damage()
        assert files(Path(own.uri).parent) != whole
        assert second.own(data, "shards", "demo") == own
        assert files(Path(own.uri).parent) == whole


def test_a_file_that_the_store_lost_or_cut_goes_up_again(
    first: S3Objects, data: Ref, tmp_path: Path
) -> None:
    first.publish(data)
    train = shard_of(data, "train")
    place = first.place.at("shards", "demo", train.name)
    for left in (b"", b"half"):
        place.discard("numeric.npy")
        if left:
            place.write("numeric.npy", left)
        before = first.place.moved.bytes
        first.publish(Ref(uri=str(train), digest=train.name))
        assert first.place.moved.bytes - before == (train / "numeric.npy").stat().st_size
        home(tmp_path / f"left {len(left)}").own(data, "shards", "demo")


def test_a_set_comes_without_its_shards_which_come_as_they_are_asked_for(
    first: S3Objects, second: S3Objects, data: Ref
) -> None:
    first.publish(data)
    own = second.own(data, "shards", "demo", whole=False)
    assert [*files(second.root)] == [f"shards/demo/{data.digest}/schema.json"]
    second.bring(own, [shard_of(own, "holdout").name])
    assert shard_of(own, "holdout").is_dir() and not shard_of(own, "train").exists()
    second.bring(own)
    assert files(Path(own.uri).parent) == files(Path(data.uri).parent)


def test_a_set_that_the_store_lost_is_not_put_there_again_without_its_shards(
    first: S3Objects, second: S3Objects, data: Ref, bucket: S3Server
) -> None:
    first.publish(data)
    own = second.own(data, "shards", "demo", whole=False)
    for key in bucket.everything():
        bucket.client.delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(StorageError, match="has no copy to put there"):
        second.publish(own)


def test_two_sets_share_a_shard_which_goes_up_once(first: S3Objects, data: Ref) -> None:
    first.publish(data)
    moved = first.place.moved.bytes
    schema = load_schema(data)
    later = schema.model_copy(update={"label_rate": (0.25,)})
    folder = first.folder("shards", "demo", digest_of(later))
    (folder / "schema.json").write_bytes(canonical_json(later))
    first.publish(Ref(uri=str(folder), digest=folder.name))
    assert first.place.moved.bytes - moved < 10_000


def test_the_manifest_comes_last_and_without_it_nothing_counts(
    first: S3Objects, second: S3Objects, data: Ref, bucket: S3Server
) -> None:
    holdout = shard_of(data, "holdout").name
    bucket.faults.at, bucket.faults.failing = f"{holdout}/label.npy", -1
    with pytest.raises(StoreAway):
        first.publish(data)
    assert not [key for key in bucket.everything() if key.endswith("schema.json")]
    assert not [key for key in bucket.everything() if key.endswith(f"{holdout}/shard.json")]
    with pytest.raises(StorageError, match="is lost"):
        second.own(data, "shards", "demo")
    bucket.faults.failing = 0
    first.publish(data)
    assert second.here("shards", "demo", data.digest).is_dir()


def test_a_flipped_byte_is_refused_and_leaves_nothing_behind(
    first: S3Objects, data: Ref, bucket: S3Server, tmp_path: Path
) -> None:
    first.publish(data)
    for file in ("numeric.npy", "shard.json", "schema.json"):
        other = home(tmp_path / file)
        name = data.digest if file == "schema.json" else shard_of(data, "train").name
        bucket.flip(f"state/shards/demo/{name}/{file}")
        with pytest.raises(StorageError, match="is damaged"):
            other.own(data, "shards", "demo")
        left = {Path(path).parts[2] for path in files(other.root)}
        assert not left & {name, data.digest}, "other shards may be here: they are whole"
        bucket.flip(f"state/shards/demo/{name}/{file}")  # as it was


def test_what_was_damaged_here_is_not_published(first: S3Objects, data: Ref) -> None:
    (shard_of(data, "train") / "label.npy").write_bytes(b"x")
    with pytest.raises(StorageError, match="is damaged"):
        first.publish(data)


def test_what_is_used_again_is_marked_so(
    first: S3Objects, data: Ref, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.publish(data)
    place = first.place.at("shards", "demo", data.digest)
    (before,) = place.items("schema.json")
    monkeypatch.setattr(s3_objects, "RENEWED", timedelta(0))
    first.publish(data)
    (after,) = place.items("schema.json")
    assert after.changed >= before.changed and after.size == before.size


def test_what_another_home_deletes_while_it_is_marked_is_gone(
    first: S3Objects, second: S3Objects, data: Ref, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.publish(data)
    name = f"shards/demo/{data.digest}/schema.json"
    monkeypatch.setattr(s3_objects, "RENEWED", timedelta(-1))
    read = S3Place.read

    def collected(place: S3Place, name: str) -> bytes | None:
        second.place.discard(name)
        return read(place, name)

    monkeypatch.setattr(S3Place, "read", collected)
    assert not first.renew(*name.split("/"))
    assert first.place.size(name) is None


def test_a_page_is_read_as_it_is_there_now(first: S3Objects, second: S3Objects) -> None:
    first.write_bytes(b"old", "reports", "demo", "a.html")
    assert second.read_bytes("reports", "demo", "a.html") == b"old"
    first.write_bytes(b"new", "reports", "demo", "a.html")
    first.write_bytes(b"other", "reports", "demo", "b.html")
    second.refresh("reports")
    assert second.path("reports", "demo", "a.html").read_bytes() == b"new"
    assert second.path("reports", "demo", "b.html").read_bytes() == b"other"


def test_a_file_that_is_deleted_is_gone_for_others_too(first: S3Objects, second: S3Objects) -> None:
    first.write_bytes(b"part", "predictions", "demo", "2026-01-01T00", "a.parquet")
    second.refresh("predictions/demo")
    second.delete("predictions", "demo", "2026-01-01T00", "a.parquet")
    second.delete("predictions", "demo", "2026-01-01T00", "a.parquet")
    assert not home(first.root.parent / "third").exists(
        "predictions", "demo", "2026-01-01T00", "a.parquet"
    )


def test_where_the_store_is_away_pages_that_are_here_are_shown(
    first: S3Objects, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "TRIES", 1)
    first.write_bytes(b"page", "reports", "demo", "a.html")
    bucket.faults.failing = -1
    home(first.root).refresh("reports")
    assert first.path("reports", "demo", "a.html").read_bytes() == b"page"


def test_what_lies_outside_of_the_cache_is_no_object(first: S3Objects, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is elsewhere"):
        first.publish(Ref(uri=str(tmp_path / "models" / "x"), digest="0" * 64))
    with pytest.raises(StorageError, match="not the name of an object"):
        first.here("reports", "../x")


@pytest.mark.parametrize(
    ("environment", "region"),
    [
        ({"AWS_REGION": "eu-central-1"}, "eu-central-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "eu-west-1"}, "eu-central-1"),
        ({}, "us-east-1"),
    ],
)
def test_the_store_is_asked_where_the_pods_are_told_that_it_is(
    environment: dict[str, str], region: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
        if name in environment:
            monkeypatch.setenv(name, environment[name])
    pods = {"ML_ASSETS_OBJECTS": URI, "ML_ASSETS_TRAINING_IMAGE": f"a/b@sha256:{'0' * 64}"}
    told = read_cluster(pods | environment).s3_region
    assert s3.client().meta.region_name == region == (told or region)
