"""The page of runs in a real browser, as `ml-assets ui` serves it: heads sort, text is text."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ml_assets.actions.experiments import render
from ml_assets.actions.report_server import serving_reports
from ml_assets.spec.records import Interval
from ml_assets_tests.browser.test_ui import BROWSER, pytestmark
from ml_assets_tests.reports.test_experiments import EVIL, FAILED, ROW
from ml_assets_tests.worlds.world import free_ports

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["pytestmark"]

AUC = {"first": 0.70, "second": 0.74, "third": 0.72}
ROWS = [
    replace(
        ROW,
        time=ROW.time - timedelta(hours=place),
        words={"experiment": name, "hypothesis": EVIL},
        metrics={"auc": Interval(value=value, low=value, high=value)},
        rows=10 ** (place + 1),
    )
    for place, (name, value) in enumerate(AUC.items())
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    (port,) = free_ports(1)
    html = render("irises", [*ROWS, FAILED], [], {})
    folder: Path = tmp_path_factory.mktemp("reports")
    with serving_reports(folder, f"http://127.0.0.1:{port}", {"irises": html}.get):
        yield f"http://127.0.0.1:{port}/irises/experiments.html"


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "Browser", address: str) -> Iterator["Page"]:
    """The page, which must stay silent: no dialog, no error, nothing that a policy stopped."""
    said: list[str] = []
    tab = browser.new_page()
    tab.on("dialog", lambda dialog: said.append(dialog.message))
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(address)
    yield tab
    tab.close()
    assert [text for text in said if "favicon" not in text and "404" not in text] == []


def order(page: "Page") -> list[str]:
    return page.locator(".runs tbody tr td:nth-child(4) > b").all_inner_texts()


def test_a_click_on_a_head_sorts_by_it_and_another_click_turns_it_round(page: "Page") -> None:
    assert order(page) == ["first", "second", "third"]
    head = page.get_by_role("columnheader", name="ROC AUC")
    head.click()
    assert order(page) == ["second", "third", "first"]
    assert head.get_attribute("aria-sort") == "descending"
    head.click()
    assert order(page) == ["first", "third", "second"]


def test_numbers_are_not_sorted_as_words_and_the_unknown_is_last(page: "Page") -> None:
    page.get_by_role("columnheader", name="Rows").click()
    assert order(page)[:2] != ["second", "third"]
    page.get_by_role("columnheader", name="ROC AUC").press("Enter")
    page.get_by_role("columnheader", name="ROC AUC").press("Enter")
    last = page.locator(".runs tbody tr").last.inner_text()
    assert "failed at trained_model" in last


def test_a_hypothesis_that_is_a_script_is_read_and_not_run(page: "Page") -> None:
    assert page.get_by_text("<script>alert(1)</script>").count() == 3


def test_without_a_script_everything_is_there(browser: "Browser", address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(address)
    assert tab.locator(".runs tbody tr").count() == 4
    assert tab.locator(".runs thead th[tabindex]").count() == 0
    context.close()


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_it_follows_the_theme_and_fits_a_narrow_screen(
    browser: "Browser", address: str, scheme: str, dark: bool
) -> None:
    context = browser.new_context(
        color_scheme="dark" if dark else "light", viewport={"width": 400, "height": 800}
    )
    tab = context.new_page()
    tab.goto(address)
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) < 200) == dark
    assert tab.evaluate("document.documentElement.scrollWidth") == 400
    context.close()
