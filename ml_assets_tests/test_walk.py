"""The walk, end to end, through the command line: real processes, real stores, a real release."""

import re
import signal
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.reports.inline_pictures import INLINE
from ml_assets_tests.worlds import deliveries, irises
from ml_assets_tests.worlds.world import World

IMAGE = r"data:image/svg\+xml;base64,([^)]*)\)"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("walk")
    irises.plant(root / "pipelines", root / "sources")
    deliveries.plant(root / "pipelines", root / "sources")
    yield World(root)


@pytest.fixture(scope="module")
def walked(world: World) -> str:
    """The first run of the partitioned pipeline: two gloo processes, FSDP."""
    return world.cli("run", "deliveries")


def test_the_walk_ends_in_a_released_model(world: World, walked: str) -> None:
    release = world.status("deliveries")["release"]
    assert release["stage"] == "production"
    assert release["decision"] == "passed"
    assert all(gate["passed"] for gate in release["gates"])
    assert "production is model" in walked


def test_following_inputs_from_the_release_leads_to_the_raw_snapshots(
    world: World, walked: str
) -> None:
    status = world.status("deliveries")
    made = {(s["key"], s["partition"], s["version"]): s for s in status["stages"]}
    reached: set[str] = set()
    frontier = list(status["release"]["inputs"])
    while frontier:
        wanted = frontier.pop()
        if wanted["key"].startswith("source:"):
            reached.add(wanted["key"])
            continue
        stage = made[(wanted["key"], wanted["partition"], wanted["version"])]
        frontier.extend(stage["inputs"])
    assert reached == {"source:orders", "source:arrivals", "source:depots"}


def test_partitions_have_versions_of_their_own(world: World, walked: str) -> None:
    stages = world.status("deliveries")["stages"]
    weeks = [s for s in stages if s["key"] == "deliveries/validated_table/orders"]
    assert len(weeks) == deliveries.WEEKS
    assert len({s["version"] for s in weeks}) == deliveries.WEEKS


def test_a_bad_row_is_quarantined_and_counted(world: World, walked: str) -> None:
    stages = world.status("deliveries")["stages"]

    def rows(key: str) -> int:
        return sum(s["rows"] for s in stages if s["key"] == f"deliveries/{key}")

    assert rows("raw_snapshot/raw_orders") - rows("validated_table/orders") == deliveries.BAD_ROWS


def test_a_table_of_the_teams_own_lies_between_the_contracts_and_the_features(
    world: World, walked: str
) -> None:
    stages = world.status("deliveries")["stages"]
    tables = [s for s in stages if s["key"] == "deliveries/derived_table/closed_orders"]
    assert len(tables) == deliveries.WEEKS
    assert {i["key"] for i in tables[0]["inputs"]} == {
        "deliveries/validated_table/orders",
        "deliveries/validated_table/arrivals",
    }
    features = [s for s in stages if s["key"] == "deliveries/feature_set"]
    read = [i["version"] for i in features[0]["inputs"] if "closed_orders" in i["key"]]
    assert read == [table["version"] for table in tables[:2]]


def test_running_again_repeats_no_work_and_says_so(world: World, walked: str) -> None:
    before = world.status("deliveries")
    again = world.cli("run", "deliveries")
    assert "make  " not in again
    assert "skip  deliveries/trained_model: same code, same inputs" in again
    assert world.status("deliveries")["release"] == before["release"]


