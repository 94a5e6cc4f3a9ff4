"""Sending by apprise: mail, Slack and every other medium that it knows. It is loaded here only.

An address of apprise holds secrets, and its log may hold the address: nothing of that log leaves
this module but what an answer meant.
"""

import logging
import re
from typing import TYPE_CHECKING, Any

from ml_assets.automation.alerts.message import Message

if TYPE_CHECKING:
    from apprise import Apprise

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
    (re.compile(r"certificate", re.IGNORECASE), "its certificate cannot be used"),
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
        return "apprise cannot use its address: see its page on the medium, appriseit.com/services"
    if any(_shows_password(service) for service in sender):
        return "it offers no encryption for the password: write mailtos:// for mailto://"
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
