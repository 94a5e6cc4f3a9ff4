"""What docs/cluster.md lets the keys of training pods do in the bucket: enough, and no more.

That it is enough for trainings, scores and drills is held where those are tested: their pods
have keys that the S3 server refuses everything else (``store/s3_rights.py``).
"""

import pytest

from ml_assets.errors import StoreRefuses
from ml_assets.store.s3.client import S3Place
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.store.s3_rights import PODS, Rights, rights_of_pods

STORE = f"s3://{BUCKET}/state"


@pytest.fixture
def rights(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> Rights:
    """What the keys may do that the environment holds: those of the pods."""
    S3Place(STORE).write("shards/one/data.npy", b"rows")
    rights = bucket.rights[PODS] = rights_of_pods(f"{BUCKET}/state")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", PODS)
    return rights


@pytest.mark.parametrize("folder", ["sessions/a/attempts/1", "scratch/drill-0a1b2c3d/sessions/a"])
def test_pods_read_write_list_and_delete_what_is_theirs(rights: Rights, folder: str) -> None:
    place = S3Place(f"{STORE}/{folder}")
    assert place.write_new("claim.json", b"{}")
    assert place.read("claim.json") == b"{}"
    assert place.read("what-is-not-there") is None
    assert [item.name for item in place.items()] == ["claim.json"]
    place.discard_below()
    assert place.size("claim.json") is None


def test_pods_read_training_sets_and_change_none(rights: Rights) -> None:
    place = S3Place(f"{STORE}/shards/one")
    assert place.read("data.npy") == b"rows"
    with pytest.raises(StoreRefuses, match="access is denied"):
        place.write("data.npy", b"others")
    with pytest.raises(StoreRefuses, match="access is denied"):
        place.discard("data.npy")
    assert place.read("data.npy") == b"rows"


@pytest.mark.parametrize(
    "address", [f"{STORE}/reports", f"{STORE}/stores", f"s3://{BUCKET}/another"]
)
def test_pods_reach_nothing_else(rights: Rights, address: str) -> None:
    with pytest.raises(StoreRefuses, match="access is denied"):
        S3Place(address).read("one")
    with pytest.raises(StoreRefuses, match="access is denied"):
        S3Place(address).write("one", b"")


def test_another_prefix_is_not_listed(rights: Rights) -> None:
    with pytest.raises(StoreRefuses, match="access is denied"):
        list(S3Place(f"s3://{BUCKET}/another").items())


def test_what_the_page_does_not_grant_is_refused(rights: Rights) -> None:
    """The server does hold the keys to it: without ``scratch/`` there would be no drill."""
    for one in rights.statements:
        if isinstance(one["Resource"], list):
            one["Resource"] = [arn for arn in one["Resource"] if "/scratch/" not in arn]
    with pytest.raises(StoreRefuses, match="access is denied"):
        S3Place(f"{STORE}/scratch/drill-0a1b2c3d").write("request.json", b"{}")
