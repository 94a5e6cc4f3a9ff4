"""What a person sees in the UI, in a real browser: lineage, a run that succeeds, a picture, a gate.

Needs a Chromium from the system's packages; without one the tests are skipped.
"""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.ui import PATIENCE, serving
from ml_assets_tests.worlds.world import World

if TYPE_CHECKING:
    from playwright.sync_api import Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        BROWSER is None,
        reason=f"no browser: install one of {BROWSERS}, such as: apt-get install chromium",
    ),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A released model, and then a policy that it does not meet."""
    world = World(tmp_path_factory.mktemp("browser")).plant(irises)
    world.cli("run", "irises")
    world.edit("irises", ("at_least: 0.8", "at_least: 0.9999"))
    world.cli("run", "irises", code=3)
    return world


@pytest.fixture(scope="module")
def address(world: World) -> Iterator[str]:
    """Where the UI of that world is served, its daemon beside it."""
    with serving(world) as address:
        yield address


@pytest.fixture
def page(address: str) -> Iterator["Page"]:
    """One tab whose links are relative to the UI."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = browser.new_page(base_url=address, viewport={"width": 1500, "height": 1000})
        tab.set_default_timeout(PATIENCE * 1000)
        yield tab
        browser.close()


def test_the_lineage_shows_every_stage(page: "Page") -> None:
    page.goto("/locations/__repository__@ml_assets/asset-groups/irises")
    for stage in ("training_set", "trained_model", "evaluation_report", "released_model"):
        page.get_by_text(stage, exact=True).first.wait_for()


def test_an_asset_is_materialized_by_a_click_and_succeeds(page: "Page") -> None:
    page.goto("/assets/irises/raw_snapshot/raw_flowers")
    page.get_by_role("button", name="Materialize").first.click()
    launched = page.get_by_role("link", name="View", exact=True).first.get_attribute("href")
    assert launched
    page.goto(launched)
    page.get_by_text("Success", exact=True).first.wait_for()


def test_a_report_is_a_picture_on_its_asset_page(page: "Page") -> None:
    page.goto("/assets/irises/evaluation_report")
    page.get_by_text("[Show Markdown]").first.click()
    picture = page.locator("img[src^='data:image']").first
    picture.wait_for()
    assert picture.evaluate("image => image.naturalWidth") > 100


@pytest.mark.parametrize("stage", ["evaluation_report", "trained_model"])
def test_the_most_telling_picture_is_seen_without_a_dialog(page: "Page", stage: str) -> None:
    page.goto(f"/assets/irises/{stage}")
    page.get_by_text("at_a_glance", exact=True).first.wait_for()
    picture = page.locator("img[src^='data:image/svg+xml']").first
    picture.wait_for(timeout=20_000)
    assert page.get_by_role("dialog").count() == 0
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 100
    seen = picture.bounding_box()
    assert seen is not None and seen["width"] > 100 and seen["height"] > 30


def test_a_gate_that_refused_is_red_and_says_why(page: "Page") -> None:
    page.goto("/assets/irises/evaluation_report?view=checks")
    page.get_by_text("accuracy_floor", exact=True).first.wait_for()
    page.get_by_text("Failed", exact=True).first.wait_for()
    page.get_by_text("not at least 0.9999").first.wait_for()
