"""`ml-assets status`: what it says of a release is of the release."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.actions.home_page import states
from ml_assets.adapters.run_journal import _reason
from ml_assets.records.experiments import FAILED, Begun, FailedStep, Words, add, begin
from ml_assets.spec.base import canonical_json
from ml_assets.store.open import shared_snapshots
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World


@pytest.mark.daemon
def test_the_metrics_are_those_of_the_released_model_though_another_was_refused(
    tmp_path: Path,
) -> None:
    world = World(tmp_path).plant(irises)
    world.cli("run", "irises")
    released = world.status("irises")["release"]
    spec = world.pipelines / "irises" / "defs.yaml"
    worse = spec.read_text().replace("epochs: 30", "epochs: 1")
    spec.write_text(worse.replace("at_least: 0.8", "at_least: 0.999"))
    world.cli("run", "irises", code=3)
    now = world.status("irises")["release"]
    assert (now["version"], now["metrics"]) == (released["version"], released["metrics"])
    assert now["metrics"]["accuracy"] > 0.8


@pytest.mark.daemon
def test_a_failure_whose_cause_is_gone_does_not_stand(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    world.cli("run", "irises")
    flowers = world.sources / "irises.csv"
    header, *rows = flowers.read_text().splitlines()
    copies = [f"{9000 + n},{row.partition(',')[2]}" for n, row in enumerate(rows)]
    good = flowers.read_text()
    flowers.write_text("\n".join([header, *rows, *copies]) + "\n")
    world.cli("run", "irises", code=1)
    assert "failed at training_set" in world.cli("status", "irises")
    flowers.write_text(good)
    assert "failed at training_set" in world.cli("status", "irises"), "it was not read again yet"
    world.cli("run", "irises")
    assert "failed at" not in world.cli("status", "irises")


def test_a_run_that_was_interrupted_is_told_as_such_with_how_it_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    store, run, now = shared_snapshots(world.settings.snapshots), "c0ffee00" * 4, datetime.now(UTC)
    words = Words.of({"goal": "0.9"})
    begin(
        store,
        Begun(pipeline="irises", run=run, trigger="by hand", words=words, config={}, time=now),
    )
    stopped = FailedStep(stage="trained_model", reason=_reason(KeyboardInterrupt()), time=now)
    add(store, "irises", run, {FAILED: canonical_json(stopped)})
    said = world.cli("status", "irises")
    assert "was interrupted at trained_model. What was made is kept" in said
    assert "the next run goes on from there: ml-assets run irises" in said
    assert "failed" not in said
    (state,) = states(world.settings).values()
    (only,) = state.verdict.reasons
    assert only.endswith("ml-assets run irises"), "nothing is to be mended"
