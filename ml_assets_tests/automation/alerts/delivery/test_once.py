"""Each message is told once to each recipient, and what was not taken is owed to it alone."""

import base64
import hmac
import json
from types import SimpleNamespace

import pytest

from ml_assets.automation.alerts import reported as told
from ml_assets.automation.alerts.delivery import ATTEMPT_SECONDS, ATTEMPTS, deliver
from ml_assets.automation.alerts.media import Recipient, recipients
from ml_assets.automation.alerts.message import Message
from ml_assets.automation.alerts.reported import KEY, read_told, tell
from ml_assets.errors import StorageError
from ml_assets_tests.automation.alerts.delivery.messages import NOW, Notebook, cause, round_of
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds.listeners import Webhook, webhook

SIGNING = "whsec_" + base64.b64encode(b"0123456789" * 4).decode()


def test_a_cause_is_told_once_and_again_when_it_was_gone(hook: Webhook) -> None:
    book = Notebook()
    assert "flights: failed contract to webhook 127.0.0.1" in round_of([cause()], book, hook.url)
    assert round_of([cause()], book, hook.url) == "1 open"
    assert round_of([cause(), cause("b")], book, hook.url).startswith("2 open; flights")
    assert [body["causes"] for body in hook.bodies] == [["a"], ["b"]]
    assert round_of([], book, hook.url) == "0 open; 2 gone"
    round_of([cause()], book, hook.url)
    assert [body["causes"] for body in hook.bodies] == [["a"], ["b"], ["a"]]


def test_what_a_recipient_did_not_take_is_owed_to_it_alone(hook: Webhook) -> None:
    with webhook() as other:
        other.faults.extend(["500"] * 3)
        book = Notebook()
        said = round_of([cause()], book, other.url + "/o", hook.url)
        assert "webhook 127.0.0.1 (address 1): it answered 500 (3 attempts)" in said
        round_of([cause()], book, other.url + "/o", hook.url)
        assert len(hook.bodies) == len(other.bodies) == 1


def test_a_message_that_is_refused_keeps_no_other_from_being_sent(hook: Webhook) -> None:
    hook.faults.extend(["403"])
    book, two = Notebook(), [cause(), cause("b", "failed run")]
    said = round_of(two, book, hook.url)
    assert "webhook 127.0.0.1: it answered 403" in said
    assert "flights: failed run to webhook 127.0.0.1" in said
    round_of(two, book, hook.url)
    assert [body["causes"] for body in hook.bodies] == [["b"], ["a"]], "the first was owed"


def test_recipients_that_hang_leave_the_next_one_its_time(
    hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(told, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def hanging(recipient: Recipient, message: Message, seconds: float) -> str | None:
        if "hangs" not in recipient.url:
            return deliver(recipient, message, seconds)
        clock[0] += min(ATTEMPTS * ATTEMPT_SECONDS, max(seconds, 0.0))
        return "no answer in time"

    two = [cause(), cause("b", "failed run")]
    to_three = recipients(["https://hangs.a.org", "https://hangs.b.org", hook.url])
    done = tell(two, to_three, Notebook(), hanging, NOW, 25.0)
    assert [body["causes"] for body in hook.bodies] == [["a"], ["b"]]
    hung = [f"webhook hangs.{name}.org: no answer in time" for name in "ab"]
    assert done.failed == hung, "told once, for all their messages"
    assert clock[0] <= 25.0


def test_each_message_is_written_down_before_the_next_is_sent(hook: Webhook) -> None:
    book = Notebook()
    seen: list[int] = []

    def watch(recipient: Recipient, message: Message, seconds: float) -> str | None:
        seen.append(sum(len(one.told) for one in read_told(book).open.values()))
        return deliver(recipient, message, seconds)

    two = [cause(), cause("b", "failed run")]
    tell(two, recipients([hook.url]), book, watch, NOW, 25.0)
    assert seen == [0, 1]


def test_a_record_of_another_version_is_an_error_and_nothing_is_sent(hook: Webhook) -> None:
    book = Notebook()
    book.values[KEY] = '{"version": "new", "open": []}'
    with pytest.raises(StorageError, match="another version"):
        round_of([cause()], book, hook.url)
    assert hook.paths == []


def test_the_message_of_a_test_is_signed_as_an_alert_is(
    hook: Webhook, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("ML_ASSETS_ALERTS", hook.url)
    monkeypatch.setenv("ML_ASSETS_WEBHOOK_SECRET", SIGNING)
    cli("ops", "alerts", "test")
    headers = {name.lower(): value for name, value in hook.headers[0].items()}
    body = json.dumps(hook.bodies[0])
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
    code = hmac.digest(base64.b64decode(SIGNING.removeprefix("whsec_")), signed, "sha256")
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(code).decode()}"
