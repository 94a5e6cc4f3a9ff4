"""DuckDB runs a portable feature function: the bytes of polars, in a bound of memory."""

import gc
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path
from random import Random

import narwhals as nw
import polars as pl
import pytest

import ml_assets.pipelines
from ml_assets.assets.feature_set.decode import on_engine
from ml_assets.assets.feature_set.feature_function import build_features, load_function
from ml_assets.assets.feature_set.history_features import (
    add_history,
    lag,
    latest,
    trailing,
    trailing_mean,
)
from ml_assets.assets.feature_set.portable import Frame, portable
from ml_assets.assets.raw_snapshot.readers.read_source import read_source
from ml_assets.errors import SpecError
from ml_assets.extras.demo.outside_world import lay_out
from ml_assets.settings import read_settings
from ml_assets.spec.features import EngineSpec, FeaturesSpec
from ml_assets.spec.label import LabelSpec
from ml_assets.spec.load import load_spec
from ml_assets.spec.partitions import windows
from ml_assets.spec.window import Window
from ml_assets.store.table_files import write_table

FLIGHTS = Path(ml_assets.pipelines.__path__[0]) / "flight_delays"
SMALL = EngineSpec(kind="duckdb", memory="48Mi")
ALWAYS = Window(None, None, None)
START = datetime(2024, 1, 1, tzinfo=UTC)
FEATURES = FeaturesSpec(
    function="f.py:build", key=("id",), decision_at="decision_at", numeric=("n",)
)


@pytest.mark.daemon
def test_the_real_flights_are_the_bytes_of_polars(tmp_path: Path) -> None:
    """Five weeks, of which four are looked back at: as-of joins, running totals of fractions."""
    lay_out(tmp_path, arrived=5)
    world = read_settings(
        {"ML_ASSETS_HOME": str(tmp_path / "s"), "ML_ASSETS_SOURCES": str(tmp_path)}
    )
    spec = load_spec(FLIGHTS)
    spans = windows(spec.partitions, datetime.now(UTC))[:5]
    tables = {
        name: pl.concat(
            read_source(name, source, tmp_path, world.sql_url, span).frame.lazy()
            for span in (spans if source.partitioned else [None])
        )
        for name, source in spec.sources.items()
    }
    window = Window(spans[-1].key, spans[-1].start, spans[-1].end)
    build = load_function(FLIGHTS, spec.features.function, spec.name)
    engine = on_engine(build, spec.features, SMALL, tmp_path / "scratch")
    written = {name: tmp_path / f"{name}.parquet" for name in ("polars", "duckdb")}
    told: dict[str, list[str]] = {name: [] for name in written}
    for name, function in (("polars", build), ("duckdb", engine)):
        rows = build_features(function, tables, window, spec, told[name].extend)
        assert write_table(rows, written[name], spec.features.key) > 5000
    assert written["polars"].read_bytes() == written["duckdb"].read_bytes()
    assert told["polars"] == told["duckdb"]
    assert len(list((tmp_path / "scratch").iterdir())) == 1, "its rows, and no database"
    del rows
    gc.collect()
    assert not list((tmp_path / "scratch").iterdir()), "the file goes with the last plan of it"


@portable
def every_history(tables: Mapping[str, Frame], _: Window) -> Frame:
    rows, events, six = tables["rows"], tables["events"], timedelta(hours=6)
    for name, prior in (("m", None), ("p", 0.25)):
        rows = trailing_mean(
            rows, events, name=name, value="y", span=six, by=["e"], prior=prior, weight=3.0
        )
    rows = trailing_mean(rows, events, name="all", value="z", span=six)
    rows = rows.with_columns((nw.col("all") * 2).alias("twice"))
    events = events.filter(~nw.col("known_at").is_null())
    rows = latest(rows, events, columns=["y", "z"], by=["e"], within=six)
    wanted = [trailing("y", "6h", of) for of in ("mean", "sum", "count", "min", "max")]
    lags = [lag("y", "3h"), lag("z", "3h", within="2h", name="about")]
    return add_history(rows, events, *wanted, *lags, by=["e"])


@pytest.mark.parametrize("seed", range(3))
def test_every_history_is_that_of_polars(tmp_path: Path, seed: int) -> None:
    """Ties, missing entities and values, sums whose order shows in their last bit."""
    draw = Random(seed)

    def one_of(*values: object) -> list[object]:
        return [draw.choice(values) for _ in range(300)]

    at = pl.lit(START).dt.cast_time_unit("us") + pl.duration(hours="hour")
    rows = pl.LazyFrame({"id": range(300), "hour": one_of(*range(99)), "e": one_of(None, *"ab")})
    events = pl.LazyFrame(
        {
            "hour": one_of(None, *range(99)),
            "e": one_of(None, *"ab"),
            "y": one_of(None, nan, inf, 0.1, 0.2, 0.3, 1e9, -0.7, draw.random()),
            "z": one_of(None, 1, 2),
        }
    )
    tables = {
        "rows": rows.select("id", at.alias("decision_at"), "e"),
        "events": events.select(at.alias("known_at"), "e", "y", "z"),
    }
    engine = on_engine(every_history, FEATURES, SMALL, tmp_path)
    found, again = (run(tables, ALWAYS).collect() for run in (every_history, engine))
    assert again.schema == found.schema
    for rows, name in ((found, "polars"), (again, "duckdb")):
        write_table(rows, tmp_path / name, ["id"])
    assert (tmp_path / "polars").read_bytes() == (tmp_path / "duckdb").read_bytes(), found.join(
        again, on=found.columns, how="anti", nulls_equal=True
    )
    nobody = again.filter(pl.col("e").is_null())
    assert nobody["y_min_6h"].null_count() == nobody["y_max_6h"].null_count() == len(nobody) > 0


