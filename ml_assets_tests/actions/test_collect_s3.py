"""House-keeping of checkpoints that lie on S3: the same retention, and never what it must not."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.settings import Settings
from ml_assets.store.s3 import client as s3
from ml_assets_tests.actions.house import House
from ml_assets_tests.servers.s3 import BUCKET, S3Server

FILES = ("step-000010.a1/manifest.json", "step-000010.a1/__0_0.distcp", "attempt-000001.json")


@dataclasses.dataclass
class CheckpointsOnS3(House):
    """Its checkpoints lie in a bucket that others use too."""

    now: datetime = dataclasses.field(default_factory=lambda: datetime.now(UTC))
    """The times on S3 are the server's."""

    @property
    def settings(self) -> Settings:
        return dataclasses.replace(super().settings, checkpoints=f"s3://{BUCKET}/all")


def put(bucket: S3Server, session: str) -> None:
    for name in FILES:
        bucket.client.put_object(Bucket=BUCKET, Key=f"all/{session}/{name}", Body=b"x")


def sessions_on(bucket: S3Server) -> set[str]:
    return {key.split("/")[1] for key in bucket.everything()}


def test_those_of_finished_sessions_go_in_their_time_and_of_others_never(
    tmp_path: Path, bucket: S3Server
) -> None:
    house = CheckpointsOnS3(tmp_path)
    old = house.train()
    house.decide(passes=True)
    new = house.train()
    house.decide(passes=True)
    interrupted = house.begin_session(house.lay_out()).session
    for session in (old.session, new.session, interrupted, "of-another-home"):
        put(bucket, session)
    house.collect()
    assert len(sessions_on(bucket)) == 4
    house.pass_days(20)
    house.collect()
    assert sessions_on(bucket) == {new.session, interrupted, "of-another-home"}
    house.pass_days(20)
    house.collect()  # the interrupted session is given up, and its checkpoints with it
    assert sessions_on(bucket) == {new.session, "of-another-home"}


def test_a_store_that_is_away_costs_no_session_and_is_told(
    tmp_path: Path, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "TRIES", 1)
    house = CheckpointsOnS3(tmp_path)
    interrupted = house.begin_session(house.lay_out())
    put(bucket, interrupted.session)
    house.pass_days(100)
    bucket.faults.failing = -1
    outcome = house.collect()
    assert any("sessions and their checkpoints" in left for left in outcome.left)
    assert interrupted.root.is_dir()
