"""What a recipient gets: words, a link, and nothing that acts in a chat or a mail."""

import base64
import json

import pytest
from apprise.plugins.slack import NotifySlack

from ml_assets.automation.alerts import delivery
from ml_assets.automation.alerts.delivery import deliver
from ml_assets.automation.alerts.message import LINE, SHOWN, Cause, messages
from ml_assets_tests.automation.alerts.delivery.messages import (
    NOW,
    SECRET,
    TOKEN,
    cause,
    chat,
    message,
    to,
)
from ml_assets_tests.worlds.listeners import Webhook, mailserver


def test_a_webhook_gets_json_with_the_kind_the_words_and_the_link(hook: Webhook) -> None:
    assert deliver(to(f"{hook.url}/in?key={SECRET}"), message(), 20.0) is None
    (body,) = hook.bodies
    assert hook.paths == [f"/in?key={SECRET}"]
    assert body == {
        "schema": 1,
        "kind": "failed contract",
        "pipeline": "flights",
        "title": "flights: failed contract",
        "text": "12 rows fail\nhttp://ui/assets/x",
        "link": "http://ui/assets/x",
        "causes": ["a"],
        "time": "2026-03-01T12:00:00+00:00",
    }


def test_a_user_and_password_of_a_webhook_are_a_header(hook: Webhook) -> None:
    url = hook.url.replace("http://", f"http://ann:{SECRET}@")
    assert deliver(to(url), message(), 20.0) is None
    word = base64.b64encode(f"ann:{SECRET}".encode()).decode()
    assert hook.headers[0]["Authorization"] == f"Basic {word}"


def test_slack_gets_text_in_which_nothing_calls_a_channel(
    hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NotifySlack, "webhook_url", hook.url)
    hostile = cause(what="<!channel> 1 < 2 & <http://evil|click>")
    url = f"https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/{TOKEN}"
    assert deliver(to(url), message(hostile), 20.0) is None
    assert hook.paths == [f"/T1JJ3T3L2/A1BRTD4JD/{TOKEN}"]
    sent = json.dumps(hook.bodies[0])
    assert "&lt;\\u200b!channel&gt; 1 &lt; 2 &amp; &lt;http://evil|click&gt;" in sent
    assert "[ml-assets] flights: failed contract" in sent
    assert "http://ui/assets/x" in sent


@pytest.mark.parametrize("call", ["<!channel>", "<!here>", "@channel", "@All", "@here", "<@U12>"])
def test_mattermost_gets_text_in_which_nothing_calls_a_channel(hook: Webhook, call: str) -> None:
    hostile = cause(what=f"late{call} of ann@allen.org, 1 < 2")
    place = hook.url.removeprefix("http://")
    assert deliver(to(f"mmost://{place}/{TOKEN}"), message(hostile), 20.0) is None
    sent = hook.bodies[0]["text"]
    assert call not in sent
    assert call in sent.replace("\u200b", "")
    assert "ann@allen.org, 1 < 2" in sent


def test_an_address_of_slack_is_known_by_its_host() -> None:
    assert to("https://hooks.slack.com/services/T/B/x").medium == "slack"
    assert to("https://hooks.slack.com.evil.org/x").medium == "webhook"


def test_a_medium_of_apprise_gets_title_and_text(hook: Webhook) -> None:
    assert deliver(to(chat(hook.url)), message(), 20.0) is None
    (body,) = hook.bodies
    assert hook.paths == [f"/hooks/{TOKEN}"]
    assert body["username"] == "ml-assets"
    lines = ["[ml-assets] flights: failed contract", "12 rows fail", "http://ui/assets/x"]
    assert body["text"].splitlines() == lines
    assert "icon_url" not in body, "no picture from somebody else's server"


def test_a_mail_has_a_subject_of_one_line_whatever_a_name_holds() -> None:
    with mailserver() as box:
        url = f"mailto://127.0.0.1:{box.port}/?to=ops@b.org,dev@b.org&from=ml@b.org"
        nasty = Cause("a", "failed run", "fl\r\nBcc: evil@x.org", "späte Züge", "http://ui/runs/1")
        assert deliver(to(url), message(nasty), 20.0) is None
    assert box.recipients == ["ops@b.org", "dev@b.org"]
    for mail in box.mails:
        assert mail["Subject"] == "[ml-assets] fl Bcc: evil@x.org: failed run"
        assert mail["From"] == "ml@b.org"
        assert mail["Bcc"] is None
        payload = mail.get_payload(decode=True)
        assert isinstance(payload, bytes)
        assert payload.decode().splitlines() == ["späte Züge", "http://ui/runs/1"]


def test_a_mail_server_is_logged_in_to_with_what_the_url_says() -> None:
    with mailserver() as box:
        url = f"mailto://ann:p%40ss@127.0.0.1:{box.port}/?to=ops@b.org&from=ml@b.org"
        assert deliver(to(url), message(), 20.0) is None
    assert base64.b64decode(box.logins[0].removeprefix("PLAIN ")) == b"\0ann\0p@ss"
    assert len(box.mails) == 1


def test_no_password_goes_to_another_machine_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LOOPBACK", ())
    with mailserver() as box:
        at = f"ann:{SECRET}@127.0.0.1:{box.port}/?to=ops@b.org&from=ml@b.org"
        refused = deliver(to(f"mailto://{at}"), message(), 20.0)
        assert refused is not None
        assert refused.startswith("the password would be sent unencrypted")
        monkeypatch.setattr(delivery, "RETRIES", 0)
        refused = deliver(to(f"mailtos://{at}"), message(), 20.0)
        assert refused is not None
        assert refused.startswith("it offers no encryption")
    assert box.logins == []


def test_a_storm_is_one_message_a_kind_and_a_long_text_is_cut() -> None:
    many = [cause(f"{n:02}", what="x" * 2000) for n in range(SHOWN + 5)]
    found = list(messages([*many, cause("run", "failed run")], NOW))
    assert [one.title for one in found] == ["flights: failed contract (17)", "flights: failed run"]
    assert found[0].text.endswith("\n\nand 5 more.")
    assert len(found[0].text) < SHOWN * (LINE + 40)
    assert len(found[0].document()["causes"]) == SHOWN + 5
