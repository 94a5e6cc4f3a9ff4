"""No secret of an address leaves it; an address that cannot be used is told by its place."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from apprise.plugins.email import NotifyEmail

from ml_assets.automation.alerts.delivery import deliver
from ml_assets.automation.alerts.media import recipients
from ml_assets.errors import SettingsError
from ml_assets.settings import read_settings
from ml_assets_tests.automation.alerts.delivery.messages import (
    SECRET,
    TOKEN,
    Notebook,
    cause,
    chat,
    message,
    round_of,
    to,
)
from ml_assets_tests.worlds.listeners import Webhook
from ml_assets_tests.worlds.world import free_ports


@pytest.fixture
def root_log() -> Iterator[io.StringIO]:
    """What reaches the process's log. Pytest's own capture listens to loggers that are cut off."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logging.getLogger().addHandler(handler)
    yield written
    logging.getLogger().removeHandler(handler)


def test_no_secret_of_an_address_is_in_record_words_repr_or_log(
    caplog: pytest.LogCaptureFixture, root_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NotifyEmail, "request_rate_per_sec", 0)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("ours").info("it is written down")
    (port,) = free_ports(1)
    urls = [
        f"http://ann:{SECRET}@127.0.0.1:{port}/{SECRET}?k={SECRET}",
        chat(f"http://127.0.0.1:{port}"),
        f"mailto://ann:{SECRET}@127.0.0.1:{port}/?to=ops@b.org&from=ml@b.org",
    ]
    book = Notebook()
    said = round_of([cause()], book, *urls)
    assert said.count("refused the connection") == 3
    unread = deliver(to(f"slack://{SECRET}/{TOKEN}"), message(), 20.0)
    assert unread is not None
    assert unread.startswith("apprise cannot read this address")
    settings = read_settings({"ML_ASSETS_ALERTS": " ".join(urls)})
    assert settings.alerts == tuple(urls)
    kept = (
        said,
        unread,
        str(book.values),
        repr(recipients(urls)),
        repr(settings),
        root_log.getvalue(),
    )
    assert "it is written down" in root_log.getvalue()
    for text in kept:
        assert SECRET not in text
        assert TOKEN not in text


def test_webhooks_at_one_host_are_told_apart_by_their_places() -> None:
    urls = [f"https://one.org/{SECRET}", f"https://two.org/{SECRET}", f"https://one.org/{TOKEN}"]
    assert [one.shown for one in recipients(urls)] == [
        "webhook one.org (address 1)",
        "webhook two.org",
        "webhook one.org (address 3)",
    ]


def test_apprise_is_loaded_when_an_alert_goes_out_and_not_before() -> None:
    program = (
        "import sys; from ml_assets.automation.alerts import sensor; from"
        " ml_assets.automation.alerts.media import recipients;"
        " assert recipients(['mailtos://a:b@host']); print('apprise' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_without_apprise_a_webhook_works_and_other_media_name_the_extra(
    hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    assert deliver(to(hook.url), message(), 20.0) is None
    with pytest.raises(
        SettingsError, match=r"address 2 is an address of slack\. .*ml_assets\[alerts\]"
    ):
        recipients([hook.url, f"slack://{SECRET}"])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"{SECRET}", "is not a URL"),
        (f"https://[{SECRET}/", "is not a URL"),
        (f"https://host:{SECRET}/", "is not a URL"),
        (f"https://ann:{SECRET}@", "names no host"),
    ],
)
def test_an_address_that_cannot_be_used_is_named_by_its_place(url: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"address 2 .*{said}") as error:
        recipients(["https://host/x", url])
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://{SECRET}@host/x",
        f"mailtos://ann:{SECRET}@host/?to=a@b.org%0aBcc:c@d.org",
        f"slack://{SECRET}",
    ],
)
def test_an_address_that_apprise_cannot_read_is_told_when_it_is_used(url: str) -> None:
    said = deliver(to(url), message(), 20.0)
    assert said is not None
    assert said.startswith("apprise cannot read this address")
    assert SECRET not in said
