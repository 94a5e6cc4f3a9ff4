"""Look-ups of features: python benchmarks/online.py [ENTITIES] [REDIS_URL]

As many entities as told, with 35 numbers and six categories each, are served from a file (and from
the Redis server, where one is named), then looked up one at a time, at random. Wall time of a whole
look-up, the row decoded, in milliseconds; some are held to the batch. The p99 tells of a busy
machine first. One figure a line: NAME VALUE AIM holds|short.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from figures import tell
from generated import CATEGORICAL, NUMERIC

from ml_assets.extras.online.features import Features, serve
from ml_assets.extras.online.open import open_online
from ml_assets.extras.online.store import OnlineStore

PIPELINE = "benchmark"
ENTITIES = 100_000
LOOK_UPS = 20_000


def main() -> None:
    """Print each figure with its aim."""
    entities, *urls = sys.argv[1:] or [str(ENTITIES)]
    rows = _rows(int(entities))
    with tempfile.TemporaryDirectory() as folder:
        measure("sqlite", open_online(str(Path(folder) / "online.db")), rows, p99=1.0)
    for url in urls:
        measure("redis", open_online(url), rows, p99=2.0)


def measure(name: str, store: OnlineStore, rows: pl.DataFrame, p99: float) -> None:
    """Serve the rows, look some up, and print how long both took."""
    begin = time.perf_counter()
    serve(store, PIPELINE, "version", ["entity"], rows)
    print(f"{name}_rows_served_per_second {len(rows) / (time.perf_counter() - begin):,.0f}")
    features = Features(PIPELINE, ("entity",), store)
    taken = np.empty(LOOK_UPS)
    for number, place in enumerate(np.random.default_rng(1).integers(0, len(rows), LOOK_UPS)):
        begin = time.perf_counter()
        found = features.look_up({"entity": int(place)})
        taken[number] = time.perf_counter() - begin
        if number % 100 == 0:
            assert found == rows.row(int(place), named=True)
    print(f"{name}_look_up_p50_ms {np.quantile(taken, 0.5) * 1000:.3g}")
    tell(f"{name}_look_up_p99_ms", float(np.quantile(taken, 0.99)) * 1000, p99)


def _rows(count: int) -> pl.DataFrame:
    draw = np.random.default_rng(0)
    numbers = {name: draw.normal(size=count) for name in NUMERIC}
    words = {name: draw.integers(0, 100, count).astype(str) for name in CATEGORICAL}
    return pl.DataFrame({"entity": np.arange(count), **numbers, **words})


if __name__ == "__main__":
    main()
