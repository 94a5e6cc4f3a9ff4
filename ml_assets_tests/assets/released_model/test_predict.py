"""Predictions of the release are those that it was judged by, or one error lists what is wrong."""

import io
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ml_assets.actions.read_table import read_table
from ml_assets.assets.released_model import predict as predict_module
from ml_assets.assets.released_model.predict import (
    Predictor,
    numbers_outside,
    open_release,
    without_history,
)
from ml_assets.assets.released_model.rows_to_predict import parse_rows
from ml_assets.errors import (
    NothingReleased,
    RowsRefused,
    SourceError,
    SpecError,
    StorageError,
    WindowError,
)
from ml_assets.spec.label import LabelSpec
from ml_assets.spec.training_program import ModelManifest, NumericColumn, Preprocessing, ScoreResult
from ml_assets.store.table_survey import survey
from ml_assets_tests.fresh import said_by
from ml_assets_tests.worlds import deliveries, irises
from ml_assets_tests.worlds.world import World, edit

ORDER = {"order": 99_999, "depot": "north", "load": 80.0, "ordered_at": "2024-03-22T10:00:00Z"}
FLOWER = {
    "flower": 1,
    "sepal_length": 5.1,
    "sepal_width": 3.5,
    "petal_length": 1.4,
    "petal_width": 0.2,
    "measured_at": "1936-09-01T00:00:00Z",
}


@pytest.fixture(scope="module")
def orders(released: World) -> Predictor:
    return open_release("deliveries", released.settings)


@pytest.fixture(scope="module")
def flowers(released: World) -> Predictor:
    return open_release("irises", released.settings)


def judged(world: World, pipeline: str) -> tuple[pl.DataFrame, np.ndarray]:
    """The holdout's rows, and the probabilities that the stored evaluation is about."""
    rows = read_table(f"{pipeline}/training_set", settings=world.settings)
    holdout = rows.filter(pl.col("split") == "holdout").collect()
    sessions = Path(world.settings.objects) / "sessions"
    (result,) = sessions.glob(f"{pipeline}-score-*/attempts/*/result.json")
    scored = ScoreResult.model_validate_json(result.read_bytes())
    return holdout, np.load(scored.predictions.path)[: len(holdout)]  # behind it: shuffled rows


def landed(world: World, weeks: list[str]) -> pl.DataFrame:
    """Orders as they landed, before any of this project's code read them."""
    return pl.concat(pl.read_csv(world.sources / "orders" / f"{week}.csv") for week in weeks)


def test_a_time_that_came_twice_is_told_with_the_hour_that_was_taken(orders: Predictor) -> None:
    source = orders.files
    assert source is not None
    local = source.model_copy(update={"timezone": "America/Asuncion"})
    row = {**ORDER, "ordered_at": "2024-03-23 23:30"}
    text = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"
    found = orders.predictions(parse_rows(text.encode(), "orders.csv", local))
    assert found.frame.height == 1
    assert "1 time of 'ordered_at' comes twice in America/Asuncion" in found.notes[0]


def refusal(predictor: Predictor, *rows: object) -> str:
    lines = "\n".join(json.dumps(row) for row in rows)
    with pytest.raises(RowsRefused) as refused:
        predictor.predictions(parse_rows(lines.encode(), "rows.jsonl"))
    return str(refused.value)


# --- parity with the stored evaluation ------------------------------------------------------------


def test_rows_as_they_land_get_the_probabilities_of_the_evaluation(
    released: World, orders: Predictor
) -> None:
    holdout, stored = judged(released, "deliveries")
    weeks = sorted(path.stem for path in (released.sources / "orders").glob("*.csv"))
    raw = landed(released, weeks).filter(pl.col("order").is_in(holdout["order"].implode()))
    assert len(raw) == len(holdout) == 2 * deliveries.ORDERS
    found = orders.predictions(parse_rows(raw.write_csv().encode(), "orders.csv"))
    assert found.notes == ()
    expected = holdout.select("order", stored=pl.Series(stored[:, 0]))
    both = found.frame.join(expected, on="order", how="left", maintain_order="left")
    assert both["order"].to_list() == raw["order"].to_list()
    assert np.abs(both["probability"] - both["stored"]).max() <= 1e-6
    assert both["probability"].std() > 0.05


def test_feature_rows_get_them_too_of_every_class(released: World, flowers: Predictor) -> None:
    holdout, stored = judged(released, "irises")
    found = flowers.predict(holdout.drop("split"))
    classes = ["setosa", "versicolor", "virginica"]
    there = found.select(f"probability_{name}" for name in classes).to_numpy()
    assert np.abs(there - stored).max() <= 1e-6
    assert found["prediction"].to_list() == [classes[n] for n in stored.argmax(axis=1)]
    assert (found["prediction"] == holdout["species"]).mean() > 0.8


