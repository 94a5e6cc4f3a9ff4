"""Tables: equal content is equal bytes, whatever the order it came in."""

from pathlib import Path

import polars as pl

from ml_assets.store.table_files import column_schema, missing_shares, preview_markdown, write_table


def test_equal_content_is_equal_bytes(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": range(5000), "v": [i * 0.1 for i in range(5000)]})
    write_table(frame, tmp_path / "a", ["k"])
    write_table(frame.sample(fraction=1, shuffle=True, seed=1), tmp_path / "b", ["k"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_rows_with_one_key_have_one_order(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": [1, 1, None, None], "v": ["b", "a", "d", "c"]})
    write_table(frame, tmp_path / "a", ["k"])
    write_table(frame.reverse(), tmp_path / "b", ["k"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_preview_shows_rows_and_says_what_it_leaves_out() -> None:
    frame = pl.DataFrame({f"c{i}": [f"a|{i}", None] for i in range(4)})
    text = preview_markdown(frame, rows=1, columns=2)
    assert text.splitlines()[2] == r"| a\|0 | a\|1 |"
    assert "2 more columns: c2, c3" in text
    assert column_schema(frame) == {f"c{i}": "String" for i in range(4)}


def test_nulls_and_nans_are_missing_and_whole_columns_are_not_named() -> None:
    frame = pl.DataFrame({"a": [1.0, float("nan"), None, 2.0], "b": ["x", None, "", "y"], "c": 4})
    assert missing_shares(frame) == {"a": 0.5, "b": 0.25}
    assert missing_shares(frame.clear()) == {}
