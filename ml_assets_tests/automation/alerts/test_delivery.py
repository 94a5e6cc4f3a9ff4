"""An alert reaches webhooks, Slack and mail once a cause, survives their faults, and tells nothing
of their addresses."""

import base64
import hmac
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from apprise.plugins.email import NotifyEmail
from apprise.plugins.slack import NotifySlack

from ml_assets.automation.alerts import delivery
from ml_assets.automation.alerts import reported as told
from ml_assets.automation.alerts.delivery import ATTEMPT_SECONDS, ATTEMPTS, deliver
from ml_assets.automation.alerts.media import Recipient, recipients
from ml_assets.automation.alerts.message import LINE, SHOWN, Cause, Kind, Message, messages
from ml_assets.automation.alerts.reported import KEY, read_told, tell
from ml_assets.cli.main import main
from ml_assets.errors import SettingsError, StorageError
from ml_assets.settings import read_settings
from ml_assets_tests.worlds.listeners import Fault, Webhook, mailserver, webhook
from ml_assets_tests.worlds.world import free_ports

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECRET = "s3cr3t-t0ken"
TOKEN = "3ccdd113474722377935511f"
SIGNING = "whsec_" + base64.b64encode(b"0123456789" * 4).decode()


class Notebook:
    """A record in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get_cursor_values(self, keys: set[str]) -> Mapping[str, str]:
        return {key: self.values[key] for key in keys if key in self.values}

    def set_cursor_values(self, pairs: Mapping[str, str]) -> None:
        self.values.update(pairs)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(delivery, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


@pytest.fixture
def root_log() -> Iterator[io.StringIO]:
    """What reaches the process's log. Pytest's own capture listens to loggers that are cut off."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logging.getLogger().addHandler(handler)
    yield written
    logging.getLogger().removeHandler(handler)


def cause(name: str = "a", kind: Kind = "failed contract", what: str = "12 rows fail") -> Cause:
    return Cause(name, kind, "flights", what, "http://ui/assets/x")


def message(*causes: Cause) -> Message:
    return Message(causes or (cause(),), NOW)


def to(url: str) -> Recipient:
    (found,) = recipients([url])
    return found


def chat(server: str) -> str:
    """An address of apprise, of a medium that a server on this machine can stand for."""
    return f"{server.replace('http://', 'mmost://')}/{TOKEN}"


def round_of(causes: list[Cause], book: Notebook, *urls: str) -> str:
    return str(tell(causes, recipients(urls), book, deliver, NOW, 25.0))


# --- what is said ---------------------------------------------------------------------------------


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


# --- faults ---------------------------------------------------------------------------------------


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


# --- once -----------------------------------------------------------------------------------------


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
        assert "webhook 127.0.0.1: it answered 500 (3 attempts)" in said
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
    hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_ASSETS_ALERTS", hook.url)
    monkeypatch.setenv("ML_ASSETS_WEBHOOK_SECRET", SIGNING)
    assert main(["ops", "alerts", "test"]) == 0
    headers = {name.lower(): value for name, value in hook.headers[0].items()}
    body = json.dumps(hook.bodies[0])
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
    code = hmac.digest(base64.b64decode(SIGNING.removeprefix("whsec_")), signed, "sha256")
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(code).decode()}"


# --- secrets --------------------------------------------------------------------------------------


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
