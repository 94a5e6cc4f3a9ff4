"""Real flights as they land: their features are those that the week's own feature set would have.

The tables are published without a run: what is tested is what stands between them and a row.
"""

import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import ml_assets.pipelines
from ml_assets.assets.feature_set.feature_function import check_features, load_function
from ml_assets.assets.feature_set.new_rows import make_feature_rows
from ml_assets.assets.feature_set.replay import MOST_ROWS, difference, replay
from ml_assets.assets.raw_snapshot.readers.read_source import read_source
from ml_assets.errors import WindowError
from ml_assets.extras.demo.outside_world import lay_out
from ml_assets.settings import read_settings
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.window import Window
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets.store.table_files import write_table

FOLDER = Path(ml_assets.pipelines.__path__[0]) / "flight_delays"
WEEKS = 6


@dataclass(frozen=True)
class Flights:
    """The first weeks as read, by source and partition (None: a source that is not cut)."""

    place: Pipeline
    spans: tuple[PartitionWindow, ...]
    tables: dict[str, dict[str | None, pl.DataFrame]]

    @property
    def newest(self) -> str:
        return self.spans[-1].key

    def publish(self, leave_out: set[tuple[str, str]]) -> str:
        """The commit that holds the validated tables of every partition that is not left out."""
        store = self.place.store
        with store.open(store.resolve("main"), f"without {sorted(leave_out)}") as work:
            for source, parts in self.tables.items():
                for partition, frame in parts.items():
                    table = Address("flight_delays", "validated_table", source, partition).table
                    if (source, partition or "") not in leave_out:
                        file = self.place.scratch / "table.parquet"
                        write_table(frame, file, self.place.spec.sources[source].key)
                        work.put(table, file)
            return work.commit("tables", {})

    def features_of_the_week(self) -> pl.DataFrame:
        """What the feature function itself says of the newest week and those it looks back at."""
        spec, span = self.place.spec, self.spans[-1]
        build = load_function(self.place.folder, spec.features.function, spec.name)
        parts = -1 - spec.features.look_back
        given = {
            name: pl.concat(list(weeks.values())[parts:]).lazy()
            for name, weeks in self.tables.items()
        }
        frame = build(given, Window(span.key, span.start, span.end)).collect()
        return check_features(frame, spec.features, spec.label)

    def predicted_from(self, rows: pl.DataFrame, commit: str) -> tuple[pl.DataFrame, list[str]]:
        subject = self.place.spec.features.subject
        assert subject is not None
        made = make_feature_rows(self.place.at(commit), subject, rows)
        return made.rows, list(made.notes)

    def compared(self, frame: pl.DataFrame) -> pl.DataFrame:
        """All but the label, which a new row has none of, in the key's order."""
        return frame.drop(self.place.spec.label.column).sort(self.place.spec.features.key)


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Flights:
    root = tmp_path_factory.mktemp("flights")
    lay_out(root, arrived=WEEKS)
    settings = read_settings({"ML_ASSETS_HOME": str(root / "s"), "ML_ASSETS_SOURCES": str(root)})
    place = open_pipeline("flight_delays", settings)
    place.scratch.mkdir(parents=True)
    spans = windows(place.spec.partitions, datetime.now(UTC))[:WEEKS]
    tables: dict[str, dict[str | None, pl.DataFrame]] = {}
    for name, source in place.spec.sources.items():
        parts = spans if source.partitioned else (None,)
        tables[name] = {
            part.key if part else None: read_source(
                name, source, root, settings.sql_url, part
            ).frame
            for part in parts
        }
    return Flights(place, tuple(spans), tables)


def test_a_week_that_has_not_landed_gets_the_features_it_would_get(flights: Flights) -> None:
    commit = flights.publish({("flights", flights.newest)})
    rows, notes = flights.predicted_from(flights.tables["flights"][flights.newest], commit)
    expected = flights.features_of_the_week()
    assert len(rows) > 5000
    assert notes == []
    assert_frame_equal(flights.compared(rows), flights.compared(expected), rel_tol=1e-9)


def test_one_flight_among_those_that_landed_gets_its_own_row(flights: Flights) -> None:
    commit = flights.publish(set())
    one = flights.tables["flights"][flights.newest].sort("sched_dep_time")[4000:4001]
    rows, _ = flights.predicted_from(one, commit)
    key = flights.place.spec.features.key
    expected = flights.features_of_the_week().join(one, on=key, how="semi")
    assert len(rows) == 1
    assert_frame_equal(flights.compared(rows), flights.compared(expected), rel_tol=1e-9)


def test_without_the_arrivals_of_the_week_it_goes_on_and_says_so(flights: Flights) -> None:
    gone = {("flights", flights.newest), ("arrivals", flights.newest)}
    commit = flights.publish(gone)
    rows, notes = flights.predicted_from(flights.tables["flights"][flights.newest], commit)
    assert len(rows) > 5000
    assert notes == [
        f"flight_delays/validated_table/arrivals [{flights.newest}] is not published yet:"
        " features are made without it"
    ]


def test_a_gap_in_what_is_looked_back_at_is_refused(flights: Flights) -> None:
    commit = flights.publish({("arrivals", flights.spans[-2].key)})
    with pytest.raises(WindowError, match=r"arrivals .* is not published") as refused:
        flights.predicted_from(flights.tables["flights"][flights.newest], commit)
    assert "ml-assets run flight_delays --through validated_table" in str(refused.value)


# --- the feature function itself ------------------------------------------------------------------


