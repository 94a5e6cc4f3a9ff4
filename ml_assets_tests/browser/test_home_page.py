"""The first page in a real browser: all is seen, on a desk and on a phone, from here alone."""

from functools import partial
from typing import TYPE_CHECKING

import pytest

from ml_assets.actions.home_page import states
from ml_assets.actions.report_server import serving_reports
from ml_assets_tests.browser.test_ui import BROWSER
from ml_assets_tests.worlds.world import World, free_ports

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Request

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium")


def test_it_shows_what_is_in_production_and_fits_on_the_screen(released: World) -> None:
    from playwright.sync_api import sync_playwright

    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    with (
        serving_reports(
            released.settings.cache / "reports", address, home=partial(states, released.settings)
        ),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for width in (1280, 400):
            require_all_is_seen(browser, address, width)
        browser.close()


def require_all_is_seen(browser: "Browser", address: str, width: int) -> None:
    asked: list[Request] = []
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("request", lambda one: asked.append(one))
    page.goto(address)
    flowers = page.locator("#irises")
    assert flowers.get_by_text("is in production").is_visible()
    refused = flowers.locator(".tile.bad")
    assert refused.locator("b").inner_text() == "refused"
    assert "accuracy_floor" in refused.locator("small").inner_text()
    assert flowers.locator(".tile").count() == 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert {one.url.startswith(address) for one in asked} == {True}
