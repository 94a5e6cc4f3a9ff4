"""A set six times as large as the pods' disks: two pods train it, one is killed, no bit is lost.

``ML_ASSETS_TEST_GIGABYTES=6 pytest -s`` takes 6 GB of rows and disks of 1 GB; without it 0.1 GB is
taken, and disks of a sixth of that. The store gives 50 MB a second. What was measured is printed.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.training_set.shards import load_schema
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.launch.local.supervisor import descendants
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.events import DrawnRows
from ml_assets.store.block_order import block_order
from ml_assets_tests.launch.kubernetes.stage import Stage, weights
from ml_assets_tests.launch.real import named
from ml_assets_tests.launch.staging.pods import wait_for
from ml_assets_tests.worlds.shards import write_parts

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(3600)]
GIGABYTES = float(os.environ.get("ML_ASSETS_TEST_GIGABYTES", "0.1"))
BYTES_PER_SECOND = 50e6
NUMBERS = 128
ROW = 8 * NUMBERS + NUMBERS // 8 + 4
"""Bytes of a row in the arrays of a shard."""
ROWS = int(GIGABYTES * 1e9 / ROW)
DISK = int(GIGABYTES * 1e9 / 6)
BLOCK, WINDOW = (4096, 2) if GIGABYTES < 1 else (16384, 8)
BATCH = 4096
WIDTH = 256 if GIGABYTES < 1 else 1024
"""A narrower network reads 6 GB faster than 50 MB a second bring them."""
STEPS = -(-ROWS // BATCH)
NAMES = [f"x{number}" for number in range(NUMBERS)]
FEATURES = FeaturesSpec.model_validate(
    {"function": "f.py:build", "key": ["id"], "decision_at": "at", "numeric": NAMES}
)


@pytest.fixture
def stage(tmp_path, cluster, store):
    store.faults.bytes_per_second = BYTES_PER_SECOND
    return Stage(tmp_path / "home", cluster, store).furnish()


def test_a_set_larger_than_the_disks_trains_the_same_weights_also_after_a_kill(stage, tmp_path):
    job = _job(_written(stage.home / "objects" / "shards" / "demo", tmp_path / "rows"))
    alone = LocalLauncher(tmp_path / "alone").train(job, [].append)
    assert alone.step == STEPS
    with _held(stage) as held:
        killer = threading.Thread(target=_kill_one, args=(stage,), daemon=True)
        killer.start()
        result = stage.launcher().train(job, stage.events.append)
        killer.join()
    assert (result.attempt, result.step) == (2, STEPS)
    assert weights(result) == weights(alone)
    assert [one.lost.cause for one in named(stage.events, "warning") if one.lost] == ["PodDeleted"]

    assert len(held) == 4 and max(held.values()) <= DISK, held
    shards = load_schema(job.data).splits["train"]
    (ended,) = named(stage.events, "epoch")
    assert ended.drawn == DrawnRows.all_of(ROWS), "by the pods' own count, each row came once"
    blocks = len(block_order([one.rows for one in shards], job.training).firsts)
    files = tuple(f"/{one.digest}/numeric.npy" for one in shards)
    asked = [path.partition("?")[0] for m, path in stage.store.faults.requests if m == "GET"]
    fetched = sum(path.endswith(files) for path in asked)
    assert blocks <= fetched < 2.3 * blocks, "no pod fetches all of it, but for what was lost"
    _tell(stage, held, fetched / blocks, result.seconds)


def _job(data: Ref) -> TrainJob:
    training = TrainingSpec(
        epochs=1,
        batch_size=BATCH,
        microbatches=2,
        evaluate_every=STEPS,
        checkpoint_every=max(2, STEPS // 8),
        processes=2,
        order="blocks",
        block_rows=BLOCK,
        block_window=WINDOW,
    )
    disk = {"scratch": str(DISK), "data_cache": str(int(0.6 * DISK))}
    pods = ClusterSpec.model_validate({"nodes": 2, "cpu": "100m", "memory": "4Gi", **disk})
    return TrainJob("demo", Mlp(family="mlp", width=WIDTH), training, data, cluster=pods)


def _written(folder: Path, rows: Path) -> Ref:
    """Shards of four blocks; the numbers are coarse, so that their table is small."""
    rows.mkdir()
    starts = range(0, ROWS, 4 * BLOCK)
    train = [_part(rows, first, min(4 * BLOCK, ROWS - first)) for first in starts]
    rest = {name: [_part(rows, -n, ROWS // 100)] for n, name in ((1, "validation"), (2, "holdout"))}
    label = LabelSpec.model_validate({"column": "late", "task": "binary"})
    data = write_parts({"train": train, **rest}, FEATURES, label, folder)
    for file in rows.iterdir():
        file.unlink()
    return data


def _part(folder: Path, first: int, count: int) -> pl.LazyFrame:
    draw = np.random.default_rng(first + ROWS)
    numbers = draw.integers(-64, 64, (NUMBERS, count), np.int8) / 32
    late = numbers[0] + draw.normal(size=count) > 0
    at = pl.repeat(0, count, eager=True).cast(pl.Datetime("us", "UTC"))
    ids = {"id": np.arange(first, first + count), "at": at, "late": late}
    file = folder / f"{first}.parquet"
    pl.DataFrame({**ids, **dict(zip(NAMES, numbers, strict=True))}).write_parquet(file)
    return pl.scan_parquet(file)


def _kill_one(stage: Stage) -> None:
    """As the node's kernel would: without a word before it."""
    wait_for(lambda: stage.saves_of(1) >= 2, seconds=1800)
    stage.core.delete_namespaced_pod(stage.pod(1), stage.cluster.namespace, grace_period_seconds=0)