def test_the_documented_call_works_in_a_fresh_python(released: World, tmp_path: Path) -> None:
    text = predict_module.__doc__ or ""
    call = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    frame = tmp_path / "rows.json"
    frame.write_text(json.dumps([FLOWER]))
    program = "\n".join(
        [
            "import polars as pl",
            f"frame = pl.read_json({str(frame)!r}).with_columns(",
            "    pl.col('measured_at').str.to_datetime(time_zone='UTC'))",
            *call[:-1],
            f"print({call[-1].replace('flight_delays', 'irises')}.write_csv(), end='')",
        ]
    )
    said = said_by(program, env=released.environment)
    assert pl.read_csv(io.StringIO(said))["prediction"].to_list() == ["setosa"]


# --- every mistake at once ------------------------------------------------------------------------


def test_every_mistake_is_listed_at_once(flowers: Predictor) -> None:
    wrong = {**FLOWER, "flower": "x", "petal_length": "long", "colour": "blue"}
    del wrong["sepal_width"]
    said = refusal(flowers, wrong)
    assert said.startswith("rows.jsonl, read as rows of the source 'flowers'")
    assert said.count("\n  - ") == 4
    assert "column 'sepal_width' is declared but not there" in said
    assert "column «'colour'» is there but not declared" in said
    assert "row 1, column 'flower': «'x'» is not int64" in said
    assert "row 1, column 'petal_length': «'long'» is not float64" in said


def test_feature_rows_are_told_apart_and_their_mistakes_listed(orders: Predictor) -> None:
    said = refusal(orders, {"load": 3, "docks": "four", "depot": "north", "wheels": 4})
    assert "read as feature rows" in said
    assert "column 'recent_late' is declared but not there" in said
    assert "column «'wheels'» is there but not declared" in said
    assert "column 'docks': «'four'» is not float64" in said


def test_a_key_twice_or_without_a_value_is_refused_with_its_rows(orders: Predictor) -> None:
    assert "is there more than once: row 1, row 2" in refusal(orders, ORDER, ORDER)
    assert "row 2: the key (order) has no value" in refusal(orders, ORDER, {**ORDER, "order": None})


def test_rows_nobody_has_seen_are_predicted_and_one_that_breaks_the_contract_is_null_and_noted(
    orders: Predictor,
) -> None:
    """From the tables as they stand."""
    broken = {**ORDER, "order": 99_998, "load": 5000.0}
    heavy, light = {**ORDER, "load": 95.0}, {**ORDER, "order": 99_997, "load": 5.0}
    lines = "\n".join(json.dumps(row) for row in (broken, heavy, light))
    found = orders.predictions(parse_rows(lines.encode(), "rows.jsonl"))
    assert found.frame["order"].to_list() == [99_998, 99_999, 99_997]
    assert [value is None for value in found.frame["probability"]] == [True, False, False]
    assert found.frame["probability"][1] > found.frame["probability"][2] + 0.1
    note, *others = found.notes
    assert all(other.startswith("outside the range") for other in others)
    assert note.startswith("row 1 is not predicted because its contract refuses it: between__load")
    assert "no row meets its contract" in refusal(orders, broken)


# --- what only the label needs, and what a row needs --------------------------------------------


def by_a_label_made_of_species(
    flowers: Predictor, folder: Path, *, after_event: tuple[str, ...]
) -> Predictor:
    """The same release of a pipeline whose function makes the label of a column of the flowers."""
    spec = flowers.pipeline.spec
    shutil.copytree(flowers.pipeline.folder, folder)
    made = 'tables["flowers"].with_columns(late=pl.col("species") == "virginica")'
    edit(folder / "features.py", ('tables["flowers"]', made))
    named = '"expect_column_values_to_not_be_null", "kwargs": {"column": "'
    edit(folder / "flowers.json", (f"{named}flower", f"{named}species"))
    changed = {
        "label": LabelSpec(column="late", task="binary"),
        "sources": {
            "flowers": spec.sources["flowers"].model_copy(update={"after_event": after_event})
        },
    }
    pipeline = replace(flowers.pipeline, folder=folder, spec=spec.model_copy(update=changed))
    return replace(flowers, pipeline=pipeline)


def test_a_row_may_lack_what_only_the_label_is_made_of(flowers: Predictor, tmp_path: Path) -> None:
    later = by_a_label_made_of_species(flowers, tmp_path / "later", after_event=("species",))
    for row in (FLOWER, {**FLOWER, "species": None}, {**FLOWER, "species": "rose"}):
        found = later.predictions(parse_rows(json.dumps(row).encode(), "row"))
        assert found.frame["probability_setosa"][0] > 0.9


