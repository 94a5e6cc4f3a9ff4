"""Handing a message to a recipient: a few attempts within a bound of time; a failure is a value.

Apprise sends to every medium but the webhook: that gets a document of ours, with its causes as a
list, which apprise cannot send.
"""

import json
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from ml_assets.automation.alerts.media import PAUSE_SECONDS, THREAD, send
from ml_assets.automation.alerts.message import Message
from ml_assets.automation.alerts.recipients import WEBHOOK, Recipient

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
        return _to_webhook(recipient.url, message, seconds)
    bound = min(seconds, ATTEMPTS * ATTEMPT_SECONDS)
    found = _bounded(lambda: send(recipient.url, message), bound)
    return str(found) if found is not None else None


_NO_TIME = "there was no time left"


def _to_webhook(url: str, message: Message, seconds: float) -> str | None:
    end = time.monotonic() + seconds
    said = _NO_TIME
    for attempt in range(ATTEMPTS):
        if attempt:
            pause = PAUSE_SECONDS * 2 ** (attempt - 1)
            time.sleep(max(0.0, min(pause, end - time.monotonic())))
        left = min(ATTEMPT_SECONDS, end - time.monotonic())
        if left <= 0:
            return said
        found = _bounded(lambda left=left: _post(url, message.document(), left), left)
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


def _post(url: str, document: dict[str, Any], seconds: float) -> None:
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    headers = {"Content-Type": "application/json", "User-Agent": "ml-assets"}
    if login:
        headers["Authorization"] = f"Basic {b64encode(unquote(login).encode()).decode()}"
    bare = parts._replace(netloc=host, fragment="").geturl()
    body = json.dumps(document).encode()
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
