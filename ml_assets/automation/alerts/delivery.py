"""Delivers a message to a recipient: a few attempts within a time limit; a failure is a value.

Apprise sends to every medium but the webhook, which gets a document of ours with the list of causes
that apprise cannot send.
"""

import hashlib
import hmac
import json
import logging
import re
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ml_assets.automation.alerts.media import WEBHOOK, Recipient
from ml_assets.automation.alerts.message import Message
from ml_assets.settings.access import secret_bytes

if TYPE_CHECKING:
    from apprise import Apprise
    from tenacity import RetryCallState


ATTEMPTS = 3
ATTEMPT_SECONDS = 5.0
_RETRIED = {408, 425, 429}
"""Answers of the 4xx that may be another the next time."""

Deliver = Callable[[Recipient, Message, float], str | None]
"""(to whom, what, seconds at most) -> why it failed; None: it was taken."""


class _Refused(Exception):
    """The recipient answered, and not with yes; the message holds nothing of the address."""

    def __init__(self, said: str, *, again: bool) -> None:
        super().__init__(said)
        self.again = again


def deliver(recipient: Recipient, message: Message, seconds: float) -> str | None:
    """Send one message and return why it could not be: None where it was taken.

    It never raises and never takes longer: what a server drips in slowly is left behind.

    Args:
        seconds: for all attempts together.
    """
    if seconds <= 0:
        return NO_TIME
    if recipient.medium == WEBHOOK:
        body = json.dumps(message.document()).encode()
        event = hashlib.sha256(body).hexdigest()[:32]
        headers = signed(recipient.secret, event, body, message.time)
        return to_webhook(recipient.url, body, "application/json", headers, seconds)
    bound = min(seconds, ATTEMPTS * ATTEMPT_SECONDS)
    found = _bounded(lambda: send(recipient.url, message), bound)
    return str(found) if found is not None else None


NO_TIME = "there was no time left to send it"
NO_ANSWER = "no answer"
"""Begins what is said of a recipient that keeps one waiting."""


