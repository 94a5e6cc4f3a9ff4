"""Memory and CPU of the flights' features on DuckDB, as shares of those on polars.

    python benchmarks/engine.py [--scale 10] [--memory 32Mi]

One generated week with the four that it looks back at, ten times the real flights, is made by the
team's function in processes of their own: on polars in memory, and on DuckDB with a bound that is a
small part of that. Then it goes on as in the stage: the rows are checked, made once more and
compared as the leak guard does it, written, and counted for the data card. Counted is what a
process holds of its own at its peak in all of this, over what it held when it had loaded its
modules; what it takes until the function has returned is printed beside it. Pages of files are the
kernel's, which drops them when anybody needs the room, and so are pages that were freed and that it
did not take yet. Both have to make the same bytes. One figure a line: NAME VALUE AIM holds|short.
"""

import argparse
import json
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from figures import tell

import ml_assets.pipelines
from ml_assets.assets.feature_set.decode import on_engine
from ml_assets.assets.feature_set.feature_function import build_features, load_function
from ml_assets.assets.feature_set.future_check import Hidden
from ml_assets.assets.feature_set.guards import compare_rows
from ml_assets.assets.raw_snapshot.readers.read_source import read_source
from ml_assets.extras.demo.generator.recipe import Recipe
from ml_assets.extras.demo.generator.tables import lay_out_generated, weeks_from
from ml_assets.graph.data_card import label_columns
from ml_assets.settings import read_settings
from ml_assets.spec.features import EngineSpec
from ml_assets.spec.load import load_spec
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.window import Window
from ml_assets.store.objects import file_digest
from ml_assets.store.table_files import write_table
from ml_assets.store.table_survey import survey

NEEDS = ("package duckdb",)
FOLDER = Path(ml_assets.pipelines.__path__[0]) / "flight_delays"
SCALE = 10
MEMORY = "32Mi"
WEEKS = 5
"""A week, and what it looks back at."""
THIRD = 0.34
BESIDE = "The function itself takes 0.30: its sorts and joins have a bound of 32 MiB."
TIMES_THE_CPU = 5.0
ON_DISK = "DuckDB sorts on disk, in a bound of 32 MiB, what polars joins in memory."
_BETWEEN_LOOKS = 0.003


def main() -> None:
    """Print each figure with its aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=SCALE)
    parser.add_argument("--memory", default=MEMORY)
    parser.add_argument("--make", nargs=2, metavar=("ENGINE", "FOLDER"))
    asked = parser.parse_args()
    if asked.make:
        return make(asked.make[0], asked.memory, Path(asked.make[1]))
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        lay_out(Path(folder), asked.scale)
        polars, duckdb = (peak(name, asked.memory, folder) for name in ("polars", "duckdb"))
    assert polars["digest"] == duckdb["digest"], "the engines make other bytes"
    for name, found in (("polars", polars), ("duckdb", duckdb)):
        told = f"{found['mib']:.0f} over {found['before']:.0f}, {found['made']:.0f} until made"
        print(f"{name}_mib {told}, {found['cpu']:.1f} CPU seconds, {found['rows']} rows")
    tell("memory_duckdb_to_polars", duckdb["mib"] / polars["mib"], THIRD, why=BESIDE)
    tell("cpu_duckdb_to_polars", duckdb["cpu"] / polars["cpu"], TIMES_THE_CPU, why=ON_DISK)


def lay_out(root: Path, scale: float) -> None:
    """The generated weeks, read as the pipeline reads them: a file for each table and week."""
    spec = load_spec(FOLDER)
    list(lay_out_generated(root / "world", Recipe(seed=0, scale=scale), weeks_from(count=WEEKS)))
    settings = read_settings(
        {"ML_ASSETS_HOME": str(root / "home"), "ML_ASSETS_SOURCES": str(root / "world")}
    )
    for name, source in spec.sources.items():
        (root / name).mkdir()
        for span in _spans() if source.partitioned else [None]:
            read = read_source(name, source, root / "world", settings.sql_url, span)
            write_table(
                read.frame, root / name / f"{span.key if span else 'all'}.parquet", source.key
            )


def _spans() -> Sequence[PartitionWindow]:
    return windows(load_spec(FOLDER).partitions, datetime.now(UTC))[:WEEKS]


def peak(engine: str, memory: str, folder: str) -> dict[str, Any]:
    """What a process took that makes the features: MiB over those before it began, CPU seconds."""
    command = [sys.executable, __file__, "--make", engine, folder, "--memory", memory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # its modules are loaded
        before = _own_mebibytes(process.pid)
        made, _ = _watched(process)
        published, said = _watched(process)
    if process.returncode:
        raise SystemExit(f"{engine} ended with exit code {process.returncode}")
    found = {"made": made - before, "mib": max(made, published) - before}
    return {**found, "before": before, **json.loads(said)}


def _watched(process: "subprocess.Popen[bytes]") -> tuple[float, bytes]:
    """Let a process go on to its next line: the most that it held on the way, and the line."""
    assert process.stdout and process.stdin
    process.stdin.write(b"\n")
    process.stdin.flush()
    most, waiting = 0.0, [process.stdout]
    while not select.select(waiting, [], [], _BETWEEN_LOOKS)[0]:
        most = max(most, _own_mebibytes(process.pid))
    return most, process.stdout.readline()


def make(engine: str, memory: str, root: Path) -> None:
    """Make the features of the last week as the stage does, and say what they are and took."""
    spec = load_spec(FOLDER)
    build = load_function(FOLDER, spec.features.function, spec.name)
    span = _spans()[-1]
    tables = {
        name: pl.concat(pl.scan_parquet(file) for file in sorted((root / name).iterdir()))
        for name in spec.sources
    }
    print("loaded", flush=True)
    sys.stdin.readline()
    began = time.process_time()
    if engine == "duckdb":
        asked = EngineSpec(kind="duckdb", memory=memory)
        build = on_engine(build, spec.features, asked, root / "scratch")
    window = Window(span.key, span.start, span.end)
    rows = build_features(build, tables, window, spec)
    print("made", flush=True)
    sys.stdin.readline()
    again = build_features(build, tables, window, spec)
    same = compare_rows(build, rows, again, spec.features, Hidden(None, 0, ()))
    assert same.passed, same.reason
    file = root / f"{engine}.parquet"
    count = write_table(rows, file, spec.features.key)
    assert survey(rows, spec.features.key, label_columns(spec)).rows == count
    told = {"rows": count, "digest": file_digest(file), "cpu": time.process_time() - began}
    print(json.dumps(told), flush=True)


def _own_mebibytes(pid: int) -> float:
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0.0
    kibibytes = {
        name: int(rest.split()[0]) for name, _, rest in (one.partition(":") for one in told)
    }
    return (kibibytes["Anonymous"] - kibibytes["LazyFree"]) / 1024


if __name__ == "__main__":
    main()