def test_every_flight_of_the_week_has_one_row(flights: Flights) -> None:
    spec, span = flights.place.spec, flights.spans[-1]
    rows = flights.features_of_the_week()
    scheduled = pl.col("sched_dep_time").is_between(span.start, span.end, "left")
    assert len(rows) == len(flights.tables["flights"][span.key].filter(scheduled)) > 5000
    assert 0.05 < rows.select(pl.col("late").mean()).item() < 0.6
    shares = {name: rows[name].null_count() / len(rows) for name in spec.features.numeric}
    assert max(shares.values()) < 0.95, shares


def changed_from(moment: datetime, flights: Flights) -> Flights:
    """What became known at a moment or later, said otherwise."""
    late, observed = pl.col("known_at") >= moment, pl.col("observed_at") >= moment
    other = {
        "arrivals": {
            "arr_delay": pl.when(late).then(300).otherwise(pl.col("arr_delay")),
            "status": pl.when(late).then(pl.lit("landed")).otherwise(pl.col("status")),
        },
        "weather": {"wind_speed": pl.when(observed).then(99.0).otherwise(pl.col("wind_speed"))},
    }
    tables = {
        source: {part: frame.with_columns(**other.get(source, {})) for part, frame in parts.items()}
        for source, parts in flights.tables.items()
    }
    return replace(flights, tables=tables)


def test_nothing_known_at_or_after_a_decision_touches_its_row(flights: Flights) -> None:
    spec, moment = flights.place.spec, flights.spans[-1].start + timedelta(days=3, hours=12)
    features = [*spec.features.numeric, *spec.features.categorical]
    before = pl.col("decision_at") <= moment
    was, now = flights.features_of_the_week(), changed_from(moment, flights).features_of_the_week()
    decided = was.filter(before).select(features)
    assert len(decided) > 1000
    assert decided.equals(now.filter(before).select(features))
    assert not was.filter(~before).select(features).equals(now.filter(~before).select(features))


# --- parity: rows replayed at the moment of their decision ---------------------------------------


def with_function(flights: Flights, folder: Path, old: str, new: str) -> Pipeline:
    """The pipeline with one line of its feature function changed."""
    shutil.copytree(FOLDER, folder)
    function = folder / "features.py"
    text = function.read_text()
    assert text.count(old) == 1
    function.write_text(text.replace(old, new))
    return replace(flights.place, folder=folder)


def test_flights_replayed_at_their_moment_are_the_rows_of_the_batch_bit_for_bit(
    flights: Flights,
) -> None:
    commit, batch = flights.publish(set()), flights.features_of_the_week()
    for seed in range(5):
        found = replay(flights.place.at(commit), flights.newest, batch.lazy(), Random(seed))
        assert not found.difference
        assert 1 <= found.rows <= MOST_ROWS


@pytest.mark.parametrize(
    ("old", "new", "feature"),
    [
        (
            'weather.with_columns((nw.col("observed_at") + WEATHER_LAG).alias("known_at"))',
            'weather.with_columns((nw.col("observed_at") - WEATHER_LAG * 8).alias("known_at"))',
            "temp",
        ),
        (
            "    rows = _plane(rows, ",
            '    rows = rows.with_columns(distance=nw.col("distance") * arrivals["delay"].mean())\n'
            "    rows = _plane(rows, ",
            "distance",
        ),
    ],
    ids=["weather of four hours later", "a mean over all that came"],
)
def test_a_function_that_looks_ahead_differs_from_its_replay(
    flights: Flights, tmp_path: Path, old: str, new: str, feature: str
) -> None:
    place = with_function(flights, tmp_path / "pipeline", old, new)
    commit = flights.publish(set())
    batch = replace(flights, place=place).features_of_the_week()
    found = [
        replay(place.at(commit), flights.newest, batch.lazy(), Random(n)).difference
        for n in range(3)
    ]
    assert any(feature in said for said in found), found


def test_where_no_subject_is_named_the_rows_asked_for_are_not_cut_away(flights: Flights) -> None:
    """The arrivals say how the flights ended, so they have their key; one of them is kept."""
    features = flights.place.spec.features.model_copy(update={"subject": None})
    spec = flights.place.spec.model_copy(update={"features": features})
    place, commit = replace(flights.place, spec=spec), flights.publish(set())
    batch = flights.features_of_the_week()
    assert not replay(place.at(commit), flights.newest, batch.lazy(), Random(1)).difference


def test_the_order_of_zeros_nulls_and_lost_rows_is_told_apart() -> None:
    spec = open_pipeline("flight_delays", read_settings()).spec.features
    columns = {"carrier": ["AA"] * 2, "flight": [1, 2], "origin": ["JFK"] * 2}
    at = [datetime(2013, 1, 1, tzinfo=UTC)] * 2
    named = dict.fromkeys((*spec.numeric, *spec.categorical), [None] * 2)
    row = pl.DataFrame({**named, **columns, "sched_dep_time": at, "decision_at": at})
    row = row.with_columns(pl.col(spec.numeric).cast(pl.Float64).fill_null(0.0))
    row = row.with_columns(pl.col(spec.categorical).cast(pl.String))
    assert difference(row, row[::-1], spec) == ""
    assert "'temp'" in difference(row, row.with_columns(temp=pl.lit(-0.0)), spec)
    assert "'temp'" in difference(row, row.with_columns(temp=pl.lit(None, pl.Float64)), spec)
    assert "'hour'" in difference(row, row.with_columns(hour=pl.lit("7")), spec)
    assert "1 is not there, «(AA, 2, JFK, 2013-01-01" in difference(row, row[:1], spec)
