"""ml-assets ops gc on a real state folder, as it is called: what it says, frees and leaves."""

import json
import shutil
from pathlib import Path

import pytest

from ml_assets.automation.housekeeping.retention import KINDS
from ml_assets.records.ledger import chain as ledger
from ml_assets.records.ledger.stages import moves
from ml_assets.settings import Settings, read_settings
from ml_assets.store import home
from ml_assets.store.open import open_snapshots
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

YEARS = {"ML_ASSETS_RETENTION": "history=36500d"}
NO_TIME = {"ML_ASSETS_RETENTION": " ".join(f"{kind}=0h" for kind in ("grace", *KINDS))}
SCORED = "irises-score-23b1e9f7951f823aaefc"
"""A session that nothing reaches."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A house with one release."""
    world = World(tmp_path).plant(irises)
    spec = world.pipelines / "irises" / "defs.yaml"  # whether a new model is better is luck
    spec.write_text(spec.read_text().replace("{kind: champion}", "{kind: champion, margin: 9}"))
    world.cli("run", "irises")
    sessions = Path(world.settings.objects) / "sessions"
    shutil.copytree(next(sessions.glob("irises-score-*")), sessions / SCORED)
    return world


def champion_in_report(settings: Settings) -> dict[str, object] | None:
    store = open_snapshots(settings.snapshots)
    path = "tables/irises/evaluation_report/all/report.json"
    return json.loads(store.read_bytes(store.resolve(), path))["champion"]


def test_gc_frees_what_the_dry_run_told_and_the_champion_can_be_scored_again(world: World) -> None:
    settings = read_settings(world.environment)
    lenient, strict = World(world.root, YEARS), World(world.root, NO_TIME)
    session = Path(settings.objects) / "sessions" / SCORED
    assert lenient.cli("ops", "gc", "--dry-run").splitlines()[-1].split() == ["0", "B"]

    told = json.loads(strict.cli("ops", "gc", "--dry-run", "--json"))
    assert session.is_dir()
    assert list(told["kinds"]) == list(KINDS)
    left = {t["name"] for t in told["things"] if not t["keep"] and t["kind"] == "sessions"}
    assert SCORED in left
    [model] = [thing for thing in told["things"] if thing["kind"] == "models"]
    assert model["reason"] == "production of irises"

    freed = strict.cli("ops", "gc")
    assert not [name for name in left if session.with_name(name).exists()]
    assert "freed" in freed
    assert "would free" not in freed
    assert json.loads(strict.cli("ops", "gc", "--json"))["freed_bytes"] == 0

    assert champion_in_report(settings) is None
    irises.write_flowers(world.sources, species_of_first="virginica")
    world.cli("run", "irises")
    assert champion_in_report(settings) is not None


@pytest.mark.daemon
@pytest.mark.timeout(900)  # three runs, and one made again
def test_sets_of_passed_releases_go_and_verify_rollback_and_prove_do_without(world: World) -> None:
    strict = World(world.root, NO_TIME)
    for species in ("virginica", "versicolor"):
        irises.write_flowers(world.sources, species_of_first=species)
        world.cli("run", "irises")
    lines = ledger.read(open_snapshots(world.settings.snapshots), "irises")
    sets = {e.model: e.decision.evidence.data for e in lines if e.decision}
    first, second, third = (line.model for line in moves(lines))
    strict.cli("ops", "gc")
    shards = Path(world.settings.objects) / "shards" / "irises"
    assert not (shards / sets[first]).exists()
    assert (shards / sets[second]).is_dir() and (shards / sets[third]).is_dir()
    world.cli("release", "verify", "irises")
    world.cli("release", "rollback", "irises", "--author", "ann", "--reason", "worse")
    strict.cli("ops", "gc")
    assert (shards / sets[second]).is_dir()
    world.cli("release", "verify", "irises")
    asked = ("release", "prove", "irises", first[:12], "--from-snapshots", "--json")
    assert json.loads(strict.streams(*asked).stdout)["verdict"] == "equal"


def test_gc_is_refused_while_a_command_is_at_work(world: World) -> None:
    settings = read_settings(world.environment)
    world.cli("ops", "gc", "--dry-run")
    with home.lock(settings, "run irises"):
        assert "(run irises, since " in world.cli("ops", "gc", code=1)


def test_a_retention_that_cannot_be_used_is_named_before_anything_is_touched(
    tmp_path: Path,
) -> None:
    wrong = World(tmp_path, {"ML_ASSETS_RETENTION": "modles=2d"})
    wrong.pipelines.mkdir()
    assert "Did you mean 'models'?" in wrong.cli("ops", "gc", code=1)
    assert not (tmp_path / "state").exists()
