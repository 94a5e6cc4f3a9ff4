"""What is written once on S3 is decided once: by whoever came first, and by nobody's haste."""

import pytest

from ml_assets.errors import SettingsError, StoreAway
from ml_assets.store.s3 import client as s3
from ml_assets.store.s3.client import S3Place
from ml_assets_tests.servers.s3 import BUCKET, S3Server


@pytest.fixture
def place(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Place:
    monkeypatch.setattr(s3, "_CONFLICT_SECONDS", 0.001)
    return S3Place(f"s3://{BUCKET}/place")


def conflicts(bucket: S3Server, times: int) -> None:
    bucket.faults.status, bucket.faults.code = "409 Conflict", "ConditionalRequestConflict"
    bucket.faults.failing = times


def test_a_write_that_meets_another_one_under_way_is_tried_again(
    bucket: S3Server, place: S3Place
) -> None:
    conflicts(bucket, 2)
    assert place.write_new("once", b"mine")
    assert place.read("once") == b"mine" and place.moved.bytes == 2 * len(b"mine")


def test_if_the_other_write_was_our_own_whose_answer_was_lost_it_is_ours(
    bucket: S3Server, place: S3Place
) -> None:
    place.write("once", b"mine")
    conflicts(bucket, 1)
    assert place.write_new("once", b"mine")


def test_if_it_was_anothers_that_one_stays(bucket: S3Server, place: S3Place) -> None:
    place.write("once", b"another's")
    conflicts(bucket, 1)
    assert not place.write_new("once", b"mine")
    assert place.read("once") == b"another's"


def test_a_conflict_that_never_ends_is_a_store_that_is_away(
    bucket: S3Server, place: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "TRIES", 3)
    conflicts(bucket, -1)
    with pytest.raises(StoreAway, match="answered ConditionalRequestConflict again and again"):
        place.write_new("once", b"mine")
    assert [method for method, _ in bucket.faults.requests].count("PUT") == 1 + 3  # the bucket's


def test_what_was_there_and_is_gone_when_it_is_looked_at_is_written(
    bucket: S3Server, place: S3Place
) -> None:
    bucket.faults.status, bucket.faults.code = "412 Precondition Failed", "PreconditionFailed"
    bucket.faults.failing = 1
    assert place.write_new("once", b"mine")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AWS_ENDPOINT_URL", "localhost:9000", r"localhost:9000\. .*AWS_ENDPOINT_URL.*http://"),
        ("AWS_SECRET_ACCESS_KEY", "", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: set both"),
        ("AWS_PROFILE", "nobody", r"nobody.* Correct AWS_PROFILE\."),
        ("AWS_REGION", "eu west", "'eu west'.* Correct AWS_REGION"),
    ],
)
def test_a_setting_that_boto3_cannot_use_is_named(
    bucket: S3Server, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=said):
        S3Place(f"s3://{BUCKET}/place")