def test_an_error_says_where_such_a_column_is_declared(flowers: Predictor, tmp_path: Path) -> None:
    now = by_a_label_made_of_species(flowers, tmp_path / "now", after_event=())
    declare = "list the column under after_event of the source 'flowers': rows may then lack it."
    lacking = {name: FLOWER[name] for name in ("flower", "measured_at", "petal_width")}
    assert f"If only the label needs 'species', {declare}" in refusal(now, lacking)
    assert f"Where a check is about the label, {declare}" in refusal(
        now, {**FLOWER, "species": None}
    )


def test_a_missing_key_or_time_is_told_with_what_it_is_for(orders: Predictor) -> None:
    said = refusal(orders, {**ORDER, "order": None, "ordered_at": None, "weight": 1})
    assert "tells the rows apart" not in said
    said = refusal(orders, {"depot": "north", "load": 80.0})
    assert "'order' tells the rows apart (features.key): give each row its own value." in said
    assert "'ordered_at' says which partition a row is in (features.subject.time)." in said


def test_rows_that_only_lack_their_key_are_told_so_where_a_value_is_wrong(
    flowers: Predictor,
) -> None:
    """Their columns are those of the model, so they are read as feature rows."""
    said = refusal(
        flowers, {n: v for n, v in FLOWER.items() if n != "flower"} | {"petal_length": "long"}
    )
    assert "column 'petal_length': «'long'» is not float64" in said
    assert "As rows of the source 'flowers' (features.subject) they lack 'flower':" in said
    assert "'flower' tells the rows apart (features.key): give each row its own value." in said


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_feature_that_its_source_declares_as_true_or_false_may_be_given_as_such(
    flowers: Predictor, kind: str
) -> None:
    source = flowers.pipeline.spec.sources["flowers"]
    columns = {**source.columns, "petal_width": "boolean"}
    changed = {"sources": {"flowers": source.model_copy(update={"columns": columns})}}
    spec = flowers.pipeline.spec.model_copy(update=changed)
    declared = replace(flowers, pipeline=replace(flowers.pipeline, spec=spec))
    measures = [name for name in FLOWER if name.endswith(("length", "width"))]
    given = pl.DataFrame({n: [FLOWER[n]] * 2 for n in measures})

    def predicted(widths: list[object]) -> pl.DataFrame:
        rows = given.with_columns(pl.Series("petal_width", widths, strict=True))
        wrote = io.BytesIO()
        {"csv": rows.write_csv, "json": rows.write_ndjson, "parquet": rows.write_parquet}[kind](
            wrote
        )
        return declared.predictions(parse_rows(wrote.getvalue(), "rows")).frame

    assert predicted([True, False]).equals(predicted([1.0, 0.0]))


def test_rows_of_a_source_are_refused_where_no_subject_is_named(flowers: Predictor) -> None:
    spec = flowers.pipeline.spec
    features = spec.features.model_copy(update={"subject": None})
    alone = replace(flowers.pipeline, spec=spec.model_copy(update={"features": features}))
    said = refusal(replace(flowers, pipeline=alone), {**FLOWER, "stem": 1})
    assert "irises takes no rows of a source, because features.subject is not set" in said
    assert "as in subject: {source: flowers}." in said


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"order,depot,load,ordered_at\n", "has columns but no rows"),
        (b'{"order": 1}\nnot json\n', "line 2 is not JSON"),
        (b'{"order": 1}\n{"depot": "\\ud800"}\n', "line 2 is not JSON .*half a character"),
        (b'{"depot": "\\ude00"}', "half a character"),
        (b"[1, 2]", "row 1 is a int, where an object is expected"),
        (b"PAR1 that is none", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_content_that_holds_no_rows_is_one_clear_error(content: bytes, reason: str) -> None:
    with pytest.raises(RowsRefused, match=reason):
        parse_rows(content, "rows")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_a_line_feed_ends_a_line_of_json(end: str) -> None:
    """JSON allows the others in a text as they are."""
    depots = ["a\u2028b", "a\x85b", "a\u2029b"]
    lines = [json.dumps({"depot": depot}, ensure_ascii=False) for depot in depots]
    found = parse_rows(end.join(lines).encode(), "rows.jsonl")
    assert [*found.cells["depot"]] == depots
    with pytest.raises(RowsRefused, match="line 4 is not JSON"):
        parse_rows(end.join([*lines, "not json"]).encode(), "rows.jsonl")


def parquet(column: pa.Array) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"depot": column}), buffer, compression="zstd", store_schema=False)
    return buffer.getvalue()


