"""Rows that are fetched as training comes to them: the same rows, each once, in a disk that is
bounded."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program import (
    Ref,
    Reports,
    SanityRequest,
    Split,
    TrainOutput,
    TrainRequest,
    World,
)
from ml_assets.store import retries
from ml_assets.store.retries import Deadline
from ml_assets.store.s3.client import S3Place, client
from ml_assets.store.s3.objects import S3Objects
from ml_assets.training.rows import fetched as fetched_rows
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.rows.batches import Batches
from ml_assets.training.rows.training_split import open_training_split
from ml_assets.training.staging.transfer import stage
from ml_assets.training.stop import BadData, BadRequest
from ml_assets.training.telemetry import Stopwatch
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.training.conftest import FEATURES, LABEL, frame
from ml_assets_tests.worlds.shards import write_parts

SPEC = TrainingSpec(
    epochs=2,
    batch_size=240,
    microbatches=4,
    order="blocks",
    block_rows=512,
    block_window=2,
)
ROW = 4 * (2 + 1) + 4 + 4
"""Bytes of an encoded row: two numbers and a flag, a word, and the label."""


@pytest.fixture
def published(tmp_path: Path, bucket: S3Server) -> Ref:
    """Three shards of training rows; one is longer than what has a checksum of its own."""
    objects = S3Objects(tmp_path / "home", f"s3://{BUCKET}/state")
    parts: dict[Split, list[pl.LazyFrame]] = {
        "train": [frame(9000, 0), frame(700, 10_000), frame(3000, 20_000)],
        "validation": [frame(300, 30_000)],
        "holdout": [frame(40, 40_000)],
    }
    data = write_parts(parts, FEATURES, LABEL, objects.folder("shards", "p"))
    objects.publish(data)
    return objects.address(data)


Open = Callable[..., tuple[Batches, Batches]]


@pytest.fixture
def opened(tmp_path: Path, published: Ref) -> Open:
    """The same steps with rows that are here, and with rows that are fetched."""

    def batches(blocks: float, spec: TrainingSpec = SPEC) -> tuple[Batches, Batches]:
        request = TrainRequest(
            session="s",
            attempt=1,
            model=Mlp(family="mlp"),
            training=spec,
            data=published,
            resume=None,
            output=TrainOutput(checkpoints="c", model="m", events="e", result="r"),
            world=World(),
        )
        place = S3Place(published.uri, client(tries=1))
        found: list[Batches] = []
        for name, cache in (("here", None), ("fetched", int(blocks * spec.block_rows * ROW))):
            local = stage(request, place, tmp_path / name, Deadline(), cache)
            folder, schema = open_set(local.data, local.splits)
            assert isinstance(local, TrainRequest)
            rows, order = open_training_split(local, folder, schema, Stopwatch())
            size = (spec.batch_size, spec.microbatches, 1, (), order, spec.epochs)
            found.append(Batches(rows, spec.seed, *size))
        return found[0], found[1]

    return batches


def test_steps_have_the_rows_that_they_would_have_here(opened: Open, bucket: S3Server) -> None:
    here, fetched = opened(blocks=20)
    assert fetched.steps_per_epoch == here.steps_per_epoch == 53
    for step in range(2 * here.steps_per_epoch):
        for rank, world in ((0, 1),):
            assert_equal(fetched.share(step, rank, world)[0], here.share(step, rank, world)[0])


def assert_equal(one: object, other: object) -> None:
    for name in ("numeric", "categorical", "label"):
        a, b = getattr(one, name).numpy(), getattr(other, name).numpy()
        assert a.dtype == b.dtype and np.array_equal(a, b), name


def test_ranks_fetch_their_own_blocks_and_only_when_they_come_to_them(
    opened: Open, bucket: S3Server
) -> None:
    """Two ranks fetch together little more than the set; one window is no tenth of it."""
    asked = len(ranges(bucket))
    total = 0
    for rank in range(2):
        _, fetched = opened(blocks=14, spec=SPEC.model_copy(update={"epochs": 1}))
        asked = len(ranges(bucket))
        for step in range(fetched.steps_per_epoch):
            fetched.share(step, rank, 2)
        total += len(ranges(bucket)) - asked
    blocks = -(-9000 // 512) + -(-700 // 512) + -(-3000 // 512)
    assert blocks <= total < 1.6 * blocks


@pytest.mark.parametrize("deep", [True, False])
def test_a_deep_check_has_all_of_its_rows_here(tmp_path: Path, published: Ref, deep: bool) -> None:
    request = SanityRequest(
        session="s",
        attempt=1,
        model=Mlp(family="mlp"),
        training=SPEC,
        data=published,
        deep=deep,
        output=Reports(events="e", result="r"),
        world=World(),
    )
    place = S3Place(published.uri, client(tries=1))
    local = stage(request, place, tmp_path / "pod", Deadline(), 1 << 20)
    assert (local.on_demand is None) == deep
    assert len(list((tmp_path / "pod").rglob("numeric.npy"))) == (4 if deep else 1)


def ranges(bucket: S3Server) -> list[str]:
    """The requests for rows: four arrays of a block, of which one is counted."""
    return [p for m, p in bucket.faults.requests if m == "GET" and "/numeric.npy" in p]


def test_the_disk_that_is_allowed_is_what_is_taken(opened: Open, tmp_path: Path) -> None:
    _, fetched = opened(blocks=20)
    for step in range(10):
        fetched.share(step, 0, 1)
    maps = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in maps if str(tmp_path / "fetched/rows") in line]
    taken = sum(int(last, 16) - int(first, 16) for first, last in spans)
    bound = 20 * SPEC.block_rows * ROW
    assert 0.8 * bound < taken <= bound + 3 * 4096, "three files of whole pages"
    assert not list((tmp_path / "fetched/rows").iterdir()), "the room is free when the process ends"
    assert not list((tmp_path / "fetched").rglob("shards/*/numeric.npy"))[1:], "but validation"


def test_too_little_room_is_refused_with_what_to_change(opened: Open) -> None:
    _, fetched = opened(blocks=3)
    with pytest.raises(
        BadRequest,
        match=r"has room for 3 blocks .*reads 8 at a time: raise cluster\.data_cache.*\.processes",
    ):
        fetched.share(0, 0, 1)
    with pytest.raises(BadRequest, match=r"raise cluster\.data_cache"):
        opened(blocks=0.5)


def test_any_rows_can_be_read_whatever_the_room(opened: Open) -> None:
    here, fetched = opened(blocks=2)
    rows = np.random.default_rng(0).permutation(12_700)[:3000]
    for name in ("numeric", "categorical", "label"):
        a, b = (getattr(one.rows.take(rows), name) for one in (fetched, here))
        assert np.array_equal(a, b)


def test_a_flipped_byte_of_a_block_is_refused_by_name(
    opened: Open, bucket: S3Server, published: Ref
) -> None:
    _, fetched = opened(blocks=40)
    largest = max(
        (k for k in bucket.everything() if k.endswith("/numeric.npy")),
        key=lambda k: bucket.client.head_object(Bucket=BUCKET, Key=k)["ContentLength"],
    )
    bucket.flip(largest)
    with pytest.raises(BadData, match=r"numeric.npy is damaged: rows 4,096 to 8,192 have another"):
        for step in range(fetched.steps_per_epoch):
            fetched.share(step, 0, 1)


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client asks once for rows; a store that is away is asked again soon."""
    place = partial(S3Place, s3=client(tries=1))
    monkeypatch.setattr(fetched_rows, "S3Place", place)
    monkeypatch.setattr(retries, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(retries, "_LONGEST_WAIT", 0.02)


def test_a_store_that_is_away_for_longer_than_a_client_asks_costs_time_alone(
    opened: Open, bucket: S3Server, once: None
) -> None:
    here, fetched = opened(blocks=20)
    bucket.faults.at, bucket.faults.failing = "/numeric.npy", 30
    for step in range(3):
        assert_equal(fetched.share(step, 0, 1)[0], here.share(step, 0, 1)[0])
    assert bucket.faults.failing == 0


def test_a_store_that_refused_rows_ahead_is_asked_again_when_they_are_read(
    opened: Open, bucket: S3Server, once: None
) -> None:
    here, fetched = opened(blocks=40)
    fetched.share(0, 0, 1)
    bucket.faults.status, bucket.faults.code = "403 Forbidden", "AccessDenied"
    bucket.faults.at, bucket.faults.failing = "/numeric.npy", 3
    for step in range(fetched.steps_per_epoch):
        assert_equal(fetched.share(step, 0, 1)[0], here.share(step, 0, 1)[0])
    assert bucket.faults.failing == 0
