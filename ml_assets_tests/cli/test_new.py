"""ml-assets new: a folder that passes the check and runs at once, on any table of one's own."""

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.evaluation_report.stored_report import read_report
from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.cli.main import main
from ml_assets.settings import read_settings
from ml_assets.spec.gates import AgainstChampion, LeakAlarm
from ml_assets.spec.load import load_spec
from ml_assets.spec.window import Window
from ml_assets.store.pipeline_context import open_pipeline


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for pipelines, with state and sources beside it."""
    room = tmp_path / "pipelines"
    room.mkdir()
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(room))
    monkeypatch.delenv("ML_ASSETS_SOURCES", raising=False)
    return room


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    """A table that is not flights: a text key, nulls, an identifier, a date, no times."""
    rows = 60
    file = tmp_path / "houses.csv"
    pl.DataFrame(
        {
            "plot": [f"p{n}" for n in range(rows)],
            "street": [f"street {n} of many" for n in range(rows)],
            "area": [None if n == 3 else 50.5 + n for n in range(rows)],
            "rooms": [n % 5 for n in range(rows)],
            "built": [f"19{n % 90 + 10}-01-31" for n in range(rows)],
            "kind": ["flat" if n % 3 else "house" for n in range(rows)],
            "garden": [n % 2 for n in range(rows)],
        }
    ).write_csv(file)
    return file


def test_a_new_pipeline_runs_at_once_to_a_release(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "orders"]) == 0
    assert main(["check", "orders"]) == 0
    assert main(["run", "orders"]) == 0
    said = capsys.readouterr().out
    assert "production is model" in said
    found = read_report(open_pipeline("orders", read_settings()).now()).recommendation
    assert found is not None
    assert (f"note: {found.reason}" in said) is not found.keep


def test_the_first_pipeline_makes_the_folder_that_is_named_for_it(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    room.rmdir()
    assert main(["check"]) == 1
    assert "run `ml-assets new NAME`" in capsys.readouterr().err
    assert main(["new", "orders"]) == 0
    assert "first: export" not in capsys.readouterr().out
    assert main(["check", "orders"]) == 0


def test_a_file_in_the_place_of_the_folder_is_left_as_it_is(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    room.rmdir()
    room.write_text("mine")
    assert main(["new", "orders"]) == 1
    assert "is not a folder" in capsys.readouterr().err
    assert main(["new", "orders", "--into", str(room)]) == 1
    assert room.read_text() == "mine"


def test_where_no_folder_is_named_it_is_made_here(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    room.rmdir()
    monkeypatch.delenv("ML_ASSETS_PIPELINES")
    monkeypatch.chdir(room.parent)
    assert main(["new", "orders"]) == 0
    assert f"first: export ML_ASSETS_PIPELINES=demo:{room}\n" in capsys.readouterr().out
    assert (room / "orders" / "defs.yaml").is_file()


def test_a_folder_of_its_own_joins_those_that_are_known(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert main(["new", "orders", "--into", str(other)]) == 0
    assert f"first: export ML_ASSETS_PIPELINES={room}:{other}\n" in capsys.readouterr().out


def test_a_new_spec_is_short(room: Path) -> None:
    main(["new", "orders"])
    lines = (room / "orders" / "defs.yaml").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 60


@pytest.mark.daemon
def test_a_table_of_ones_own_is_described(room: Path, houses: Path) -> None:
    assert main(["new", "houses", "--from", str(houses), "--label", "garden"]) == 0
    spec = load_spec(room / "houses")
    source = spec.sources["rows"]
    assert source.key == ("plot",)
    assert source.columns["built"] == "date"
    assert spec.features.numeric == ("area", "rooms")
    assert spec.features.categorical == ("kind",)
    assert spec.label.task == "binary"
    assert main(["run", "houses", "--through", "training_set"]) == 0


def test_days_are_cast_to_the_moment_of_the_decision(room: Path, houses: Path) -> None:
    about = ["--from", str(houses), "--label", "garden"]
    assert main(["new", "houses", *about, "--time", "built"]) == 0
    assert load_spec(room / "houses").features.decision_at == "decided_at"
    assert main(["run", "houses", "--through", "feature_set"]) == 0
    assert main(["new", "daily", *about, "--time", "built", "--key", "plot,built"]) == 0
    assert load_spec(room / "daily").sources["rows"].key == ("plot", "built")


def test_a_column_that_is_called_decided_at_is_left_alone(room: Path, houses: Path) -> None:
    frame = pl.read_csv(houses).rename({"area": "decided_at"})
    frame.write_csv(houses)
    assert main(["new", "houses", "--from", str(houses), "--label", "garden"]) == 0
    features = load_spec(room / "houses").features
    assert features.numeric == ("decided_at", "rooms")
    assert features.decision_at == "decided_at_2"
    assert main(["run", "houses", "--through", "feature_set"]) == 0


def test_the_name_of_a_column_is_never_broken(room: Path, tmp_path: Path) -> None:
    names = [f"how long, in m: side {n} of it" for n in range(9)]
    file = tmp_path / "sides.parquet"
    pl.DataFrame(
        {"id": range(20), "y": [True, False] * 10, **{name: range(20) for name in names}}
    ).write_parquet(file)
    assert main(["new", "sides", "--from", str(file), "--label", "y", "--key", "id"]) == 0
    assert load_spec(room / "sides").features.numeric == tuple(names)
    text = (room / "sides" / "defs.yaml").read_text()
    assert all(text.count(f"'{name}'") == 2 for name in names)
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_text_label_has_classes(room: Path, houses: Path) -> None:
    pl.read_csv(houses).rename({"kind": "rate"}).write_csv(houses)
    about = ["--from", str(houses), "--label", "rate", "--task", "multiclass"]
    assert main(["new", "kinds", *about]) == 0
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
    room: Path,
    houses: Path,
    capsys: pytest.CaptureFixture[str],
    often: str,
    seldom: str,
    true: str,
    why: str,
) -> None:
    words = pl.col("kind").replace({"flat": often, "house": seldom})
    first = pl.when(pl.col("plot") != "p1").then(words).alias("kind")
    pl.read_csv(houses).with_columns(first).write_csv(houses)
    assert main(["new", "kinds", "--from", str(houses), "--label", "kind"]) == 0
    assert f"features.py makes true of {true!r}{why}, and false of" in capsys.readouterr().out
    spec = load_spec(room / "kinds")
    assert (spec.label.task, spec.sources["rows"].columns["kind"]) == ("binary", "string")
    build = load_function(room / "kinds", "features.py:build", "kinds")
    rows = pl.LazyFrame({"kind": [often, seldom, None]}, schema={"kind": pl.String})
    made = build({"rows": rows}, Window(None, None, None)).collect()["kind"]
    assert made.to_list() == [often == true, seldom == true, None]
    assert main(["check", "kinds"]) == 0


@pytest.mark.daemon
def test_a_number_to_predict_is_compared_in_shares(room: Path, houses: Path) -> None:
    assert main(["new", "rooms", "--from", str(houses), "--label", "rooms"]) == 0
    spec = load_spec(room / "rooms")
    assert spec.label.task == "regression"
    champion = next(gate for gate in spec.gates if isinstance(gate, AgainstChampion))
    assert (champion.metric, champion.relative) == ("rmse", True)
    assert main(["run", "rooms", "--through", "training_set"]) == 0


@pytest.mark.daemon
def test_an_unknown_outcome_is_no_mistake_of_the_table(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = houses.read_text().splitlines()
    lines[-1] = lines[-1].rsplit(",", 1)[0] + ","  # its garden is not known
    houses.write_text("\n".join(lines) + "\n")
    assert main(["new", "houses", "--from", str(houses), "--label", "garden"]) == 0
    assert "1 of 60 rows has no label: it is not trained on" in capsys.readouterr().out
    assert main(["run", "houses", "--through", "training_set"]) == 0
    assert set(of_label(room / "houses", "garden")) == {"in_set"}


def of_label(folder: Path, label: str) -> dict[str, dict[str, object]]:
    """What the contract of a new pipeline asks of its label, by the end of its type."""
    suite = json.loads((folder / "contracts" / "rows.json").read_text())
    asked = [one for one in suite["expectations"] if one["kwargs"].get("column") == label]
    assert {one["severity"] for one in asked} == {"critical"}
    return {one["type"].partition("_to_")[2].removeprefix("be_"): one["kwargs"] for one in asked}


def test_a_label_that_is_wrong_is_refused_by_the_contract_that_new_writes(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for label in ("garden", "kind", "rooms"):
        assert main(["new", label, "--from", str(houses), "--label", label]) == 0
    assert of_label(room / "garden", "garden")["in_set"]["value_set"] == [0, 1]
    assert of_label(room / "kind", "kind")["in_set"]["value_set"] == ["flat", "house"]
    rooms = of_label(room / "rooms", "rooms")
    assert rooms.keys() == {"not_be_null", "between"}
    assert rooms["between"]["min_value"] == 0 and rooms["between"]["max_value"] == 8
    spec = load_spec(room / "kind")
    (source,) = spec.sources.values()
    landed = read_settings().sources / str(getattr(source, "path", ""))
    landed.write_text(landed.read_text().replace("house", "castle", 3))
    assert main(["run", "kind", "--through", "validated_table"]) == 1
    assert "kind must be one of" in capsys.readouterr().out


@pytest.mark.daemon
def test_copies_are_counted_and_learned_from_once(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.read_csv(houses).with_columns(pl.int_range(pl.len()).alias("lot"))
    again = frame.head(30).with_columns(pl.col("plot") + "b", pl.col("lot") + 1000)
    pl.concat([frame, again]).drop("lot").write_csv(houses)
    about = ["--from", str(houses), "--label", "garden"]
    assert main(["new", "houses", *about]) == 0
    said = "30 of 90 rows are copies of others under another plot: features.py learns from one"
    assert said in capsys.readouterr().out
    assert main(["run", "houses", "--through", "training_set"]) == 0
    file = room / "houses" / "features.py"
    text = file.read_text()
    begin, end = text.index("        .filter("), text.index("is_first_distinct()")
    file.write_text(text[:begin] + text[end:].partition(")\n        )")[2])
    capsys.readouterr()
    assert main(["run", "houses", "--through", "training_set"]) == 1
    assert "[fail] no_shared_rows: " in capsys.readouterr().out


def test_rows_that_are_equal_by_chance_are_no_copies(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, rows = tmp_path / "dice.csv", 300
    dice = {"n": range(rows), "eyes": [n * 7 % 6 for n in range(rows)]}
    pl.DataFrame({**dice, "won": [n * 13 % 5 > 2 for n in range(rows)]}).write_csv(file)
    assert main(["new", "dice", "--from", str(file), "--label", "won"]) == 0
    assert "copies" not in capsys.readouterr().out
    assert "is_first_distinct" not in (room / "dice" / "features.py").read_text()


def test_numbers_that_are_kept_as_text_are_told_by_new_and_warned_of_by_check(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graded = pl.read_csv(houses).with_columns(
        grade=pl.Series([str(n % 3 + 1) for n in range(60)]),
        zone=pl.Series([f"0{n % 3}" for n in range(60)]),
    )
    graded.write_parquet(houses.with_suffix(".parquet"))
    table = str(houses.with_suffix(".parquet"))
    assert main(["new", "houses", "--from", table, "--label", "garden"]) == 0
    said = capsys.readouterr().out
    assert "categorical: its numbers are text, '1' for one: cast them in features.py" in said
    assert main(["check", "houses"]) == 0
    said = capsys.readouterr().out
    assert (
        "warning: features.categorical has 'grade', and its values in contracts/rows.json" in said
    )
    assert "'zone'" not in said


def test_unknown_outcomes_are_counted(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = pl.when(pl.col("rooms") > 1).then("garden").alias("garden")
    pl.read_csv(houses).with_columns(known).write_csv(houses)
    assert main(["new", "houses", "--from", str(houses), "--label", "garden"]) == 0
    assert "24 of 60 rows have no label: they are not trained on" in capsys.readouterr().out


def test_the_copy_of_the_table_is_the_source_from_then_on(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "houses", "--from", str(houses), "--label", "garden"]) == 0
    said = re.search("source: (.+), below (.+)\n.*copied there", capsys.readouterr().out)
    assert said
    assert (Path(said[2]) / said[1]).read_bytes() == houses.read_bytes()
    parquet = houses.with_suffix(".parquet")
    pl.read_csv(houses).write_parquet(parquet)
    assert main(["new", "homes", "--from", str(parquet), "--label", "garden"]) == 0
    said = re.search("table: copied to (.+)\n.*replace that file", capsys.readouterr().out)
    assert said
    assert pl.read_parquet(said[1]).height == pl.read_csv(houses).height


def test_what_is_left_out_is_left_out_for_a_reason(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.read_csv(houses).with_columns(
        price=pl.Series([str(n) if n != 7 else "sold" for n in range(60)]),
        size=pl.Series([str(n % 9) if n else "many" for n in range(60)]),
        nothing=pl.lit(None),
    )
    frame.write_csv(houses)
    assert main(["new", "houses", "--from", str(houses), "--label", "garden"]) == 0
    said = capsys.readouterr().out
    assert "left out: 60 different values" in said
    assert "left out: 59 of 60 are numbers, the first other is 'sold'" in said
    assert "categorical: 59 of 60 are numbers, the first other is 'many'" in said
    assert "left out: make numbers of it in features.py" in said
    assert "left out: it is empty" in said
    assert main(["new", "prices", "--from", str(houses), "--label", "price"]) == 1
    assert "or repair this one: 59 of 60 are numbers" in capsys.readouterr().err


def test_the_data_of_another_pipeline_of_the_name_is_never_touched(
    room: Path,
    houses: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = houses.with_suffix(".parquet")
    pl.read_csv(houses).write_parquet(table)
    asked = ["new", "homes", "--from", str(table), "--label", "garden"]
    assert main(asked) == 0
    rows = tmp_path / "state" / "demo" / "homes" / "rows.parquet"
    before = rows.read_bytes()

    other = tmp_path / "others"
    other.mkdir()
    monkeypatch.setenv("ML_ASSETS_PIPELINES", f"{room}:{other}")
    assert main([*asked, "--into", str(other)]) == 1
    assert "There is a pipeline homes in" in capsys.readouterr().err
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(other))
    pl.read_csv(houses).head(40).write_parquet(table)
    assert main(asked) == 1
    assert "is there already, with other rows" in capsys.readouterr().err
    assert rows.read_bytes() == before
    assert not (other / "homes").exists()
    pl.read_csv(houses).write_parquet(table)
    assert main(asked) == 0, "the same table is no other one"


def test_files_of_a_former_pipeline_are_not_mixed_with_the_new_ones(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for year in (2022, 2024):
        (tmp_path / str(year)).mkdir()
        for month in range(1, 7):
            rows = {"at": [f"{year}-{month:02}-{day:02}" for day in range(1, 29)], "y": range(28)}
            file = tmp_path / str(year) / f"{year}-{month:02}.csv"
            pl.DataFrame(rows).with_columns(x=pl.col("y") * 2.5 + month).write_csv(file)
    assert main(["new", "air", "--from", str(tmp_path / "2022"), "--label", "y"]) == 0
    shutil.rmtree(room / "air")
    capsys.readouterr()
    assert main(["new", "air", "--from", str(tmp_path / "2024"), "--label", "y"]) == 1
    assert "2022-01.csv is there already, with other rows" in capsys.readouterr().err


def test_columns_that_no_spec_can_hold_are_left_out(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = houses.with_suffix(".parquet")
    odd = [
        pl.Series("lists", [[1, 2]] * 60),
        pl.Series("spans", [timedelta(hours=n) for n in range(60)]),
        pl.Series("bytes", [b"\xff\xfe"] * 60),
    ]
    pl.read_csv(houses).with_columns(odd).write_parquet(table)
    assert main(["new", "houses", "--from", str(table), "--label", "garden"]) == 0
    said = capsys.readouterr().out
    for column in odd:
        assert f"the column '{column.name}' holds values of the type {column.dtype}" in said
        assert main(["new", "odds", "--from", str(table), "--label", column.name]) == 1
        assert f"The column '{column.name}' holds" in capsys.readouterr().err
    assert main(["run", "houses", "--through", "validated_table"]) == 0


def test_odd_columns_of_a_table_are_no_stumbling_block(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = houses.with_suffix(".parquet")
    large = pl.Series("large", range(2**63, 2**63 + 60), dtype=pl.UInt64)
    numbers = [pl.lit(1.5).alias(name) for name in ("__block", "__loss", "size\n(m²)")]
    pl.read_csv(houses).with_columns(large, *numbers).write_parquet(table)
    assert main(["new", "houses", "--from", str(table), "--label", "garden"]) == 0
    columns = load_spec(room / "houses").sources["rows"].columns
    assert (columns["large"], columns["size\n(m²)"]) == ("string", "float64")
    assert main(["run", "houses", "--through", "feature_set"]) == 0
    capsys.readouterr()
    assert main(["new", "dates", "--from", str(houses), "--label", "built"]) == 1
    assert "The label 'built' is a date" in capsys.readouterr().err
    pl.read_csv(houses).rename({"area": "a" * 300}).write_parquet(table)
    assert main(["new", "long", "--from", str(table), "--label", "garden"]) == 1
    assert "has 300 characters" in capsys.readouterr().err


def test_an_index_without_a_name_gets_one(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.read_csv(houses)
    frame.rename({"plot": "row"}).with_row_index("").write_csv(houses)
    assert main(["new", "houses", "--from", str(houses), "--label", "garden"]) == 0
    assert "the column without a name is called 'row_2'" in capsys.readouterr().out
    assert load_spec(room / "houses").sources["rows"].key == ("row_2",)
    assert main(["run", "houses", "--through", "feature_set"]) == 0


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
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["new", "houses", "--from", str(houses), *arguments]) == 1
    assert said in capsys.readouterr().err
    assert not (room / "houses").exists()


def test_a_table_whose_rows_cannot_be_told_apart_asks_for_a_key(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "twins.csv"
    file.write_text("a,b\n1,0\n1,1\n1,0\n")
    assert main(["new", "twins", "--from", str(file), "--label", "b"]) == 1
    assert "--key" in capsys.readouterr().err


def test_a_table_with_nothing_to_learn_from_says_what_each_column_is(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tides.csv"
    file.write_text("id,height\n1,high\n2,low\n3,high\n")
    assert main(["new", "tides", "--from", str(file), "--label", "height"]) == 1
    said = capsys.readouterr().err
    assert "learn from: 'id' (key), 'height' (label). Add a column" in said
    assert not (room / "tides").exists()


@pytest.mark.parametrize("column", ["*", "^a.*$"])
def test_a_column_whose_name_means_several_is_refused(
    room: Path, houses: Path, capsys: pytest.CaptureFixture[str], column: str
) -> None:
    houses.write_text(houses.read_text().replace("rooms", column, 1))
    assert main(["new", "houses", "--from", str(houses), "--label", "garden"]) == 1
    assert f"The columns ['{column}'] have names that are patterns" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Orders", "../orders", "1st", "a b", "a" * 80])
def test_a_name_that_cannot_be_one_is_refused(
    room: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["new", name]) == 1
    assert "cannot name a pipeline" in capsys.readouterr().err
    assert not list(room.parent.glob("[Oo1a]*"))


def test_a_folder_that_is_there_is_left_as_it_is(room: Path) -> None:
    main(["new", "orders"])
    (room / "orders" / "features.py").write_text("# mine")
    assert main(["new", "orders"]) == 1
    assert (room / "orders" / "features.py").read_text() == "# mine"


def test_dg_scaffolds_the_same_folder(room: Path) -> None:
    import dagster as dg

    from ml_assets.component import PipelineScaffolder

    target = room / "orders"
    target.mkdir()  # dg makes it first
    request = dg.ScaffoldRequest(
        type_name="ml_assets.component.TrainingPipeline",
        target_path=target,
        scaffold_format="yaml",
        project_root=None,
        params=None,
    )
    PipelineScaffolder().scaffold(request)
    assert main(["check", "orders"]) == 0


def test_a_folder_with_a_network_of_its_own_is_good(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "orders", "--network"]) == 0
    assert main(["check", "orders"]) == 0
    assert load_spec(room / "orders").model.family == "module"
    network = room / "orders" / "network.py"
    network.write_text(network.read_text().replace("import torch\n", "import polars_of_mine\n", 1))
    assert main(["check", "orders"]) == 1
    assert "polars_of_mine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "alarm_of"),
    [
        ("binary", ("auc", 0.995)),
        ("multiclass", ("log_loss", 0.0082)),
        ("regression", ("r2", 0.99)),
    ],
)
def test_a_network_on_made_up_orders_may_be_told_the_task(
    room: Path, capsys: pytest.CaptureFixture[str], task: str, alarm_of: tuple[str, float]
) -> None:
    assert main(["new", "orders", "--network", "--task", task]) == 0
    assert f"orders: {task} on 600 rows" in capsys.readouterr().out
    assert main(["check", "orders"]) == 0
    spec = load_spec(room / "orders")
    assert spec.label.task == task
    (alarm,) = [gate for gate in spec.gates if isinstance(gate, LeakAlarm)]
    assert (alarm.metric, alarm.bound) == alarm_of
    assert spec.leaks.target_proxy.bound == (0.95 if task == "binary" else None)


@pytest.mark.daemon
def test_the_scaffolded_network_conforms_and_is_trained(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "orders", "--network"]) == 0
    assert main(["check", "orders", "--deep"]) == 0
    said = capsys.readouterr().out
    assert said.count("[pass]") == 9
    assert "[pass] memory: A process holds at least 0.0" in said
    network = room / "orders" / "network.py"
    network.write_text(
        network.read_text().replace("return self.last(x)", "return self.last(x - x.mean(0))")
    )
    assert main(["check", "orders", "--deep"]) == 1
    assert "[FAIL] no_batch_leak" in capsys.readouterr().out
    network.write_text(network.read_text().replace("x - x.mean(0)", "x"))
    assert main(["run", "orders", "--through", "trained_model"]) == 0


def test_whole_numbers_are_classes_where_the_task_says_so(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": n, "x": n % 7 + 0.5, "digit": n % 10} for n in range(400)]
    pl.DataFrame(rows).write_csv(tmp_path / "digits.csv")
    about = ["--from", str(tmp_path / "digits.csv"), "--label", "digit"]
    assert main(["new", "digits", *about, "--task", "multiclass"]) == 0
    assert "multiclass on 400 rows" in capsys.readouterr().out
    spec = load_spec(room / "digits")
    assert spec.label.classes == tuple("0123456789")
    assert spec.sources["rows"].columns["digit"] == "string"
    file = room / "digits" / "defs.yaml"
    text = file.read_text()
    assert "'9'" in text
    file.write_text(re.sub(r"'(\d)'", r"\1", text))
    assert load_spec(room / "digits").label.classes == spec.label.classes, "numbers are text"
    assert main(["run", "digits", "--through", "feature_set"]) == 0
    assert main(["new", "quantity", *about]) == 0
    assert "make the folder again with --task multiclass" in capsys.readouterr().out
    assert main(["new", "yes", *about, "--task", "binary"]) == 1
    said = capsys.readouterr().err
    assert "the values of digit are those of a regression label" in said
    assert "write them otherwise: 0 and 1, or two words" in said


def test_texts_that_mean_no_value_may_be_named(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = ["nil", "off", *(["nil"] * 9)]
    rows = [f"{n},{odd[n] if n < len(odd) else n / 7},{n % 5},{n % 2}" for n in range(300)]
    (tmp_path / "table.csv").write_text("id,x,z,y\n" + "\n".join(rows) + "\n")
    about = ["--from", str(tmp_path / "table.csv"), "--label", "y"]
    assert main(["new", "text", *about]) == 0
    assert "make the folder again with --null nil" in capsys.readouterr().out
    assert main(["new", "numbers", *about, "--null", "nil", "--null", "off"]) == 0
    assert "no value: 'nil', 'off'" in capsys.readouterr().out
    spec = load_spec(room / "numbers")
    assert spec.sources["rows"].columns["x"] == "float64"
    assert "x" in spec.features.numeric
    assert main(["run", "numbers", "--through", "feature_set"]) == 0


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
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], header: str, said: str
) -> None:
    (tmp_path / "in").mkdir()
    for name, head in (("a", "id,hum,y"), ("b", header)):
        rows = [",".join([str(n)] * len(head.split(","))) for n in range(9)]
        (tmp_path / "in" / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    assert main(["new", "air", "--from", str(tmp_path / "in"), "--label", "y"]) == 1
    assert said in capsys.readouterr().err


def test_a_table_of_one_row_is_told_how_many_are_needed(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1.5,2.5\n")
    assert main(["new", "rows", "--from", str(tmp_path / "rows.csv"), "--label", "b"]) == 1
    assert "The table has 1 row: at least 3 are needed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "rows.csv is empty: the names of the columns are expected in the first line"),
        ("\ufeff\n", "rows.csv is empty: the names of the columns are expected in the first line"),
        ("a,b,a\n1,2,3\n", "rows.csv has 2 columns 'a'. Give each a name of its own."),
    ],
)
def test_a_file_without_names_is_told_by_its_name(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(content, encoding="utf-8")
    assert main(["new", "rows", "--from", str(file), "--label", "a"]) == 1
    assert said in capsys.readouterr().err


def test_a_column_of_nothing_is_left_out_and_a_table_without_times_says_how_it_is_split(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    lines = [f"k{n},NA,{1_704_067_200 + n * 60},{n % 7},{n % 2}" for n in range(60)]
    file.write_text("\n".join(["id,empty,t,x,late", *lines]) + "\n")
    assert main(["new", "rows", "--from", str(file), "--label", "late"]) == 0
    told = capsys.readouterr().out
    assert "left out: it holds nothing but 'NA'" in told
    assert "note: t may be times, as seconds since 1970" in told
    assert "note: no column of times was found: rows are split at random" in told
