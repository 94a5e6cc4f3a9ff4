"""Handing a message to a recipient: a few attempts within a bound of time; a failure is a value.

Apprise sends to every medium but the webhook: that gets a document of ours, with its causes as a
list, which apprise cannot send.
"""

import hashlib
import hmac
import json
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from ml_assets.automation.alerts.media import PAUSE_SECONDS, THREAD, send
from ml_assets.automation.alerts.message import Message
from ml_assets.automation.alerts.recipients import WEBHOOK, Recipient
from ml_assets.settings.access import secret_bytes

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
        return _NO_TIME
    if recipient.medium == WEBHOOK:
        body = json.dumps(message.document()).encode()
        event = hashlib.sha256(body).hexdigest()[:32]
        headers = signed(recipient.secret, event, body, message.time)
        return to_webhook(recipient.url, body, "application/json", headers, seconds)
    bound = min(seconds, ATTEMPTS * ATTEMPT_SECONDS)
    found = _bounded(lambda: send(recipient.url, message), bound)
    return str(found) if found is not None else None


_NO_TIME = "there was no time left"


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
    end = time.monotonic() + seconds
    said = _NO_TIME
    for attempt in range(ATTEMPTS):
        if attempt:
            pause = PAUSE_SECONDS * 2 ** (attempt - 1)
            time.sleep(max(0.0, min(pause, end - time.monotonic())))
        left = min(ATTEMPT_SECONDS, end - time.monotonic())
        if left <= 0:
            return said
        found = _bounded(lambda left=left: _post(url, body, kind, headers, left), left)
        if found is None:
            return None
        said = str(found)
        if isinstance(found, _Refused) and not found.again:
            return said
    return f"{said} ({ATTEMPTS} attempts)"


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
    return outcome[0] if outcome else f"no answer within {seconds:.0f} s"


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
        return "its certificate or its encryption cannot be used"
    if isinstance(found, TimeoutError):
        return "no answer in time"
    if isinstance(found, ConnectionRefusedError):
        return "it refused the connection"
    return f"it could not be reached ({type(found).__name__})"
