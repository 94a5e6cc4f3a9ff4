"""Pictures of tables, contracts and features: true to the records of their partitions."""

from ml_assets.reports.data_pictures import contract_pictures, feature_pictures, table_pictures
from ml_assets.reports.picture import album
from ml_assets_tests.reports.drawn import files, record, titles, words


def test_a_year_of_partitions_is_drawn_from_its_records():
    year = [
        record(
            f"2013-{number:03d}",
            rows=1000 + number,
            quarantined=number % 3,
            warned=number % 5,
            missing={f"column_{c:02d}": number / 1000 for c in range(20)},
            label_rate={"label_rate": 0.2, "unlabelled_share": 0.01},
        )
        for number in range(104)
    ]
    raw, contract, features = (
        draw(year) for draw in (table_pictures, contract_pictures, feature_pictures)
    )
    assert titles(raw) == ["Rows", "Missing values"]
    assert titles(contract)[:2] == ["Rows against the contract", "Rows that broke the contract"]
    assert titles(features)[:2] == ["Label rate", "Rows without a label"]
    for pictures in (raw, contract, features):
        for svg in files(pictures):
            words(svg)
        assert len(album(pictures)) < 60_000
    assert "2013-000" in words(files(raw)[0]) and "2013-103" in words(files(raw)[0])
    kept = sum(number % 3 for number in range(104))
    assert f"{kept} are in quarantine" in contract[0].words
    assert "10 % (≤ 10 %)" in words(files(raw)[1])
    assert "The first 8 of 20 columns" in raw[1].words


def test_a_table_that_is_read_whole_has_bars_in_place_of_a_history():
    whole = [record(None, missing={"seats": 0.25}, class_shares={"a": 0.75, "b": 0.25}, warned=3)]
    assert titles(table_pictures(whole)) == ["Missing values"]
    assert "25.0" in words(files(table_pictures(whole))[0])
    assert "75.0" in words(files(feature_pictures(whole))[0])
    assert "97" in words(files(contract_pictures(whole))[0])


def test_the_reasons_of_the_quarantine_are_drawn_over_its_partitions():
    weeks = [
        record(
            f"w{n}",
            quarantined=n + 1,
            reasons={"gusts": n + 1} | ({"late": 2000} if n == 2 else {}),
        )
        for n in range(3)
    ]
    (picture,) = [one for one in contract_pictures(weeks) if "quarantine" in one.title]
    told = words(files([picture])[0])
    assert told.index("late") < told.index("gusts"), "those with the most rows first"
    assert "2,000 (Σ 2,000)" in told and "3 (Σ 6)" in told
    assert "w0" in told and "w2" in told
    whole = [record(None, quarantined=12, reasons={f"check_{n}": n for n in range(1, 13)})]
    (picture,) = [one for one in contract_pictures(whole) if "quarantine" in one.title]
    assert "check_12" in words(files([picture])[0])
    assert "The first 8 of 12 reasons" in picture.words
    assert "Why rows" not in " ".join(titles(contract_pictures([record("w1"), record("w2")])))


def test_records_without_statistics_still_have_their_rows():
    assert titles(table_pictures([record("w1"), record("w2")])) == ["Rows"]
    assert titles(feature_pictures([record("w1"), record("w2")])) == ["Rows"]
    assert table_pictures([]) == []
