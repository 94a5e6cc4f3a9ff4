"""House-keeping killed at every step: nothing reached is ever hurt, and the next one finishes."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from ml_assets.automation.housekeeping import run_logs
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.records.ledger import chain as ledger
from ml_assets.spec.training_program import ModelManifest
from ml_assets.store.objects import TRASH, verify
from ml_assets_tests.actions.house import PIPELINE, House
from ml_assets_tests.kill import killed_at_every_step

QUIET = {"telemetry": {"enabled": False}}


@dg.asset
def table() -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult(metadata={"rows": 12})


def lived_in(root: Path, instance: dg.DagsterInstance) -> House:
    """A house with a release, and something of every kind that nothing reaches any more."""
    house = House(root, now=datetime.now(UTC), instance=instance)
    house.land("2026-001")
    house.reject("2026-001")
    house.train()
    house.decide(passes=True)
    house.train()
    house.begin_session(house.lay_out())
    house.objects.write_bytes(b"a page", "reports", PIPELINE, "of-no-model.html")
    (house.settings.scratch / "draft").mkdir(parents=True)
    house.land("2026-001")
    house.train()
    dg.materialize([table], instance=instance)
    house.pass_days(100)
    house.land("2026-002")
    return house


def check_release(house: House) -> None:
    """The release can be read: its line, its model, its session, its data, its history."""
    assert [e.kind for e in ledger.read(house.store, PIPELINE)] == ["decision", "stage"]
    for commit in house.store.history():
        for entry in house.store.list(commit.id):
            house.store.read_bytes(commit.id, entry.path)
    [evidence] = house.decided
    assert house.objects.path("shards", PIPELINE, evidence.data, "rows.bin").is_file()
    model = house.objects.path("models", evidence.model)
    manifest = ModelManifest.model_validate_json((model / "model.json").read_bytes())
    verify(model, [manifest.weights])
    session = house.made_by[evidence.model]
    assert SessionFolder(house.objects.path("sessions", session)).finished_training()


def test_killed_at_any_step_it_hurts_nothing_and_the_next_one_finishes(tmp_path: Path) -> None:
    folder = tmp_path / "dagster"
    folder.mkdir()
    with dg.DagsterInstance.local_temp(str(folder), overrides=QUIET) as instance:
        house = lived_in(tmp_path / "house", instance)
        whole = house.housekeeping().collect(dry_run=True)
        assert [kind for kind, tally in whole.tallies.items() if not tally.freed_things] == []
        kills = 0
        for _ in killed_at_every_step(house.collect, stride=4):
            kills += 1
            check_release(house)
        assert kills > 5
        left = house.collect()
        assert left.freed_bytes == 0
        assert not any(tally.freed_things for tally in left.tallies.values())
        assert not list((house.root / "objects" / TRASH).iterdir())
        assert run_logs.runs(instance) == []
        assert instance.fetch_materializations(table.key, limit=2).records
        check_release(house)
