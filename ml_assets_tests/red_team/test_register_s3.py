"""A model handed over on S3 is held to what one in a folder is, and S3's faults are told."""

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ml_assets_tests.red_team.conftest import Scene
from ml_assets_tests.red_team.test_register import PATH, api, asked, describe, judge, made, mistakes
from ml_assets_tests.servers.s3 import BUCKET, S3Server


class Readable:
    """What the API's key may read."""

    def may(self, method: str, path: str, query: str) -> bool:
        return method == "PUT" or "secret" not in path


@pytest.fixture
def eve(released: Scene, bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Eve is an operator; models are handed over on S3, by a key that may not read all of it."""
    monkeypatch.setenv("ML_ASSETS_REGISTER_FROM", f"s3://{BUCKET}/handover")
    bucket.rights["key"] = Readable()
    yield from api(released)


def put(bucket: S3Server, folder: Path, prefix: str) -> str:
    for file in folder.iterdir():
        bucket.client.upload_file(str(file), BUCKET, f"{prefix}/{file.name}")
    return f"s3://{BUCKET}/{prefix}"


def test_a_model_on_s3_is_taken_once_and_judged(
    eve: TestClient, released: Scene, bucket: S3Server, tmp_path: Path
) -> None:
    before = released.in_production
    mine = made(released, tmp_path / "mine")
    uri = put(bucket, mine, "handover/2.1")
    bucket.faults.failing, bucket.faults.at = 2, "handover"  # it is tried again
    answer = eve.post(PATH, json=asked(f"{uri}/"))
    assert (answer.status_code, "Dagster does not answer" in answer.text) == (503, True)
    line = released.ledger[-1]
    assert (line.kind, line.author) == ("registration", "eve")
    assert line.registered and line.registered.uri == f"{uri}/"
    kept = released.objects.path("models", line.model)
    assert {one.name for one in kept.iterdir()} >= {"model.json", "w.safetensors"}
    for key in bucket.everything():  # what is there later is nobody's business
        bucket.client.delete_object(Bucket=BUCKET, Key=key)
    judge(released, line.model, "released_model")
    decision = released.ledger[-1].decision
    assert decision and decision.evidence.model == line.model
    assert "made_elsewhere" in {gate.name for gate in decision.gates if not gate.passed}
    assert released.in_production == before


def test_what_lies_on_s3_lies_about_nothing(
    eve: TestClient, released: Scene, bucket: S3Server, tmp_path: Path
) -> None:
    ledger = released.ledger
    mine = made(released, tmp_path / "mine")
    for uri in ("s3://other/handover/x", f"s3://{BUCKET}/handover-not/x", f"s3://{BUCKET}/x"):
        assert "is not below" in mistakes(eve, uri)
    assert "is not below" in mistakes(eve, f"s3://{BUCKET}/handover/../x")
    assert "has no 'model.json'" in mistakes(eve, f"s3://{BUCKET}/handover/none")
    uri = put(bucket, mine, "handover/damaged")
    bucket.flip("handover/damaged/w.safetensors")
    assert "is damaged" in mistakes(eve, uri)
    bucket.client.delete_object(Bucket=BUCKET, Key="handover/damaged/w.safetensors")
    assert "has no 'w.safetensors'" in mistakes(eve, uri)
    (mine / "w.pt").write_bytes(pickle.dumps(print))
    describe(released, mine, "w.pt")
    assert "Nothing is unpickled" in mistakes(eve, put(bucket, mine, "handover/pickle"))
    shutil.rmtree(mine)
    uri = put(bucket, made(released, mine), "handover/secret")
    answer = eve.post(PATH, json=asked(uri))
    assert (answer.status_code, "access is denied" in answer.text) == (503, True)
    assert released.ledger == ledger
