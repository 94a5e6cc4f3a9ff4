"""The partitions that files are of, by their names."""

import pytest

from ml_assets.scaffold.dated_names import dated, missing


@pytest.mark.parametrize(
    ("names", "path", "cadence", "first"),
    [
        (["a_2024-01.csv", "a_2024-02.csv"], "a_{partition:%Y-%m}.csv", "monthly", "2024-01-01"),
        (["202401.csv", "202402.csv"], "{partition:%Y%m}.csv", "monthly", "2024-01-01"),
        (["2024/01/a.csv", "2024/02/a.csv"], "{partition:%Y/%m}/a.csv", "monthly", "2024-01-01"),
        (["2024-01-01.csv", "2024-02-01.csv"], "{partition}.csv", "monthly", "2024-01-01"),
        (["2024-01-01.csv", "2024-01-02.csv"], "{partition}.csv", "daily", "2024-01-01"),
        (["2024-01-01.csv", "2024-01-15.csv"], "{partition}.csv", "weekly", "2024-01-01"),
        (["20240101_00.csv", "20240101_01.csv"], "{partition:%Y%m%d_%H}.csv", "hourly", None),
        (
            ["2024-01_north.csv", "2024-01_south.csv", "2024-02_north.csv"],
            "{partition:%Y-%m}_*.csv",
            "monthly",
            "2024-01-01",
        ),
    ],
)
def test_cadence_and_form_are_found(
    names: list[str], path: str, cadence: str, first: str | None
) -> None:
    found = dated(names)
    assert found is not None
    assert (found.path, found.cadence) == (path, cadence)
    assert found.keys[0] == (first or "2024-01-01-00:00")


@pytest.mark.parametrize(
    "names",
    [
        ["north.csv", "south.csv"],
        ["a_2024-01.csv", "notes.csv"],
        ["2024-13.csv", "2024-14.csv"],
        ["9999-01.csv", "9999-02.csv"],
        ["2024-01/x.csv", "2024-02.csv"],
        ["2024-01.csv"],
    ],
)
def test_names_without_a_date_that_all_have_are_no_partitions(names: list[str]) -> None:
    assert dated(names) is None


def test_weeks_begin_on_the_day_of_their_files() -> None:
    for first, offset in (("2024-01-07", 0), ("2024-01-08", 1)):  # a Sunday, a Monday
        found = dated([f"{first}.csv", f"2024-01-{int(first[-2:]) + 7}.csv"])
        assert found is not None and found.day_offset == offset


def test_what_lies_between_and_is_not_there_is_named() -> None:
    found = dated(["2023-11.csv", "2024-02.csv"])
    assert found is not None and missing(found) == ("2023-12-01", "2024-01-01")
    whole = dated(["2023-11.csv", "2023-12.csv"])
    assert whole is not None and missing(whole) == ()
