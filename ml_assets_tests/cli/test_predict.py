"""ml-assets predict: rows from a file, standard input or the command line; probabilities out."""

import io
import json
from pathlib import Path

import polars as pl

from ml_assets.records.ledger.chain import record_decision
from ml_assets.store.open import shared_snapshots
from ml_assets_tests.records.conftest import A, decision, evidence, gate
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

TIME = "2024-01-01T00:00:00Z"
MEASURES = {"sepal_length": 5.1, "sepal_width": 3.5, "petal_length": 1.4, "petal_width": 0.2}


def test_one_row_from_the_command_line(released: World) -> None:
    done = released.streams("predict", "irises", "--row", json.dumps(MEASURES))
    (row,) = pl.read_csv(io.StringIO(done.stdout)).iter_rows(named=True)
    assert (row["row"], row["prediction"]) == (1, "setosa")
    assert row["probability_setosa"] > 0.9
    assert done.stderr.startswith("note: model ")
    assert "was refused since it was released" in done.stderr  # by the stricter floor of that world
    assert done.stderr.count("\n") == 1


def test_a_file_in_and_a_file_out_with_a_note_for_what_was_refused(
    released: World, tmp_path: Path
) -> None:
    week = (released.sources / "orders" / "2024-03-18.csv").read_text().splitlines()[:4]
    heavy = week[1].split(",")
    rows = [week[0], ",".join([heavy[0], heavy[1], "5000", heavy[3]]), *week[2:]]
    given, target = tmp_path / "orders.csv", tmp_path / "predicted.parquet"
    given.write_text("\n".join(rows))
    done = released.streams("predict", "deliveries", str(given), "--output", str(target))
    found = pl.read_parquet(target)
    assert found.columns == ["order", "probability"]
    assert found["probability"].null_count() == 1
    assert "note: line 2 is not predicted because its contract refuses it" in done.stderr
    assert f"3 rows to {target}" in done.stderr
    assert done.stdout == ""


def test_json_lines_through_standard_input_and_output(released: World) -> None:
    given = "\n".join([json.dumps(MEASURES)] * 2)
    done = released.streams("predict", "irises", "-", "--format", "jsonl", given=given)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["prediction"] for row in rows] == ["setosa", "setosa"]


def test_every_mistake_is_an_error_and_exits_1_without_output(
    released: World, tmp_path: Path
) -> None:
    wrong = json.dumps({**MEASURES, "sepal_length": "long", "sepal_widht": 3})
    done = released.streams("predict", "irises", "--row", wrong, code=1)
    assert done.stdout == ""
    assert done.stderr.count("\n  - ") == 2
    missing = released.streams("predict", "irises", str(tmp_path / "none.csv"), code=1)
    assert missing.stderr.startswith(f"error: {tmp_path / 'none.csv'} cannot be read: No such file")
    unknown = released.streams("predict", "irises", "-", "--output", "x.xlsx", code=1, given="{}")
    assert unknown.stderr.startswith(
        "error: --output x.xlsx: the extension '.xlsx' is not a known format"
    )


def test_a_word_that_was_never_seen_and_a_value_that_is_warned_of_are_told_in_a_line_each(
    released: World, tmp_path: Path
) -> None:
    week = (released.sources / "orders" / "2024-03-18.csv").read_text().splitlines()[:3]
    new = week[1].split(",")
    given = tmp_path / "orders.csv"
    given.write_text("\n".join([week[0], ",".join([new[0], "mars", *new[2:]]), week[2]]))
    done = released.streams("predict", "deliveries", str(given))
    said = "1 row with a depot that no training row had, «mars» for one"
    assert [line for line in done.stderr.splitlines() if said in line]
    assert pl.read_csv(io.StringIO(done.stdout))["probability"].null_count() == 0
    flat = json.dumps({**MEASURES, "flower": 1000, "petal_length": 99.0, "measured_at": TIME})
    done = released.streams("predict", "irises", "--row", flat)
    (line,) = [line for line in done.stderr.splitlines() if "an unusual petal_length" in line]
    assert "note: 1 row with an unusual petal_length, «99.0» for one: the contract warns" in line


def test_without_a_release_it_says_that_the_newest_model_was_refused(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    asked = ("predict", "irises", "--row", json.dumps(MEASURES))
    never = world.streams(*asked, code=1).stderr
    assert never.startswith("error: irises has no model in production. Release one first: ")
    no = decision(evidence(A), gates=(gate("floor", passed=False), gate("size")))
    ours = no.model_copy(update={"pipeline": "irises"})
    record_decision(shared_snapshots(world.settings.snapshots), ours, "me")
    said = world.streams(*asked, code=1).stderr
    assert (
        "The newest, model aaaaaaaaaaaa, was refused by floor: ml-assets release history irises"
        " says why. Release one first: ml-assets run irises"
    ) in said
    assert "every decision, and why: ml-assets release history irises" in world.cli(
        "status", "irises"
    )
