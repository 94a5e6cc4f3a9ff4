"""Recipients that are slow, closed or wrong: tried again where that helps, or left behind."""

import pytest
from apprise.plugins.email import NotifyEmail

from ml_assets.automation.alerts import delivery
from ml_assets.automation.alerts.delivery import deliver
from ml_assets_tests.automation.alerts.delivery.messages import SECRET, TOKEN, chat, message, to
from ml_assets_tests.worlds.listeners import Fault, Webhook, mailserver
from ml_assets_tests.worlds.world import free_ports


def test_an_answer_of_500_is_tried_again_and_taken(hook: Webhook) -> None:
    hook.faults.extend(["500", "500"])
    assert deliver(to(hook.url), message(), 20.0) is None
    assert len(hook.paths) == 3
    assert len(hook.bodies) == 1


def test_an_answer_of_403_is_not_tried_again(hook: Webhook) -> None:
    hook.faults.extend(["403"])
    assert deliver(to(hook.url), message(), 20.0) == "it answered 403"
    assert len(hook.paths) == 1


def test_a_redirect_is_not_followed(hook: Webhook) -> None:
    hook.faults.extend(["redirect"])
    assert deliver(to(hook.url), message(), 20.0) == "it answered 307"
    assert hook.paths == ["/"] or hook.paths == [""]


def test_a_closed_port_is_said_to_refuse() -> None:
    (port,) = free_ports(1)
    failed = deliver(to(f"http://127.0.0.1:{port}/{SECRET}"), message(), 20.0)
    assert failed == "it refused the connection (3 attempts)"


@pytest.mark.parametrize("fault", ["silence", "drip"])
def test_a_server_that_never_ends_its_answer_is_left_behind(
    hook: Webhook, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "ATTEMPT_SECONDS", 0.3)
    hook.faults.extend([fault] * 3)
    failed = deliver(to(hook.url), message(), 20.0)
    assert failed is not None
    assert failed.startswith("no answer")
    assert hook.bodies == []


def test_with_no_time_left_nothing_is_sent(hook: Webhook) -> None:
    assert deliver(to(hook.url), message(), 0.0) == "there was no time left to send it"
    assert hook.paths == []


def test_a_mail_server_that_says_later_is_tried_again_and_nobody_gets_it_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NotifyEmail, "request_rate_per_sec", 0)
    with mailserver() as box:
        box.refuses = 1
        url = f"mailto://127.0.0.1:{box.port}/?to=a@b.org,c@b.org&from=ml@b.org"
        assert deliver(to(url), message(), 20.0) is None
    assert sorted(str(mail["To"]) for mail in box.mails) == ["a@b.org", "c@b.org"]


@pytest.mark.parametrize(
    ("fault", "said"), [("500", "it answered 500"), ("redirect", "it answered 307")]
)
def test_a_medium_of_apprise_that_does_not_take_it_says_why(
    hook: Webhook, fault: Fault, said: str
) -> None:
    hook.faults.extend([fault] * 3)
    assert deliver(to(chat(hook.url)), message(), 20.0) == f"{said} (3 attempts)"
    assert hook.paths == [f"/hooks/{TOKEN}"] * 3, "and no redirect is followed"


@pytest.mark.parametrize("fault", ["silence", "drip"])
def test_a_medium_of_apprise_that_hangs_is_left_behind(hook: Webhook, fault: Fault) -> None:
    hook.faults.extend([fault] * 3)
    assert deliver(to(chat(hook.url)), message(), 0.3) == "no answer within 0 s"
    assert hook.bodies == []
