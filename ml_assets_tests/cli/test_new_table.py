"""ml-assets new --from: any table of one's own is described, or refused with what to do."""

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ml_assets.settings import read_settings
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.load import load_spec
from ml_assets_tests.conftest import Cli


def about(file: Path, label: str = "garden") -> list[str]:
    return ["--from", str(file), "--label", label]


@pytest.mark.daemon
def test_a_table_of_ones_own_is_described(room: Path, houses: Path, cli: Cli) -> None:
    cli("new", "houses", *about(houses))
    spec = load_spec(room / "houses")
    source = spec.sources["rows"]
    assert source.key == ("plot",)
    assert source.columns["built"] == "date"
    assert spec.features.numeric == ("area", "rooms")
    assert spec.features.categorical == ("kind",)
    assert spec.label.task == "binary"
    cli("run", "houses", "--through", "training_set")


def test_days_are_cast_to_the_moment_of_the_decision(room: Path, houses: Path, cli: Cli) -> None:

    cli("new", "houses", *about(houses), "--time", "built")
    assert load_spec(room / "houses").features.decision_at == "decided_at"
    cli("run", "houses", "--through", "feature_set")
    cli("new", "daily", *about(houses), "--time", "built", "--key", "plot,built")
    assert load_spec(room / "daily").sources["rows"].key == ("plot", "built")


def test_a_column_that_is_called_decided_at_is_left_alone(
    room: Path, houses: Path, cli: Cli
) -> None:
    frame = pl.read_csv(houses).rename({"area": "decided_at"})
    frame.write_csv(houses)
    cli("new", "houses", *about(houses))
    features = load_spec(room / "houses").features
    assert features.numeric == ("decided_at", "rooms")
    assert features.decision_at == "decided_at_2"
    cli("run", "houses", "--through", "feature_set")


