"""What versions cost: python benchmarks/storage.py [TURNS]

A table of the size of a year's flights, published to a snapshot store and scanned by commit,
against the same Parquet file written to a folder and scanned there. Both sides sort, compress and
wait for the disk alike; the store copies, hashes, commits and merges besides, and verifies before
it scans. The two take turns; wall time, medians. The embedded store has aims; lakeFS is shown
beside it, over HTTP to the tests' server on this machine. One figure a line:
NAME VALUE AIM holds|short.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from figures import tell

from ml_assets.store.open import open_snapshots
from ml_assets.store.snapshots import MAIN, Published, SnapshotStore
from ml_assets.store.table_files import write_table

EACH_IS = "the median of seven turns"

ROWS, NUMBERS, WORDS = 336_776, 13, 6
KEY = ["id"]
ROOT = Path(__file__).parent.parent


def main() -> None:
    """Print each figure with its aim."""
    turns = int((sys.argv[1:] or ["7"])[0])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        publish, scan = compare(lambda: open_snapshots(str(folder / "store")), folder, turns)
        tell("embedded_publish_to_plain", publish, 2.0)
        tell("embedded_scan_to_plain", scan, 2.0)
        with lakefs(folder) as location:
            publish, scan = compare(lambda: open_snapshots(location), folder, turns)
            print(f"lakefs_publish_to_plain {publish:.3g}")
            print(f"lakefs_scan_to_plain {scan:.3g}", flush=True)


def compare(opened: Callable[[], SnapshotStore], folder: Path, turns: int) -> tuple[float, float]:
    """Ratios to plain Parquet of publishing and of the first scan in a process, medians."""
    publishes: list[float] = []
    scans: list[float] = []
    for turn in range(turns + 1):
        frame = table(turn)
        plain, ours = folder / f"plain-{turn}.parquet", folder / f"ours-{turn}.parquet"
        written = seconds(lambda: write_table(frame, plain, KEY))  # noqa: B023  called at once
        published = seconds(lambda: publish(opened(), frame, ours))  # noqa: B023
        store = opened()
        commit = store.resolve(MAIN)
        read = seconds(lambda: whole(pl.scan_parquet(plain)))  # noqa: B023
        scanned = seconds(lambda: whole(store.scan(commit, "t/data.parquet")))  # noqa: B023
        if turn:  # the first one warms up
            publishes.append(published / written)
            scans.append(scanned / read)
    return statistics.median(publishes), statistics.median(scans)


def publish(store: SnapshotStore, frame: pl.DataFrame, file: Path) -> None:
    """What a step does to hand over a table."""
    write_table(frame, file, KEY)
    with store.open(store.resolve(MAIN), file.name) as workspace:
        workspace.put("t/data.parquet", file)
        workspace.commit(file.name, {})
        if not isinstance(workspace.publish(), Published):
            raise AssertionError("every turn has a table of its own")


def whole(frame: pl.LazyFrame) -> pl.DataFrame:
    """Every column is read, and nothing is computed that would hide what reading costs."""
    return frame.collect()


def table(seed: int) -> pl.DataFrame:
    """As many rows and columns as the flights of a year."""
    random = np.random.default_rng(seed)
    numbers = {f"number_{n}": random.normal(size=ROWS).round(2) for n in range(NUMBERS - 1)}
    words = {
        f"word_{n}": random.choice([f"carrier {m}" for m in range(4**n + 2)], size=ROWS)
        for n in range(WORDS)
    }
    return pl.DataFrame({"id": random.permutation(ROWS), **numbers, **words})


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


@contextmanager
def lakefs(folder: Path) -> Iterator[str]:
    """A repository on the tests' server, which runs in a process of its own."""
    from lakefs_client.client import LakeFSClient
    from lakefs_client.configuration import Configuration
    from lakefs_client.models import RepositoryCreation

    command = [sys.executable, "-m", "ml_assets_tests.servers.lakefs"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            endpoint, key, secret = server.stdout.readline().split()
            os.environ |= {
                "ML_ASSETS_HOME": str(folder / "state"),
                "LAKEFS_ENDPOINT": endpoint,
                "LAKEFS_ACCESS_KEY_ID": key,
                "LAKEFS_SECRET_ACCESS_KEY": secret,
            }
            account = Configuration(host=f"{endpoint}/api/v1", username=key, password=secret)
            made = RepositoryCreation(name="benchmark", storage_namespace="s3://tests/benchmark")
            LakeFSClient(account).repositories_api.create_repository(made)
            yield "lakefs://benchmark/main"
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
