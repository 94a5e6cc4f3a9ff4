"""Weeks of broken files: each fails with what is wrong with it, and leaves nothing anywhere."""

import gzip
import hashlib
import os
from pathlib import Path

import dagster as dg

from ml_assets_tests.automation.conftest import Plant, World

HOUR_AGO = 1_700_000_000
HEADER = b"order,depot,load,ordered_at\n"
BROKEN: dict[str, tuple[bytes, str]] = {
    "2024-01-08": (HEADER + b"1,north,inf,2024-01-08T00:00:00Z\n", "«'inf'» is not"),
    "2024-01-15": (HEADER + b"1,n\xf6rd,1,2024-01-15T00:00:00Z\n", "not UTF-8"),
    "2024-01-22": (HEADER + b"1,north,1,2024-01-22T00:00:00\n", "with its zone"),
    "2024-01-29": (b"PK\x03\x04" + bytes(1000), "ZIP archive"),
    "2024-02-05": (gzip.compress(bytes(1 << 20)), "is gzip, and its name does not say so"),
    "2024-02-12": (b",".join(b"c%d" % n for n in range(5000)) + b"\n", "does not have the columns"),
    "2024-02-19": (HEADER + b"1,north", "2 fields, but the header has 4"),
    "2024-02-26": (bytes(4096), "does not have the columns"),
}


def tree(*folders: Path) -> dict[str, str]:
    """Every file below the folders, by its content."""
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_broken_weeks_fail_each_for_its_reason_and_touch_nothing(plant: Plant):
    world = plant(10, "{landing: {}}")
    for week, (content, _) in BROKEN.items():
        file = world.sources / "orders" / f"{week}.csv"
        file.write_bytes(content)
        os.utime(file, (HOUR_AGO, HOUR_AGO))  # nobody is writing it any more
    (world.sources / "orders" / "..2024-03-11.csv").write_bytes(b"hidden")
    before = tree(world.sources, world.root / "pipelines")
    whole, weeks = world.asks_for()
    assert world.execute(whole)
    assert not world.execute(weeks)
    assert world.published("raw_snapshot", "orders") == ["2024-01-01", "2024-03-04"]
    said = failures(world)
    world.settle()
    assert world.published("validated_table", "orders") == ["2024-01-01", "2024-03-04"]
    for week, (_, reason) in BROKEN.items():
        assert reason in said, week
    assert tree(world.sources, world.root / "pipelines") == before
    made = {path.name for path in world.root.iterdir()}
    assert made <= {"sources", "pipelines", "state", "storage", "schedules", "history"} | INSTANCE
    assert "8 partitions failed, 2 were published" in said


INSTANCE = {"compute_logs", "dagster.yaml", "logs", "nux", ".logs_queue", ".nux", ".telemetry"}
"""What Dagster's own instance for tests lays out there."""


def failures(world: World) -> str:
    """What the failed steps say, as the UI shows it."""
    runs = world.instance.get_runs(filters=dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    records = [
        entry.dagster_event.step_failure_data.error
        for run in runs
        for entry in world.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        if entry.dagster_event is not None
    ]
    return "\n".join(error.to_string() for error in records if error is not None)
