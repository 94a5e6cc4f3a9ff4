"""The first page says of each pipeline what the ledger and the records say, and why."""

import http.client
import re
import shutil
from functools import partial
from html import escape
from pathlib import Path

from ml_assets.actions.home_page import HomePageEntry, Verdict, _came, states
from ml_assets.actions.report_server import serving_reports
from ml_assets.assets.released_model.rollback import RolledBack, Way, append_rollback
from ml_assets.automation.planner.candidate_runs import drift_candidate
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import champion
from ml_assets.reports.picture import Tile
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.store.open import shared_snapshots
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.records.conftest import (
    PIPELINE,
    A,
    B,
    decision,
    evidence,
    gate,
    refused,
    store,
)
from ml_assets_tests.records.conftest import released as let_through
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World, free_ports

__all__ = ["store"]


def first_page(folder: Path, found: dict[str, HomePageEntry]) -> str:
    """As the server answers it."""
    (port,) = free_ports(1)
    with serving_reports(folder, f"http://127.0.0.1:{port}", home=partial(dict, found)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read().decode()


def test_it_says_what_is_in_production_by_whose_word_and_what_was_decided_last(
    released: World,
) -> None:
    found = states(released.settings)
    model = champion(read(shared_snapshots(released.settings.snapshots), "irises"))
    assert model is not None
    assert list(found) == ["deliveries", "irises"]
    flowers = found["irises"]
    assert flowers.verdict.tone == "wait"
    assert flowers.verdict.headline == f"Model {model[:12]} is in production"
    assert "by team:botany: decision in line" in flowers.verdict.reasons[0]
    assert "refused since" in flowers.verdict.reasons[1]
    tiles = {tile.name: tile for tile in flowers.tiles}
    assert tiles["last decision"].value == "refused"  # a stricter floor refused the model since
    assert "accuracy_floor" in tiles["last decision"].below
    assert tiles["drift"].value == "not watched"
    assert tiles["machines this month"].value.endswith(" minutes")
    assert "ML_ASSETS_PRICES" in tiles["machines this month"].below
    assert {tile.name: tile.value for tile in found["deliveries"].tiles}[
        "newest features"
    ] == "2024-03-18"

    folder = released.settings.cache / "reports"
    shown = first_page(folder, found)
    assert flowers.verdict.headline in shown
    for state in found.values():
        for url in state.ways.values():
            assert f'href="{escape(url)}"' in shown


def test_a_release_without_a_baseline_is_told_alike_here_by_run_and_by_data_drift(
    released: World, tmp_path: Path
) -> None:
    for name in ("state", "sources", "pipelines"):
        shutil.copytree(released.root / name, tmp_path / name)
    world = World(tmp_path, released.extra)

    def drift_tile() -> Tile:
        return next(one for one in states(world.settings)["irises"].tiles if one.name == "drift")

    whole = (
        "its spec has no 'drift'. Add to it how new rows are cut into periods: by time, drift:"
        " {every: 1 week}, or by number, drift: {rows: 500}"
    )
    assert drift_tile().below == whole
    assert f"irises watches for no drift: {whole}" in world.cli("data", "drift", "irises", code=1)

    spec = world.pipelines / "irises" / "defs.yaml"
    spec.write_text(f"{spec.read_text()}  drift: {{rows: 50}}\n")
    tile, pipeline = drift_tile(), open_pipeline("irises", world.settings)
    assert tile.value == "not looked for"
    assert tile.below.endswith(
        "was released without a baseline, so no drift is looked for; the next release has one"
    )
    assert drift_candidate(pipeline) == tile.below
    assert tile.below in world.cli("data", "drift", "irises", code=1)


def test_a_pipeline_without_a_release_or_with_a_broken_spec_says_so(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    (state,) = states(world.settings).values()
    assert (state.verdict.tone, state.verdict.headline) == ("wait", "Nothing is in production yet")
    spec = world.pipelines / "irises" / "defs.yaml"
    spec.write_text(irises.SPEC.replace("family: mlp", "family: oak"))
    (state,) = states(world.settings).values()
    assert (state.verdict.tone, state.verdict.headline) == ("bad", "This pipeline cannot be read")
    assert "defs.yaml" in state.verdict.reasons[0]


def test_without_a_release_it_says_what_refused_it_and_where_to_look(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    no = decision(evidence(A), gates=(gate("floor", passed=False),))
    by = "refused by 1 of 1 gate: floor: auc 0.73 against 0.7"
    ours = no.model_copy(update={"pipeline": "irises", "reason": by})
    record_decision(shared_snapshots(world.settings.snapshots), ours, "me")
    (state,) = states(world.settings).values()
    said, look, then = state.verdict.reasons
    assert said == f"Model aaaaaaaaaaaa was {by}"
    assert "refused" not in {tile.name: tile for tile in state.tiles}["last decision"].below
    assert look == "The evidence: ml-assets models report irises --open"
    assert then == "After that is mended: ml-assets run irises"


def test_without_a_release_it_says_which_step_failed_and_where_its_log_is(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    (world.sources / "irises.csv").write_text("sepal_length,species\nlong,setosa\n")
    world.cli("run", "irises", code=1)
    (state,) = states(world.settings).values()
    failed, then = state.verdict.reasons
    assert failed.startswith("Data is missing: irises/raw_snapshot")
    assert re.search(r"the whole log: ml-assets ops logs [0-9a-f]{8}$", failed)
    assert then == "After that is mended: ml-assets run irises"


def test_what_people_say_is_text_on_the_page(tmp_path: Path) -> None:
    nasty = "<script>alert(1)</script>"
    said = HomePageEntry(nasty, Verdict("good", nasty, (nasty,)), (), {nasty: "javascript"})
    shown = first_page(tmp_path, {"irises": said})
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown


def test_a_model_that_a_rollback_brought_back_and_that_was_refused_says_both(store) -> None:
    let_through(store, A)
    assert _came(read(store, PIPELINE), read(store, PIPELINE)[-1])[1:] == ()
    refused(store, A)
    let_through(store, B, champion=A)
    moved = append_rollback(store, PIPELINE, Way(B, A), ReleaseSpec(), "wt", "complaints")
    assert isinstance(moved, RolledBack)
    since, then = _came(read(store, PIPELINE), moved.entry)
    assert since.endswith("rolled back to by wt: complaints")
    assert "refused since" in then and "(ledger line 3)" in then
