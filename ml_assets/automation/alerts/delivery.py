"""Handing a message to a recipient: a few attempts within a bound of time; a failure is a value."""

import json
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from ml_assets.automation.alerts.message import Message
from ml_assets.automation.alerts.recipients import Mailbox, Recipient

ATTEMPTS = 3
ATTEMPT_SECONDS = 5.0
_PAUSE_SECONDS = 0.5
"""Before the second attempt; twice that before the third."""
_RETRIED = {408, 425, 429}
"""Answers of the 4xx that may be another the next time."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

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
    end = time.monotonic() + seconds
    said = "there was no time left"
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(max(0.0, min(_PAUSE_SECONDS * 2 ** (attempt - 1), end - time.monotonic())))
        left = min(ATTEMPT_SECONDS, end - time.monotonic())
        if left <= 0:
            return said
        found = _attempt(recipient, message, left)
        if found is None:
            return None
        said = str(found)
        if not found.again:
            return said
    return f"{said} ({ATTEMPTS} attempts)"


def _attempt(recipient: Recipient, message: Message, seconds: float) -> _Refused | None:
    """One attempt in a thread of its own: a socket's timeout bounds one read, not all of them."""
    outcome: list[_Refused | None] = []

    def send() -> None:
        try:
            _send(recipient, message, seconds)
        except _Refused as refused:
            outcome.append(refused)
        except Exception as error:  # whatever it is, the tick goes on
            outcome.append(_Refused(_plain(error), again=True))
        else:
            outcome.append(None)

    thread = Thread(target=send, name="alert", daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else _Refused(f"no answer within {seconds:.0f} s", again=True)


def _send(recipient: Recipient, message: Message, seconds: float) -> None:
    if recipient.mailbox is not None:
        _mail(recipient.mailbox, message, seconds)
    else:
        slack = recipient.medium == "slack"
        _post(recipient.url, message.slack() if slack else message.document(), seconds)


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


def _mail(box: Mailbox, message: Message, seconds: float) -> None:
    mail = EmailMessage()
    mail["Subject"] = f"[ml-assets] {message.title}"
    mail["From"], mail["To"] = box.sender, ", ".join(box.to)
    mail["Date"], mail["Message-ID"] = format_datetime(message.time), make_msgid(domain="ml-assets")
    mail.set_content(message.text)
    trusted = ssl.create_default_context()
    if box.encrypted:
        server = smtplib.SMTP_SSL(box.host, box.port, timeout=seconds, context=trusted)
    else:
        server = smtplib.SMTP(box.host, box.port, timeout=seconds)
    with server:
        if not box.encrypted:
            _encrypt(server, box, trusted)
        if box.user:
            server.login(box.user, box.password)
        server.send_message(mail, box.sender, box.to)


def _encrypt(server: smtplib.SMTP, box: Mailbox, trusted: ssl.SSLContext) -> None:
    """STARTTLS where it is offered; no password goes in the clear over a network."""
    server.ehlo()
    if server.has_extn("starttls"):
        server.starttls(context=trusted)
        server.ehlo()
    elif box.user and box.host not in _LOOPBACK:
        raise _Refused("it offers no encryption for the password", again=False)


def _plain(error: Exception) -> str:
    """What happened, in words that hold nothing of the address: an error's own text may."""
    found = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(found, ssl.SSLError):
        return "its certificate or its encryption cannot be used"
    if isinstance(found, smtplib.SMTPAuthenticationError):
        return "it refused the user or the password"
    if isinstance(found, smtplib.SMTPResponseException):
        return f"it answered {found.smtp_code}"
    if isinstance(found, TimeoutError):
        return "no answer in time"
    if isinstance(found, ConnectionRefusedError):
        return "it refused the connection"
    return f"it could not be reached ({type(found).__name__})"