@portable
def as_they_are(tables: Mapping[str, Frame], _: Window) -> Frame:
    return tables["rows"]


def test_a_feature_that_is_no_number_is_no_value_on_both_engines(tmp_path: Path) -> None:
    spec = load_spec(FLIGHTS).model_copy(
        update={"features": FEATURES, "label": LabelSpec(column="y", task="binary")}
    )
    at = pl.lit(START).dt.cast_time_unit("us").alias("decision_at")
    rows = pl.LazyFrame({"id": [1, 2, 3], "n": [nan, 0.5, None], "y": [True, False, True]})
    tables = {"rows": rows.with_columns(at)}
    for build in (as_they_are, on_engine(as_they_are, FEATURES, SMALL, tmp_path)):
        made = build_features(build, tables, ALWAYS, spec).collect()
        assert made["n"].to_list() == [None, 0.5, None]


@portable
def told_before(tables: Mapping[str, Frame], _: Window) -> Frame:
    rows = tables["rows"]
    return latest(rows, rows, columns=["text"], by=["e"], within=timedelta(days=99))


@pytest.fixture(scope="module")
def many() -> pl.LazyFrame:
    """Rows of 60 MB."""
    number = pl.col("id")
    at = pl.lit(START).dt.cast_time_unit("us") + pl.duration(seconds=number.hash(1) % 10**6)
    return pl.LazyFrame({"id": range(400_000)}).with_columns(
        (number.hash(7) % 977).alias("e"),
        at.alias("decision_at"),
        at.alias("known_at"),
        (pl.lit("x" * 100) + number.cast(pl.String)).alias("text"),
    )


@pytest.mark.daemon
def test_what_does_not_fit_is_spilled(tmp_path: Path, many: pl.LazyFrame) -> None:
    """An as-of join of 60 MB of rows with themselves, in 64 MiB."""
    engine = EngineSpec(kind="duckdb", memory="64Mi")
    found = on_engine(told_before, FEATURES, engine, tmp_path)({"rows": many}, ALWAYS).collect()
    assert found["id"].to_list() == list(range(400_000))


def test_a_bound_that_is_too_small_is_told(tmp_path: Path, many: pl.LazyFrame) -> None:
    engine = EngineSpec(kind="duckdb", memory="32Mi")
    with pytest.raises(
        SpecError, match=r"memory 32Mi is too little for f\.py:build: Out of Memory"
    ):
        on_engine(told_before, FEATURES, engine, tmp_path)({"rows": many}, ALWAYS)
    assert not list(tmp_path.iterdir())


def test_a_function_of_polars_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"f\.py:build is written for polars only\. Rewrite it"):
        on_engine(lambda tables, _: tables["rows"], FEATURES, SMALL, tmp_path)


def test_what_duckdb_cannot_do_is_told(tmp_path: Path) -> None:
    @portable
    def local(tables: Mapping[str, Frame], _: Window) -> Frame:
        there = nw.col("decision_at").dt.convert_time_zone("America/New_York")
        return tables["rows"].with_columns(there.dt.hour().alias("n"))

    rows = pl.LazyFrame({"id": [1], "decision_at": [START]})
    with pytest.raises(SpecError, match=r"an operation that DuckDB does not have.*timezone"):
        on_engine(local, FEATURES, SMALL, tmp_path)({"rows": rows}, ALWAYS)


def test_rows_that_the_function_collected_are_refused(tmp_path: Path) -> None:
    @portable
    def collected(tables: Mapping[str, Frame], _: Window) -> Frame:
        return tables["rows"].collect().lazy()

    rows = pl.LazyFrame({"id": [1], "n": [2]})
    with pytest.raises(SpecError, match=r"f\.py:build must return a lazy frame.*not call collect"):
        on_engine(collected, FEATURES, SMALL, tmp_path)({"rows": rows}, ALWAYS)


def test_what_duckdb_finds_wrong_with_the_rows_is_told(tmp_path: Path) -> None:
    @portable
    def number(tables: Mapping[str, Frame], _: Window) -> Frame:
        return tables["rows"].with_columns(nw.col("name").cast(nw.Float64).alias("n"))

    rows = pl.LazyFrame({"id": [1], "name": ["north"]})
    with pytest.raises(SpecError, match=r"DuckDB cannot run f\.py:build: .*north"):
        on_engine(number, FEATURES, SMALL, tmp_path)({"rows": rows}, ALWAYS)


@pytest.mark.parametrize("memory", ["16Mi", "much"])
def test_a_bound_is_a_size_that_an_engine_can_begin_with(memory: str) -> None:
    with pytest.raises(ValueError, match="is not a memory size of an engine: write 32Mi or more"):
        EngineSpec(kind="duckdb", memory=memory)