def signed(secret: str, event: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of a signed message, as https://www.standardwebhooks.com has them; none without a
    secret.

    Args:
        event: its id: the same each time that it is tried.
    """
    if not secret:
        return {}
    stamp = str(int(now.timestamp()))
    content = b".".join((event.encode(), stamp.encode(), body))
    code = b64encode(hmac.digest(secret_bytes(secret), content, "sha256")).decode()
    return {
        "webhook-id": event,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{code}",
    }


def to_webhook(
    url: str, body: bytes, kind: str, headers: Mapping[str, str], seconds: float
) -> str | None:
    """Post a body, with a few attempts; why it was not taken, None where it was.

    Args:
        kind: its content type.
        seconds: for all attempts together.
    """
    from tenacity import (
        Retrying,
        retry_if_result,
        stop_after_attempt,
        stop_before_delay,
        wait_exponential,
    )

    end = time.monotonic() + seconds

    def post() -> str | _Refused | None:
        left = min(ATTEMPT_SECONDS, end - time.monotonic())
        if left <= 0:
            return NO_TIME
        return _bounded(lambda: _post(url, body, kind, headers, left), left)

    def passes(found: str | _Refused | None) -> bool:
        return found.again if isinstance(found, _Refused) else found is not None

    def given_up(state: "RetryCallState") -> str:
        said = str(state.outcome and state.outcome.result())
        return f"{said} ({ATTEMPTS} attempts)" if state.attempt_number == ATTEMPTS else said

    policy = Retrying(
        retry=retry_if_result(passes),
        stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(seconds),
        wait=wait_exponential(multiplier=PAUSE_SECONDS),
        retry_error_callback=given_up,
    )
    found = policy(post)
    return None if found is None else str(found)


def _bounded(work: Callable[[], str | None], seconds: float) -> str | _Refused | None:
    """Why work failed; in a thread of its own: a socket's timeout bounds one read, not all."""
    outcome: list[str | _Refused | None] = []

    def run() -> None:
        try:
            outcome.append(work())
        except _Refused as refused:
            outcome.append(refused)
        except Exception as error:  # whatever it is, the tick goes on
            outcome.append(_plain(error))

    thread = Thread(target=run, name=THREAD, daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else f"{NO_ANSWER} within {seconds:.0f} s"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An alert goes where the operator said and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(url: str, body: bytes, kind: str, more: Mapping[str, str], seconds: float) -> None:
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    headers = {"Content-Type": kind, "User-Agent": "ml-assets", **more}
    if login:
        headers["Authorization"] = f"Basic {b64encode(unquote(login).encode()).decode()}"
    bare = parts._replace(netloc=host, fragment="").geturl()
    request = urllib.request.Request(bare, data=body, headers=headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds):
            return
    except urllib.error.HTTPError as answer:
        again = answer.code >= 500 or answer.code in _RETRIED
        raise _Refused(f"it answered {answer.code}", again=again) from None


def _plain(error: Exception) -> str:
    """What happened, in words that hold nothing of the address: an error's own text may."""
    found = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(found, ssl.SSLError):
        return "its certificate or its encryption cannot be trusted"
    if isinstance(found, TimeoutError):
        return f"{NO_ANSWER} in time"
    if isinstance(found, ConnectionRefusedError):
        return "it refused the connection"
    return f"it could not be reached ({type(found).__name__})"


RETRIES = 2
PAUSE_SECONDS = 0.5
"""Before each further attempt."""
THREAD = "alert"
"""Name of the threads that send: what libraries log there is not written down."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CALL = re.compile(r"<(?=[!@#])|@(?=(?:channel|all|here|everyone)\b)", re.IGNORECASE)
_SAID = (
    (re.compile(r"error=(\d{3})"), "it answered {}"),
    (re.compile(r"Socket Exception: \((\d{3}),"), "it answered {}"),
    (re.compile(r"Connection refused"), "it refused the connection"),
    (re.compile(r"certificate", re.IGNORECASE), "its certificate cannot be trusted"),
    (re.compile(r"timed out"), "no answer in time"),
    (re.compile(r"STARTTLS extension not supported"), "it offers no encryption"),
)
"""What apprise logs, and what may be said of it; the last line that says anything counts."""


def send(url: str, message: Message) -> str | None:
    """Send one message, in three attempts at most, and return why it was not taken.

    Args:
        url: an address as apprise reads it.
    """
    _keep_quiet()
    sender = _sender(url)
    if isinstance(sender, str):
        return sender
    done = sender.notify(
        title=f"[ml-assets] {_calling_nobody(message.title)}",
        body=_calling_nobody(message.text),
        notify_type="info" if message.causes[0].kind == "test" else "warning",
        body_format="text",
        log_level=logging.DEBUG,
    )
    return None if done else _reason([entry.message for entry in done.logs()])


def _calling_nobody(text: str) -> str:
    """The text with a space of no width in what calls a whole channel: Mattermost and Discord read
    it in any text, and words of the data may hold it."""
    return _CALL.sub("\\g<0>\u200b", text)


def _sender(url: str) -> "Apprise | str":
    """The sender of an address, or why there is none."""
    from apprise import Apprise, AppriseAsset

    asset = AppriseAsset(
        app_id="ml-assets",
        app_desc="ml-assets",
        image_url_mask="",  # no picture of apprise's, from somebody else's server
        image_url_logo="",
        http_redirects=False,  # an alert goes where the operator said and nowhere else
        async_mode=False,  # in this thread, which is bounded and dies with the process
        service_timeout=0,
        default_service_retry=RETRIES,
        default_service_wait=PAUSE_SECONDS,
    )
    sender = Apprise(asset=asset)
    if not sender.add(url):
        return "apprise cannot read this address: see how it is written at appriseit.com/services"
    if any(_shows_password(service) for service in sender):
        return "the password would be sent unencrypted: write mailtos:// instead of mailto://"
    return sender


def _shows_password(service: Any) -> bool:
    """Whether a password would go to another machine in the clear."""
    is_mail = getattr(service, "secure_mode", "") == "insecure" and service.password
    return bool(is_mail) and service.smtp_host not in _LOOPBACK


def _reason(logged: list[str]) -> str:
    """Why a message was not taken, in words that hold nothing of the address."""
    for line in reversed(logged):
        for pattern, said in _SAID:
            if found := pattern.search(line):
                return f"{said.format(*found.groups())} ({RETRIES + 1} attempts)"
    return f"it could not be reached ({RETRIES + 1} attempts)"


def _keep_quiet() -> None:
    """Keep addresses out of the process's log: apprise's own, and urllib3's paths of requests."""
    own = logging.getLogger("apprise")
    own.setLevel(logging.DEBUG)  # the reasons are read from what it keeps of a call
    own.propagate = False
    if not own.handlers:
        own.addHandler(logging.NullHandler())
    logging.getLogger("urllib3.connectionpool").addFilter(_is_not_ours)


def _is_not_ours(record: logging.LogRecord) -> bool:
    return record.threadName != THREAD
