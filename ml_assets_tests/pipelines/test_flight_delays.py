"""The default pipeline on real flights: what happens after a decision does not touch its row."""

import shutil
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

import ml_assets.pipelines
from ml_assets.assets.feature_set.feature_function import check_features, load_function
from ml_assets.assets.raw_snapshot.readers.read_source import read_source
from ml_assets.component import build_pipeline
from ml_assets.extras.demo.faults import LEAKING
from ml_assets.extras.demo.outside_world import lay_out
from ml_assets.settings import read_settings
from ml_assets.spec.load import load_spec
from ml_assets.spec.partitions import windows
from ml_assets.spec.window import Window
from ml_assets.store.layout import Address
from ml_assets_tests.worlds.opened import pipeline_of

FOLDER = Path(ml_assets.pipelines.__path__[0]) / "flight_delays"
WEEKS = 6


@pytest.fixture(scope="module")
def spec():
    return load_spec(FOLDER)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, spec):
    """The first weeks of real data, read as the pipeline reads them."""
    root = tmp_path_factory.mktemp("world")
    lay_out(root, arrived=WEEKS)
    settings = read_settings({"ML_ASSETS_HOME": str(root / "s"), "ML_ASSETS_SOURCES": str(root)})
    from datetime import UTC, datetime

    spans = windows(spec.partitions, datetime.now(UTC))[:WEEKS]
    tables = {}
    for name, source in spec.sources.items():
        parts = spans if source.partitioned else [None]
        frames = [read_source(name, source, root, settings.sql_url, part).frame for part in parts]
        tables[name] = pl.concat(frames)
    return tables, Window(spans[-1].key, spans[-1].start, spans[-1].end)


def test_each_asset_has_a_name_of_its_own_in_the_lineage(spec) -> None:
    defs = build_pipeline(pipeline_of(FOLDER))
    keys = [key for one in defs.assets or () for key in one.keys]
    names = [key.path[-1] for key in keys]
    assert len(names) == len(set(names))
    assert {"raw_airlines", "airlines", "raw_flights", "flights", "training_set"} <= {*names}
    for key in keys:
        address = Address.of("/".join(key.path))
        assert address.key == "/".join(key.path)
        assert address.source in {None, *spec.sources, *spec.tables}


def rows_of(spec, tables, window) -> pl.DataFrame:
    build = load_function(FOLDER, spec.features.function, spec.name)
    frame = build({name: table.lazy() for name, table in tables.items()}, window).collect()
    return check_features(frame, spec.features, spec.label)


def test_every_flight_of_the_week_has_one_row(spec, world) -> None:
    tables, window = world
    rows = rows_of(spec, tables, window)
    scheduled = tables["flights"].filter(
        pl.col("sched_dep_time").is_between(window.start, window.end, "left")
    )
    assert len(rows) == len(scheduled) > 5000
    assert 0.05 < rows["late"].mean() < 0.6
    shares = {name: rows[name].null_count() / len(rows) for name in spec.features.numeric}
    assert max(shares.values()) < 0.95, shares


def test_nothing_known_at_or_after_a_decision_touches_its_row(spec, world) -> None:
    tables, window = world
    features = [*spec.features.numeric, *spec.features.categorical]
    moment = window.start + timedelta(days=3, hours=12)
    late = pl.col("known_at") >= moment
    other = {
        **tables,
        "arrivals": tables["arrivals"].with_columns(
            pl.when(late).then(300).otherwise(pl.col("arr_delay")).alias("arr_delay"),
            pl.when(late).then(pl.lit("landed")).otherwise(pl.col("status")).alias("status"),
        ),
        "weather": tables["weather"].with_columns(
            pl.when(pl.col("observed_at") >= moment)
            .then(99.0)
            .otherwise(pl.col("wind_speed"))
            .alias("wind_speed")
        ),
    }
    before = pl.col("decision_at") <= moment
    was = rows_of(spec, tables, window)
    now = rows_of(spec, other, window)
    decided = was.filter(before).select(features)
    assert len(decided) > 1000
    assert decided.equals(now.filter(before).select(features))
    assert not was.filter(~before).select(features).equals(now.filter(~before).select(features))


def test_the_leak_that_the_demo_plants_can_be_loaded(tmp_path: Path) -> None:
    """``ml-assets demo --plant leak`` adds it to the features; what it catches is a long test."""
    folder = shutil.copytree(FOLDER, tmp_path / "leaking")
    file = folder / "features.py"
    file.write_text(file.read_text() + LEAKING)
    assert "PLANTED" in (load_function(folder, "features.py:build", "leaking").__doc__ or "")
