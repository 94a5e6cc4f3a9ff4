"""ml-assets data read: a stored table on the terminal or in a file."""

import io
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from ml_assets.cli.output import hand_out
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

KEY = "deliveries/validated_table/orders"


def test_a_table_is_drawn_with_its_size(released: World) -> None:
    said = released.cli("data", "read", KEY, "--partition", "2024-01-01")
    assert "ordered_at" in said
    assert said.splitlines()[-1] == f"{deliveries.ORDERS - deliveries.BAD_ROWS} rows, 4 columns"


def test_standard_output_is_only_rows(released: World) -> None:
    csv = released.streams("data", "read", KEY, "--format", "csv", "--limit", "3")
    assert csv.stderr == ""
    assert pl.read_csv(io.StringIO(csv.stdout))["order"].to_list() == [0, 1, 2]
    lines = released.streams(
        "data", "read", KEY, "--format", "jsonl", "--limit", "2"
    ).stdout.splitlines()
    assert [json.loads(line)["order"] for line in lines] == [0, 1]


@pytest.mark.parametrize("extension", ["csv", "jsonl", "parquet"])
def test_the_extension_of_a_file_is_its_format(
    released: World, tmp_path: Path, extension: str
) -> None:
    target = tmp_path / f"rows.{extension}"
    released.cli("data", "read", KEY, "--limit", "5", "--output", str(target))
    how = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}[extension]
    assert how(target)["order"].to_list() == [0, 1, 2, 3, 4]
    assert list(tmp_path.iterdir()) == [target]


def test_no_row_is_no_line(tmp_path: Path) -> None:
    hand_out(pl.DataFrame({"order": []}), tmp_path / "rows.jsonl", "jsonl")
    assert (tmp_path / "rows.jsonl").read_bytes() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it is a device of Linux")
def test_a_full_disk_behind_standard_output_is_not_that_of_the_state(released: World) -> None:
    read = [sys.executable, "-m", "ml_assets.cli.main", "data", "read", KEY, "--format", "csv"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            read,
            env=released.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: Standard output cannot be written: No space left")


def test_what_cannot_be_read_or_written_exits_1_and_says_why(
    released: World, tmp_path: Path
) -> None:
    assert "Did you mean" in released.cli("data", "read", "deliveries/featureset", code=1)
    said = released.cli("data", "read", KEY, "--output", str(tmp_path / "rows.xlsx"), code=1)
    assert "is not a known format; use .csv, .jsonl" in said
    lost = str(tmp_path / "no folder" / "rows.csv")
    assert "cannot be written" in released.cli("data", "read", KEY, "--output", lost, code=1)
    taken = tmp_path / "taken.csv"
    taken.mkdir()
    released.cli("data", "read", KEY, "--output", str(taken), code=1)
    assert list(tmp_path.iterdir()) == [taken], "no draft stays"
    assert "'0' is not a number from 1 up" in released.cli(
        "data", "read", KEY, "--limit", "0", code=2
    )
