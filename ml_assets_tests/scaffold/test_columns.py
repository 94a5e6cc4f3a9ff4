"""What columns of text are taken for."""

import polars as pl
import pytest

from ml_assets.assets.raw_snapshot.text_values import TextFormat
from ml_assets.scaffold.columns import epochs, odd_texts, typed_text


@pytest.mark.parametrize(
    ("name", "texts", "dtype"),
    [
        ("load", ["1", "2", "2"], pl.Float64),
        ("load_count", ["1", "2", "2"], pl.Int64),
        ("zipCode", ["100", "200", "200"], pl.Int64),
        ("load", ["1", "2", "3"], pl.Int64),  # no two are the same: a number of the row
        ("load", ["1.5", "2", "2"], pl.Float64),
        ("load", ["1e3", "2", None], pl.Float64),
        ("plate", ["007", "012", "012"], pl.String),
        ("paid", ["true", "FALSE", "true"], pl.Boolean),
        ("day", ["2024-01-31", "2024-02-01", None], pl.Date),
        ("at", ["2024-01-31T10:00:00Z", "2024-02-01T10:00:00+02:00"], pl.Datetime("us", "UTC")),
        ("at", ["2024-01-31 10:00", "2024-02-01 10:30:00"], pl.Datetime("us", "UTC")),
        ("note", ["31/12/2024", "1", "x"], pl.String),
        ("note", [None, None], pl.String),
    ],
)
def test_the_type_is_that_of_the_values(
    name: str, texts: list[str | None], dtype: pl.DataType
) -> None:
    found = typed_text(pl.DataFrame({name: texts}, schema={name: pl.String}), TextFormat("UTC"))
    assert found.frame.schema[name] == dtype


def test_texts_that_mean_no_value_are_those_of_columns_that_hold_something_else() -> None:
    raw = pl.DataFrame({"x": ["1.5", "NA", "2"], "word": ["NA", "a", "?"], "y": ["-", "1", "2"]})
    found = typed_text(raw, TextFormat("UTC"))
    assert found.null_values == ("", "NA", "-")
    assert found.frame["x"].to_list() == [1.5, None, 2.0]
    assert found.frame["word"].to_list() == [None, "a", "?"], "as the source will read it"


@pytest.mark.parametrize(
    ("texts", "means_nothing"),
    [
        (["119.6", "-999.0", "118.2", "-999.0"], True),
        (["119.6", "-999.0", "118.2"], False),  # once: it may be so
        (["-1500", "-999", "-999", "2000"], False),  # it lies among the others
        (["1", "2", "9999", "9999"], True),
        (["-999", "-999"], False),  # there is nothing else
    ],
)
def test_a_number_far_from_all_others_that_instruments_write_means_no_value(
    texts: list[str], means_nothing: bool
) -> None:
    found = typed_text(pl.DataFrame({"level": texts}), TextFormat("UTC"))
    assert (len(found.null_values) == 2) == means_nothing
    assert (found.frame["level"].null_count() == 2) == means_nothing


def test_a_number_that_is_one_in_another_column_stays_one() -> None:
    raw = pl.DataFrame({"a": ["1", "2", "999", "999"], "b": ["998", "999", "999", "1000"]})
    assert typed_text(raw, TextFormat("UTC")).null_values == ("",)


def test_times_without_a_zone_are_named_and_of_the_zone_that_is_said() -> None:
    raw = pl.DataFrame({"at": ["2024-07-01 12:00"], "then": ["2024-07-01T12:00:00Z"]})
    found = typed_text(raw, TextFormat("Europe/Berlin"))
    assert found.zoneless == ("at",)
    assert [value.hour for value in found.frame.row(0)] == [10, 12]


def test_a_column_that_a_few_values_make_text_is_told_with_one_of_them() -> None:
    frame = pl.DataFrame(
        {
            "price": ["1.5", "2", "three"],
            "day": ["2024-02-29", "2024-02-30", "2024-03-01 10:00"],
            "plate": ["007", "012", "013"],
            "word": ["a", "b", "1"],
        }
    )
    assert odd_texts(frame, TextFormat()) == (
        "price is read as text: «three» is not a valid number, and 2 of its 3 values are. If it "
        "means no value, make the folder again with --null three",
        "day is read as text: «2024-02-30» is not a valid day, and 2 of its 3 values are. If it"
        " means no value, make the folder again with --null 2024-02-30",
    )


@pytest.mark.parametrize(
    ("texts", "odd"),
    [
        (["2024-03-01 24:00", "2024-03-02 01:00", "2024-03-03 02:00"], "1 of 3 values"),
        (["2024-W10-1", "2024-W10-2"], "2 of 2 values"),
        (["2024-03-01 10:00 EST", "2024-03-02 10:00 EST"], "2 of 2 values"),
        (["20/02/24 00:00", "21/02/24 00:00"], "2 of 2 values"),
        (["31.12.2023", "2024-01-01"], "1 of 2 values"),
    ],
)
def test_a_column_that_looks_like_times_and_is_not_read_as_one_is_told(
    texts: list[str], odd: str
) -> None:
    (said,) = odd_texts(pl.DataFrame({"at": texts}), TextFormat())
    assert said == (
        f"at looks like times, and is read as text: {odd} cannot be read as times, «{texts[0]}»"
        " for one. Days such as 2024-01-31 or times such as 2024-01-31T12:00:00Z are expected."
    )


@pytest.mark.parametrize("texts", [[], ["A-1-2", "B-2-3"], ["192.168.0.1", "10.0.0.1"], ["x"]])
def test_words_do_not_look_like_times(texts: list[str]) -> None:
    assert odd_texts(pl.DataFrame({"at": texts}, schema={"at": pl.String}), TextFormat()) == ()


@pytest.mark.parametrize(
    ("scale", "unit"),
    [(1, "seconds"), (10**3, "milliseconds"), (10**6, "microseconds"), (10**9, "nanoseconds")],
)
def test_numbers_that_may_be_times_are_told(scale: int, unit: str) -> None:
    times = [(1_704_067_200 + hour * 3600) * scale for hour in range(30)]
    (said,) = epochs(pl.DataFrame({"t": times, "n": range(30)}))
    assert said.startswith(f"t may be times, as {unit} since 1970, and is read as numbers.")


@pytest.mark.parametrize(
    "values", [[1.7e9 + n / 3 for n in range(30)], [17 * 10**8] * 30, [None] * 30, [5, 10**9] * 15]
)
def test_other_numbers_are_not_times(values: list[float | None]) -> None:
    assert epochs(pl.DataFrame({"t": values}, schema={"t": pl.Float64}, strict=False)) == ()
