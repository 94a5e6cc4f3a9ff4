"""A webhook to deliver to, on this machine."""

from collections.abc import Iterator

import pytest

from ml_assets.automation.alerts import delivery
from ml_assets_tests.worlds.listeners import Webhook, webhook


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(delivery, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found