def test_parquet_is_read_within_the_bounds_of_a_source() -> None:
    many = pa.array([0] * 300_000, pa.int32())
    word = pa.DictionaryArray.from_arrays(many, pa.array(["x" * 10_000]))
    with pytest.raises(RowsRefused, match="text that unpacks to 3,000,000,000"):
        parse_rows(parquet(word), "rows")
    for column in (pa.array([b"a"]), pa.array([["a"]])):
        with pytest.raises(RowsRefused, match="'depot' holds"):
            parse_rows(parquet(column), "rows")
    at = datetime(2024, 1, 1, tzinfo=UTC)
    frame = pl.DataFrame({"depot": ["x", None], "load": [1.5, None], "at": [at, None]})
    frame.write_parquet(buffer := io.BytesIO())
    cells = parse_rows(buffer.getvalue(), "rows").cells
    assert isinstance(cells, pl.DataFrame)
    assert cells.equals(frame)


def test_a_time_in_no_partition_says_which_there_are(orders: Predictor) -> None:
    late = json.dumps({**ORDER, "ordered_at": "2024-04-01T10:00:00Z"})
    with pytest.raises(WindowError, match=r"they go from 2024-01-01 .* to 2024-03-25"):
        orders.predictions(parse_rows(late.encode(), "row"))


def test_a_row_before_there_is_enough_history_is_refused(orders: Predictor) -> None:
    early = json.dumps({**ORDER, "ordered_at": "2024-01-02T10:00:00Z"})
    with pytest.raises(WindowError, match="looks back 1 partition, and only 0 lie before"):
        orders.predictions(parse_rows(early.encode(), "row"))


# --- the release ----------------------------------------------------------------------------------


def test_nothing_released_says_what_to_run(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    with pytest.raises(NothingReleased, match="ml-assets run irises"):
        open_release("irises", world.settings)
    with pytest.raises(SpecError, match="There is no pipeline 'tulips'"):
        open_release("tulips", world.settings)


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
def test_a_damaged_model_is_not_used(released: World, flowers: Predictor, name: str) -> None:
    file = Path(flowers.release.model.uri) / name
    whole, mode = file.read_bytes(), file.stat().st_mode
    file.chmod(0o644)
    try:
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(StorageError, match=r"It is not used\. Make it again"):
            open_release("irises", released.settings)
    finally:
        file.write_bytes(whole)
        file.chmod(mode)
    assert open_release("irises", released.settings).release == flowers.release


@pytest.mark.parametrize(
    "text", ['{"load": 3,\n "load": 4}', '{"load": 3}\n{"load": 3, "load": 4}']
)
def test_a_row_with_a_key_twice_is_refused(text: str) -> None:
    with pytest.raises((RowsRefused, SourceError), match="'load' is there twice"):
        parse_rows(text.encode(), "rows.json")


def test_numbers_outside_the_range_of_the_training_set_are_counted_by_column() -> None:
    seen = survey(pl.DataFrame({"temp": [40.0, 400.0], "load": [1, 9], "depot": ["a", "b"]}), ())
    rows = pl.DataFrame({"temp": [5.6, 40.0, None], "load": [1.0, 9.0, 10.0], "depot": ["x"] * 3})
    (said,) = numbers_outside(rows, seen.columns)
    assert said == (
        "outside the range of the training set, so the model has learned nothing about them:"
        " temp of 1 row (5.6, where 40 to 400 were seen),"
        " load of 1 row (10, where 1 to 9 were seen)"
    )
    assert not numbers_outside(rows[1:2], seen.columns)


def test_a_prediction_says_which_numbers_no_training_row_had(flowers: Predictor) -> None:
    huge = {**FLOWER, "flower": 2, "petal_length": 60.0}
    rows = parse_rows(json.dumps([FLOWER, huge]).encode(), "rows.json")
    (said,) = [note for note in flowers.predictions(rows).notes if "outside the range" in note]
    assert said.endswith(": petal_length of 1 row (60, where 1 to 6.9 were seen)"), said


def test_rows_without_any_history_are_counted() -> None:
    names = ("temp", "pm25_lag_1h", "pm25_mean_1d")
    numeric = tuple(NumericColumn(name=name, mean=0.0, std=1.0) for name in names)
    read = Preprocessing(numeric=numeric, null_flags=(), categorical=())
    manifest = ModelManifest.model_construct(preprocessing=read)
    rows = pl.DataFrame(
        {"temp": [1.0, 2.0], "pm25_lag_1h": [None, 3.0], "pm25_mean_1d": [None, None]},
        schema_overrides=dict.fromkeys(names, pl.Float64),
    )
    (said,) = without_history(rows, ["time", "temp"], manifest)
    assert said.startswith("1 row without any history: pm25_lag_1h, pm25_mean_1d are missing")
    assert not without_history(rows[1:], ["time", "temp"], manifest)
    assert not without_history(rows, names, manifest), "feature rows are what they are"