@contextmanager
def _held(stage: Stage) -> Iterator[dict[str, int]]:
    """Pod -> the most bytes of its disk that it held, files without a name included."""
    held, over = dict[str, int](), threading.Event()
    root = stage.cluster.server.root

    def watch() -> None:
        while not over.wait(0.1):
            for scratch in root.glob("*/v/scratch"):
                pod = scratch.parts[-3]
                held[pod] = max(held.get(pod, 0), _named(scratch) + _unnamed(str(scratch)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield held
    finally:
        over.set()
        watcher.join()


def _named(root: Path) -> int:
    total = 0
    for folder, _, files in os.walk(root):
        for name in files:
            with suppress(FileNotFoundError):  # it went meanwhile
                total += Path(folder, name).stat().st_blocks * 512
    return total


def _unnamed(folder: str) -> int:
    """Bytes of files that are mapped and have no name any more."""
    spans = Counter[str]()
    for pid in descendants(os.getpid()):
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        for line in maps.splitlines():
            if folder in line and line.endswith("(deleted)"):
                first, last = (int(end, 16) for end in line.split()[0].split("-"))
                spans[line.split()[4]] = max(spans[line.split()[4]], last - first)
    return spans.total()


def _tell(stage: Stage, held: dict[str, int], times: float, seconds: float) -> None:
    told = [one.metrics for one in named(stage.events, "metrics")]
    waits = [one["fetch_wait_share"] for one in told if "fetch_wait_share" in one]
    assert waits and all(0 <= share <= 1 for share in waits), waits
    print(
        f"\nset_gb {GIGABYTES:g}\ndisk_of_a_pod_mb {DISK / 1e6:.0f}"
        f"\nmost_of_it_held_mb {max(held.values()) / 1e6:.0f}\nblocks_fetched_times {times:.2f}"
        f"\nfetch_wait_percent {100 * fmean(waits):.1f} of the time of all steps told"
        f"\nfetch_wait_percent_at_the_end {100 * waits[-1]:.1f}"
        f"\nfetch_wait_percent_most {100 * max(waits):.1f}\nseconds {seconds:.0f}"
    )
