"""200 simulated days of land, train, decide, house-keeping: every kind of state stays bounded."""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import freeze_time

from ml_assets.launch.session_folder import SessionFolder
from ml_assets.records.ledger import chain as ledger
from ml_assets.settings import Retention
from ml_assets.spec.training_program import ModelManifest
from ml_assets.store.objects import verify
from ml_assets_tests.actions.house import DAY, PIPELINE, House

DAYS = 200
WINDOW = 28
"""Days of data that are there at once; a day is landed again onto the oldest."""
RELEASES = 40
"""Every so many days a model is good enough."""
RUNS = int(os.environ.get("ML_ASSETS_TEST_RUN_EVERY") or 10)
"""Every so many days there is a real Dagster run; `make long` has one every day."""
RETENTION = Retention(
    history=6 * DAY,
    quarantine=6 * DAY,
    shards=2 * DAY,
    checkpoints=2 * DAY,
    sessions=6 * DAY,
    models=6 * DAY,
    reports=6 * DAY,
    run_logs=15 * DAY,
)
QUIET = {"telemetry": {"enabled": False}}
EARLY = 2 * RELEASES - 1
"""Long after the longest retention, and as many days after a release as the last day is."""
RELEASE_KEEPS = {
    "objects/sessions": (7, 20_000),
    "objects/models": (2, 10_000),
    "objects/shards": (2, 25_000),
    "objects/reports": (1, 5_000),
}
"""Files and bytes of what a release was made from, beside the state of ``main`` that it was in."""
RUN_KEEPS = {"dagster/history": (1, 250_000)}
"""What it told, in a file of Dagster's for each run: nothing in Dagster makes that smaller."""
SLACK = 1.1
Size = Counter[str]


@dg.asset
def table(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    for number in range(20):
        context.log.info(f"message {number} " + "x" * 5000)
    return dg.MaterializeResult(metadata={"rows": 12})


def live_a_day(house: House, day: int) -> None:
    partition = f"day-{day % WINDOW:02}"
    house.land(partition)
    house.reject(partition)
    if day % 2 == 0:
        house.train()
    if day % RELEASES == 0:
        house.decide(passes=True)
    if day % RUNS == 0:
        with freeze_time(house.now):
            dg.materialize([table], instance=house.instance)
    house.pass_days(1)
    house.collect()


def measured(house: House) -> tuple[Size, Size]:
    """Files and bytes of each kind of state."""
    files, sizes = Size(), Size()
    for file in house.root.rglob("*"):
        if file.is_file():
            parts = file.relative_to(house.root).parts
            kind = "checkpoints" if "checkpoints" in parts else "/".join(parts[:2])
            files[kind] += 1
            sizes[kind] += file.stat().st_size
    return files, sizes


def check_releases(house: House) -> None:
    """Every release there ever was is still there, whole, with what it was made from."""
    entries = ledger.read(house.store, PIPELINE)
    assert len({entry.model for entry in entries}) == len(house.decided)
    for commit in house.store.log():
        if commit.message.startswith("ledger "):
            for entry in house.store.list(commit.id):
                house.store.read_bytes(commit.id, entry.path)
    for evidence in house.decided:
        folder = house.objects.path("models", evidence.model)
        manifest = ModelManifest.model_validate_json((folder / "model.json").read_bytes())
        verify(folder, [manifest.weights])
        session = house.made_by[evidence.model]
        assert SessionFolder(house.objects.path("sessions", session)).finished_training()
        assert house.objects.path("reports", PIPELINE, f"{evidence.model[:16]}.html").is_file()
    for evidence in house.decided[-2:]:  # in production, and what a rollback brings back
        assert house.objects.path("shards", PIPELINE, evidence.data, "rows.bin").is_file()


def check_bounded(early: tuple[Size, Size], late: tuple[Size, Size], house: House) -> None:
    """Nothing grew but by what a release, and what a run, keeps for good."""
    head = house.store.list(house.store.resolve())
    of_main = {"snapshots/objects": (2 * len(head), 2 * sum(entry.size for entry in head))}
    releases = (DAYS - EARLY - 1) / RELEASES
    runs = (DAYS - EARLY - 1) / RUNS
    for number, (before, after) in enumerate(zip(early, late, strict=True)):
        for kind, size in after.items():
            release = {**RELEASE_KEEPS, **of_main}.get(kind, (0, 0))[number]
            run = RUN_KEEPS.get(kind, (0, 0))[number]
            bound = before[kind] * SLACK + releases * release + runs * run
            assert size <= bound, f"{kind}: {before[kind]} -> {size}, above {bound:.0f}"


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder that is no disk where there is one: durability is not the question here."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


def test_two_hundred_days_stay_bounded_and_every_release_can_be_read(memory: Path) -> None:
    (memory / "house" / "dagster").mkdir(parents=True)
    with dg.DagsterInstance.local_temp(
        str(memory / "house" / "dagster"), overrides=QUIET
    ) as instance:
        begin = datetime.now(UTC) - DAYS * DAY
        house = House(memory / "house", RETENTION, begin, instance=instance)
        for day in range(EARLY + 1):
            live_a_day(house, day)
        early = measured(house)
        for day in range(EARLY + 1, DAYS):
            live_a_day(house, day)
        check_bounded(early, measured(house), house)
        check_releases(house)
        assert len(house.decided) == DAYS // RELEASES
        runs = DAYS // RUNS
        assert len(instance.fetch_materializations(table.key, limit=runs + 1).records) == runs
