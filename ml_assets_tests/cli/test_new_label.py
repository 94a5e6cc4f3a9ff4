"""ml-assets new --from: what it makes of a label, and of files whose columns differ."""

from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.spec.load import load_spec
from ml_assets.spec.window import Window
from ml_assets_tests.conftest import Cli


def test_a_text_label_has_classes(room: Path, houses: Path, cli: Cli) -> None:
    pl.read_csv(houses).rename({"kind": "rate"}).write_csv(houses)
    cli("new", "kinds", "--from", str(houses), "--label", "rate", "--task", "multiclass")
    assert load_spec(room / "kinds").label.classes == ("flat", "house")


@pytest.mark.parametrize(
    ("often", "seldom", "true", "why"),
    [
        ("Yes", "No", "Yes", ""),
        ("n", "y", "y", ""),
        ("no", "churned", "churned", ""),
        ("flat", "house", "house", ", the rarer one"),
    ],
)
def test_a_label_of_two_texts_is_true_or_false(
    room: Path, houses: Path, cli: Cli, often: str, seldom: str, true: str, why: str
) -> None:
    words = pl.col("kind").replace({"flat": often, "house": seldom})
    first = pl.when(pl.col("plot") != "p1").then(words).alias("kind")
    pl.read_csv(houses).with_columns(first).write_csv(houses)
    said = cli("new", "kinds", "--from", str(houses), "--label", "kind").out
    assert f"features.py makes true of {true!r}{why}, and false of" in said
    spec = load_spec(room / "kinds")
    assert (spec.label.task, spec.sources["rows"].columns["kind"]) == ("binary", "string")
    build = load_function(room / "kinds", "features.py:build", "kinds")
    rows = pl.LazyFrame({"kind": [often, seldom, None]}, schema={"kind": pl.String})
    made = build({"rows": rows}, Window(None, None, None)).collect()["kind"]
    assert made.to_list() == [often == true, seldom == true, None]
    cli("check", "kinds")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("id,rel_hum,y", "b.csv has a column 'rel_hum' and no 'hum', which a.csv has: it looks"),
        ("id,y,hum", "of a.csv in another order: 'y' stands where a.csv has 'hum'"),
        ("id,y", "b.csv has other columns than a.csv: it lacks 'hum' of a.csv. All files"),
        ("id,t,u,y", "it lacks 'hum' of a.csv and adds 't', 'u'. All files of a table have"),
    ],
)
def test_files_of_other_columns_are_told_by_name(
    room: Path, tmp_path: Path, cli: Cli, header: str, said: str
) -> None:
    (tmp_path / "in").mkdir()
    for name, head in (("a", "id,hum,y"), ("b", header)):
        rows = [",".join([str(n)] * len(head.split(","))) for n in range(9)]
        (tmp_path / "in" / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    assert said in cli("new", "air", "--from", str(tmp_path / "in"), "--label", "y", code=1).err
    assert not room.exists()


def test_a_table_of_one_row_is_told_how_many_are_needed(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1.5,2.5\n")
    said = cli("new", "rows", "--from", str(tmp_path / "rows.csv"), "--label", "b", code=1).err
    assert "The table has 1 row: at least 3 are needed" in said
    assert not room.exists()