def test_copies_of_rows_and_the_nearest_key_are_told_with_their_share_and_the_limit(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    file = tmp_path / "parcels.csv"
    rows = [f"p{n},{n % 7},{n % 2}" for n in range(200)]
    file.write_text("\n".join(["parcel,weight,late", *rows, *rows[:4]]))
    said = cli("new", "parcels", *about(file, "late"), code=1).err
    assert "4 rows repeat another one in every column, 2.0% of all: take the copies out." in said
    assert (
        "The nearest is 'parcel': 8 rows share it with another, 3.9% of all, and at most 1% may."
    ) in said
    named = cli("new", "parcels", *about(file, "late"), "--key", "parcel", code=1).err
    assert "In all 8 rows share it with another, 3.9% of all, and at most 1% may." in named


def test_where_a_time_is_the_key_the_column_that_was_nearly_one_is_told(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    file = tmp_path / "parcels.csv"
    rows = [
        f"p{n % 399},2024-01-01T{n // 60:02}:{n % 60:02}:00Z,{n % 7},{n % 2}" for n in range(400)
    ]
    file.write_text("\n".join(["parcel,sent_at,weight,late", *rows]))
    said = cli("new", "parcels", *about(file, "late")).out
    assert "key: sent_at" in said
    assert (
        "note: parcel is nearly a key: 2 rows share it with another. To have it as the key, name it"
        " by --key parcel: the contract then keeps these rows back"
    ) in said
    shutil.rmtree(room / "parcels")
    assert "nearly a key" not in cli("new", "parcels", *about(file, "late"), "--key", "parcel").out


def test_the_name_of_a_column_is_never_broken(room: Path, tmp_path: Path, cli: Cli) -> None:
    names = [f"how long, in m: side {n} of it" for n in range(9)]
    file = tmp_path / "sides.parquet"
    pl.DataFrame(
        {"id": range(20), "y": [True, False] * 10, **{name: range(20) for name in names}}
    ).write_parquet(file)
    cli("new", "sides", *about(file, "y"), "--key", "id")
    assert load_spec(room / "sides").features.numeric == tuple(names)
    text = (room / "sides" / "defs.yaml").read_text()
    assert all(text.count(f"'{name}'") == 2 for name in names)
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.daemon
def test_a_number_to_predict_is_compared_in_shares(room: Path, houses: Path, cli: Cli) -> None:
    cli("new", "rooms", *about(houses, "rooms"))
    spec = load_spec(room / "rooms")
    assert spec.label.task == "regression"
    champion = next(gate for gate in spec.gates if isinstance(gate, AgainstChampion))
    assert (champion.metric, champion.relative) == ("rmse", True)
    cli("run", "rooms", "--through", "training_set")


@pytest.mark.daemon
def test_an_unknown_outcome_is_no_mistake_of_the_table(room: Path, houses: Path, cli: Cli) -> None:
    lines = houses.read_text().splitlines()
    lines[-1] = lines[-1].rsplit(",", 1)[0] + ","  # its garden is not known
    houses.write_text("\n".join(lines) + "\n")
    said = cli("new", "houses", *about(houses)).out
    assert "1 of 60 rows has no label: it is not trained on" in said
    cli("run", "houses", "--through", "training_set")
    assert set(of_label(room / "houses", "garden")) == {"in_set"}


def of_label(folder: Path, label: str) -> dict[str, dict[str, object]]:
    """What the contract of a new pipeline asks of its label, by the end of its type."""
    suite = json.loads((folder / "contracts" / "rows.json").read_text())
    asked = [one for one in suite["expectations"] if one["kwargs"].get("column") == label]
    assert {one["severity"] for one in asked} == {"critical"}
    return {one["type"].partition("_to_")[2].removeprefix("be_"): one["kwargs"] for one in asked}


def test_a_label_that_is_wrong_is_refused_by_the_contract_that_new_writes(
    room: Path, houses: Path, cli: Cli
) -> None:
    for label in ("garden", "kind", "rooms"):
        cli("new", label, *about(houses, label))
    assert of_label(room / "garden", "garden")["in_set"]["value_set"] == [0, 1]
    assert of_label(room / "kind", "kind")["in_set"]["value_set"] == ["flat", "house"]
    rooms = of_label(room / "rooms", "rooms")
    assert rooms.keys() == {"not_be_null", "between"}
    assert rooms["between"]["min_value"] == 0 and rooms["between"]["max_value"] == 8
    spec = load_spec(room / "kind")
    (source,) = spec.sources.values()
    landed = read_settings().sources / str(getattr(source, "path", ""))
    landed.write_text(landed.read_text().replace("house", "castle", 3))
    assert "kind must be one of" in cli("run", "kind", "--through", "validated_table", code=1).out


@pytest.mark.daemon
def test_copies_are_counted_and_learned_from_once(room: Path, houses: Path, cli: Cli) -> None:
    frame = pl.read_csv(houses).with_columns(pl.int_range(pl.len()).alias("lot"))
    again = frame.head(30).with_columns(pl.col("plot") + "b", pl.col("lot") + 1000)
    pl.concat([frame, again]).drop("lot").write_csv(houses)
    copies = "30 of 90 rows are copies of others under another plot: features.py learns from one"
    assert copies in cli("new", "houses", *about(houses)).out
    cli("run", "houses", "--through", "training_set")
    file = room / "houses" / "features.py"
    text = file.read_text()
    begin, end = text.index("        .filter("), text.index("is_first_distinct()")
    file.write_text(text[:begin] + text[end:].partition(")\n        )")[2])
    told = cli("run", "houses", "--through", "training_set", code=1).out
    assert "[fail] no_shared_rows: " in told


def test_rows_that_are_equal_by_chance_are_no_copies(room: Path, tmp_path: Path, cli: Cli) -> None:
    file, rows = tmp_path / "dice.csv", 300
    dice = {"n": range(rows), "eyes": [n * 7 % 6 for n in range(rows)]}
    pl.DataFrame({**dice, "won": [n * 13 % 5 > 2 for n in range(rows)]}).write_csv(file)
    assert "copies" not in cli("new", "dice", *about(file, "won")).out
    assert "is_first_distinct" not in (room / "dice" / "features.py").read_text()


def test_numbers_that_are_kept_as_text_are_told_by_new_and_warned_of_by_check(
    room: Path, houses: Path, cli: Cli
) -> None:
    graded = pl.read_csv(houses).with_columns(
        grade=pl.Series([str(n % 3 + 1) for n in range(60)]),
        zone=pl.Series([f"0{n % 3}" for n in range(60)]),
    )
    table = houses.with_suffix(".parquet")
    graded.write_parquet(table)
    said = cli("new", "houses", *about(table)).out
    assert "categorical: its numbers are text, '1' for one: cast them in features.py" in said
    said = cli("check", "houses").out
    assert (
        "warning: features.categorical has 'grade', and its values in contracts/rows.json" in said
    )
    assert "'zone'" not in said


def test_unknown_outcomes_are_counted(room: Path, houses: Path, cli: Cli) -> None:
    known = pl.when(pl.col("rooms") > 1).then("garden").alias("garden")
    pl.read_csv(houses).with_columns(known).write_csv(houses)
    said = cli("new", "houses", *about(houses)).out
    assert "24 of 60 rows have no label: they are not trained on" in said


def test_the_copy_of_the_table_is_the_source_from_then_on(
    room: Path, houses: Path, cli: Cli
) -> None:
    said = cli("new", "houses", *about(houses)).out
    copied = re.search("source: (.+), below (.+)\n.*copied there", said)
    assert copied and (Path(copied[2]) / copied[1]).read_bytes() == houses.read_bytes()
    parquet = houses.with_suffix(".parquet")
    pl.read_csv(houses).write_parquet(parquet)
    said = cli("new", "homes", *about(parquet)).out
    copied = re.search("table: copied to (.+)\n.*replace that file", said)
    assert copied and pl.read_parquet(copied[1]).height == pl.read_csv(houses).height


def test_what_is_left_out_is_left_out_for_a_reason(room: Path, houses: Path, cli: Cli) -> None:
    frame = pl.read_csv(houses).with_columns(
        price=pl.Series([str(n) if n != 7 else "sold" for n in range(60)]),
        size=pl.Series([str(n % 9) if n else "many" for n in range(60)]),
        nothing=pl.lit(None),
    )
    frame.write_csv(houses)
    said = cli("new", "houses", *about(houses)).out
    assert "left out: 60 different values" in said
    assert "left out: 59 of 60 are numbers, the first other is 'sold'" in said
    assert "categorical: 59 of 60 are numbers, the first other is 'many'" in said
    assert "left out: make numbers of it in features.py" in said
    assert "left out: it is empty" in said
    said = cli("new", "prices", *about(houses, "price"), code=1).err
    assert "or repair this one: 59 of 60 are numbers" in said


def test_the_data_of_another_pipeline_of_the_name_is_never_touched(
    room: Path, houses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    table = houses.with_suffix(".parquet")
    pl.read_csv(houses).write_parquet(table)
    asked = ["new", "homes", *about(table)]
    cli(*asked)
    rows = tmp_path / "state" / "demo" / "homes" / "rows.parquet"
    before = rows.read_bytes()

    other = tmp_path / "others"
    other.mkdir()
    monkeypatch.setenv("ML_ASSETS_PIPELINES", f"{room}:{other}")
    assert "There is a pipeline homes in" in cli(*asked, "--into", str(other), code=1).err
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(other))
    pl.read_csv(houses).head(40).write_parquet(table)
    assert "is there already, with other rows" in cli(*asked, code=1).err
    assert rows.read_bytes() == before
    assert not (other / "homes").exists()
    pl.read_csv(houses).write_parquet(table)
    cli(*asked)  # the same table is no other one


def test_files_of_a_former_pipeline_are_not_mixed_with_the_new_ones(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    for year in (2022, 2024):
        (tmp_path / str(year)).mkdir()
        for month in range(1, 7):
            rows = {"at": [f"{year}-{month:02}-{day:02}" for day in range(1, 29)], "y": range(28)}
            file = tmp_path / str(year) / f"{year}-{month:02}.csv"
            pl.DataFrame(rows).with_columns(x=pl.col("y") * 2.5 + month).write_csv(file)
    cli("new", "air", *about(tmp_path / "2022", "y"))
    shutil.rmtree(room / "air")
    said = cli("new", "air", *about(tmp_path / "2024", "y"), code=1).err
    assert "2022-01.csv is there already, with other rows" in said


def test_columns_that_no_spec_can_hold_are_left_out(room: Path, houses: Path, cli: Cli) -> None:
    table = houses.with_suffix(".parquet")
    odd = [
        pl.Series("lists", [[1, 2]] * 60),
        pl.Series("spans", [timedelta(hours=n) for n in range(60)]),
        pl.Series("bytes", [b"\xff\xfe"] * 60),
    ]
    pl.read_csv(houses).with_columns(odd).write_parquet(table)
    said = cli("new", "houses", *about(table)).out
    for column in odd:
        assert f"the column '{column.name}' holds values of the type {column.dtype}" in said
        refused = cli("new", "odds", *about(table, column.name), code=1).err
        assert f"The column '{column.name}' holds" in refused
    cli("run", "houses", "--through", "validated_table")


def test_odd_columns_of_a_table_are_no_stumbling_block(room: Path, houses: Path, cli: Cli) -> None:
    table = houses.with_suffix(".parquet")
    large = pl.Series("large", range(2**63, 2**63 + 60), dtype=pl.UInt64)
    numbers = [pl.lit(1.5).alias(name) for name in ("__block", "__loss", "size\n(m²)")]
    pl.read_csv(houses).with_columns(large, *numbers).write_parquet(table)
    cli("new", "houses", *about(table))
    columns = load_spec(room / "houses").sources["rows"].columns
    assert (columns["large"], columns["size\n(m²)"]) == ("string", "float64")
    cli("run", "houses", "--through", "feature_set")
    assert "The label 'built' is a date" in cli("new", "dates", *about(houses, "built"), code=1).err
    pl.read_csv(houses).rename({"area": "a" * 300}).write_parquet(table)
    assert "has 300 characters" in cli("new", "long", *about(table), code=1).err


def test_an_index_without_a_name_gets_one(room: Path, houses: Path, cli: Cli) -> None:
    frame = pl.read_csv(houses)
    frame.rename({"plot": "row"}).with_row_index("").write_csv(houses)
    assert "the column without a name is called 'row_2'" in cli("new", "houses", *about(houses)).out
    assert load_spec(room / "houses").sources["rows"].key == ("row_2",)
    cli("run", "houses", "--through", "feature_set")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--label", "price"], "has no column 'price'"),
        (
            ["--label", "garden", "--key", "rooms"],
            "does not tell the rows apart: 12 rows have rooms 0.0; 4 more keys are repeated",
        ),
        (["--label", "garden", "--key", "area"], "empty in 1 of 60 rows"),
        (["--label", "street"], "up to 50 classes"),
        (
            ["--label", "garden", "--time", "rooms"],
            "read as float64: 60 of 60 values cannot be read as times, «0.0» for one",
        ),
        (["--label", "garden", "--key", "garden"], "it cannot be a key"),
        (
            ["--label", "garden", "--key", "rooms,rooms"],
            "The key ['rooms'] does not tell the rows apart",
        ),
        ([], "Add --label COLUMN"),
    ],
)
def test_what_cannot_be_described_is_said(
    room: Path, houses: Path, cli: Cli, arguments: list[str], said: str
) -> None:
    assert said in cli("new", "houses", "--from", str(houses), *arguments, code=1).err
    assert not (room / "houses").exists()


@pytest.mark.parametrize("column", ["*", "^a.*$"])
def test_a_column_whose_name_means_several_is_refused(
    room: Path, houses: Path, cli: Cli, column: str
) -> None:
    houses.write_text(houses.read_text().replace("rooms", column, 1))
    said = cli("new", "houses", *about(houses), code=1).err
    assert f"The columns ['{column}'] have names that are patterns" in said


def test_whole_numbers_are_classes_where_the_task_says_so(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    rows = [{"id": n, "x": n % 7 + 0.5, "digit": n % 10} for n in range(400)]
    pl.DataFrame(rows).write_csv(tmp_path / "digits.csv")
    digits = about(tmp_path / "digits.csv", "digit")
    assert "multiclass on 400 rows" in cli("new", "digits", *digits, "--task", "multiclass").out
    spec = load_spec(room / "digits")
    assert spec.label.classes == tuple("0123456789")
    assert spec.sources["rows"].columns["digit"] == "string"
    file = room / "digits" / "defs.yaml"
    text = file.read_text()
    assert "'9'" in text
    file.write_text(re.sub(r"'(\d)'", r"\1", text))
    assert load_spec(room / "digits").label.classes == spec.label.classes, "numbers are text"
    cli("run", "digits", "--through", "feature_set")
    assert "make the folder again with --task multiclass" in cli("new", "quantity", *digits).out
    said = cli("new", "yes", *digits, "--task", "binary", code=1).err
    assert "the values of digit are those of a regression label" in said
    assert "write them otherwise: 0 and 1, or two words" in said


def test_texts_that_mean_no_value_may_be_named(room: Path, tmp_path: Path, cli: Cli) -> None:
    odd = ["nil", "off", *(["nil"] * 9)]
    rows = [f"{n},{odd[n] if n < len(odd) else n / 7},{n % 5},{n % 2}" for n in range(300)]
    (tmp_path / "table.csv").write_text("id,x,z,y\n" + "\n".join(rows) + "\n")
    table = about(tmp_path / "table.csv", "y")
    assert "make the folder again with --null nil" in cli("new", "text", *table).out
    said = cli("new", "numbers", *table, "--null", "nil", "--null", "off").out
    assert "no value: 'nil', 'off'" in said
    spec = load_spec(room / "numbers")
    assert spec.sources["rows"].columns["x"] == "float64"
    assert "x" in spec.features.numeric
    cli("run", "numbers", "--through", "feature_set")


NAMELESS = "rows.csv is empty: the names of the columns are expected in the first line"
TWICE = "rows.csv has 2 columns 'a'. Give each a name of its own."
NOTHING = "learn from: 'id' (key), 'y' (label). Add a column"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("", NAMELESS, id="an empty file"),
        pytest.param("\ufeff\n", NAMELESS, id="a mark of the encoding and no more"),
        pytest.param("a,b,a\n1,2,3\n", TWICE, id="two columns of a name"),
        pytest.param("a,y\n1,0\n1,1\n1,0\n", "--key", id="rows that cannot be told apart"),
        pytest.param("id,y\n1,high\n2,low\n3,high\n", NOTHING, id="nothing to learn from"),
    ],
)
def test_a_file_that_no_pipeline_can_be_made_of_is_told_why(
    room: Path, tmp_path: Path, cli: Cli, content: str, said: str
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(content, encoding="utf-8")
    assert said in cli("new", "rows", *about(file, "y"), code=1).err
    assert not (room / "rows").exists()


def test_a_column_of_nothing_is_left_out_and_a_table_without_times_says_how_it_is_split(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    file = tmp_path / "rows.csv"
    lines = [f"k{n},NA,{1_704_067_200 + n * 60},{n % 7},{n % 2}" for n in range(60)]
    file.write_text("\n".join(["id,empty,t,x,late", *lines]) + "\n")
    told = cli("new", "rows", *about(file, "late")).out
    assert "left out: it holds nothing but 'NA'" in told
    assert "note: t may be times, as seconds since 1970" in told
    assert "note: no column of times was found: rows are split at random" in told