@pytest.mark.parametrize("moment", ["deliveries__feature_set", "step 40 of"])
def test_a_run_killed_at_any_moment_ends_in_the_same_release(
    world: World, walked: str, tmp_path: Path, moment: str
) -> None:
    killed = World(tmp_path)
    irises.plant(killed.root / "pipelines", killed.sources)
    deliveries.plant(killed.root / "pipelines", killed.sources)
    killed.stopped_at(moment, signal.SIGKILL, "run", "deliveries", "--verbose")
    again = killed.cli("run", "deliveries")
    if moment == "step 40 of":  # the features may be made before the kill comes
        assert "was interrupted; it is marked as failed" in again
    released = killed.status("deliveries")["release"]
    assert released["version"] == world.status("deliveries")["release"]["version"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("moment", ["> irises__feature_set", "step 20 of"])
def test_an_interrupted_run_ends_in_one_line(tmp_path: Path, moment: str) -> None:
    stopped = World(tmp_path).plant(irises)
    code, said = stopped.stopped_at(moment, signal.SIGINT, "run", "irises")
    assert said == "interrupted: what was made is kept; run again to continue\n"
    assert code == 130


def test_the_report_is_one_file_with_pictures(world: World, walked: str) -> None:
    page = Path(world.cli("models", "report", "deliveries").strip())
    html = page.read_text()
    assert "<svg" in html
    links = re.findall(r'<a href="http://127\.0\.0\.1:', html)
    assert len(links) == html.replace("http://www.w3.org", "").count("http://") > 0
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\(", html)


def test_the_asset_pages_carry_pictures_that_fit_an_event(world: World, walked: str) -> None:
    pages = {
        stage: world.page("deliveries", *stage.split("/"))["pictures"]
        for stage in (
            "raw_snapshot/raw_orders",
            "validated_table/orders",
            "feature_set",
            "checkpoints",
            "trained_model",
            "evaluation_report",
            "released_model",
        )
    }
    assert all(1_000 < len(page) < 60_000 for page in pages.values())
    assert f"{deliveries.BAD_ROWS} are in quarantine" in pages["validated_table/orders"]
    assert "Label rate" in pages["feature_set"]
    assert "Predictions on a fixed batch" in pages["checkpoints"]
    assert "| depot | " in pages["trained_model"]
    assert "Feature importance" in pages["evaluation_report"]
    assert "| to production | " in pages["released_model"]
    first, last = "2024-01-08", "2024-03-18"
    drawn = [b64decode(file).decode() for file in re.findall(IMAGE, pages["feature_set"])]
    assert any(first in svg and last in svg for svg in drawn), "all partitions are in one picture"


@pytest.mark.parametrize(
    ("asset", "words"),
    [
        ("raw_snapshot/raw_orders", "Rows by partition"),
        ("validated_table/orders", "Rows against the contract"),
        ("feature_set", "Label rate by partition"),
        ("training_set", "Rows by split"),
        ("trained_model", "Loss, step by step"),
        ("evaluation_report", "is better"),
        ("released_model", "is better"),
    ],
)
def test_the_most_telling_picture_is_on_the_page_without_a_click(
    world: World, walked: str, asset: str, words: str
) -> None:
    page = world.page("deliveries", *asset.split("/"))
    shown = str(page["at_a_glance"])
    assert words in shown.partition("\n")[0]
    assert len(shown) < INLINE, "longer Markdown is behind a button"
    assert "<tspan" in b64decode(re.findall(IMAGE, shown)[0]).decode()


def test_each_checkpoint_shows_the_curves_so_far(world: World, walked: str) -> None:
    with world.instance() as instance:
        key = dg.AssetKey(["deliveries", "checkpoints"])
        found = instance.fetch_materializations(key, limit=100, ascending=True).records
    live = [record for record in found if "best" in record.asset_materialization.metadata]
    assert len(live) > 2
    curves = [str(r.asset_materialization.metadata["pictures"].value) for r in live]
    points = [b64decode(re.findall(IMAGE, one)[0]).count(b",") for one in curves]
    assert points == sorted(points), "none has fewer points than the one before"
    assert points[0] < points[-1]
    ended = world.page("deliveries", "trained_model")
    assert ended["best_checkpoint"].startswith(f"step-{ended['best_step']:06d}."), "it is named"
    assert ended["row_order"].startswith("rows, all of the split mixed with each other")


def test_the_page_says_what_its_processes_are_worth(world: World, walked: str) -> None:
    page = world.page("deliveries", "trained_model")
    together, alone = page["training_throughput_samples_per_sec"], page["rows_per_second_alone"]
    assert page["processes"] == 2
    assert page["efficiency"] == pytest.approx(together / (2 * alone), rel=1e-3)
    assert 0 < page["communication_share"] < 1
    assert page["idle_share"] == 0
    said = f"2 processes train {together:,.0f} rows/s, {page['efficiency']:.0%} of 2 times the"
    assert page["scaling"].startswith(said)


def test_a_second_pipeline_needs_nothing_but_its_folder(world: World) -> None:
    output = world.cli("run", "irises")
    assert "production is model" in output
    assert world.status("irises")["release"]["metrics"]["accuracy"] > 0.8


def test_a_bad_label_stops_the_walk_and_names_the_rows(world: World) -> None:
    irises.write_flowers(world.sources, species_of_first="tulip")
    try:
        output = world.cli("run", "irises", code=1)
    finally:
        irises.write_flowers(world.sources)
    assert "species" in output
    assert "irises" in output


def test_a_missing_landing_folder_says_what_to_do(world: World) -> None:
    orders = world.sources / "orders"
    moved = world.sources / "moved"
    orders.rename(moved)
    try:
        output = world.cli("run", "deliveries", code=1)
    finally:
        moved.rename(orders)
    assert str(orders) in output
    assert "ML_ASSETS_SOURCES" in output


def test_a_week_with_half_the_rows_is_not_published(world: World, walked: str) -> None:
    week = sorted((world.sources / "orders").iterdir())[-1]
    whole = week.read_text()
    try:
        week.write_text("".join(whole.splitlines(keepends=True)[: deliveries.ORDERS // 2]))
        output = world.cli("run", "deliveries", "--through", "validated_table", code=1)
    finally:
        week.write_text(whole)
    assert ": -50.4%, within 20% was expected" in output
    assert "nothing was published" in output
