"""Who is told: the addresses of ML_ASSETS_ALERTS. They hold secrets: none is shown whole."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from ml_assets.errors import SettingsError

Medium = Literal["webhook", "slack", "e-mail"]
_SLACK_HOST = "hooks.slack.com"
_RULE = (
    "expected https://..., an incoming webhook of Slack (slack+https://... for what speaks like"
    " it), or smtps://user:password@host/?to=a@b.org&from=c@d.org"
)


@dataclass(frozen=True)
class Mailbox:
    """A mail server, and whose mail it takes."""

    host: str
    port: int
    encrypted: bool
    """TLS from the first byte; else STARTTLS where the server offers it."""
    sender: str
    to: tuple[str, ...]
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Recipient:
    """One address."""

    medium: Medium
    shown: str
    """What may be shown of it: the medium and the host."""
    url: str = field(repr=False)
    mailbox: Mailbox | None = None

    @property
    def id(self) -> str:
        """Names it in the record of what was told, and gives nothing of it away."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:12]


def recipients(addresses: Sequence[str]) -> tuple[Recipient, ...]:
    """The recipients of the addresses, each once.

    Raises:
        SettingsError: an address cannot be used; the message holds its place, not the address.
    """
    found = [_recipient(address, place) for place, address in enumerate(addresses, start=1)]
    return tuple({one.id: one for one in found}.values())


def _recipient(address: str, place: int) -> Recipient:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _wrong(place, "is no URL") from None
    if not host:
        raise _wrong(place, "names no host")
    match parts.scheme:
        case "http" | "https":
            medium: Medium = "slack" if host == _SLACK_HOST else "webhook"
            return Recipient(medium, f"{medium} {host}", address)
        case "slack+http" | "slack+https":
            return Recipient("slack", f"slack {host}", address.removeprefix("slack+"))
        case "smtp" | "smtps":
            box = _mailbox(parts, host, port, place)
            return Recipient("e-mail", f"e-mail by {host}", address, box)
        case _:
            raise _wrong(place, "has a scheme that is not known")


def _mailbox(parts: SplitResult, host: str, port: int | None, place: int) -> Mailbox:
    query = parse_qs(parts.query)
    to = tuple(one.strip() for given in query.get("to", []) for one in given.split(",") if one)
    sender = query.get("from", to[:1] or [""])[0]
    if not to or not all(_is_mail(one) for one in (*to, sender)):
        raise _wrong(place, "says not to whom (?to=a@b.org), or from whom (&from=c@d.org)")
    encrypted = parts.scheme == "smtps"
    return Mailbox(
        host=host,
        port=port or (465 if encrypted else 587),
        encrypted=encrypted,
        sender=sender,
        to=to,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _is_mail(text: str) -> bool:
    name, at, domain = text.partition("@")
    return bool(name and at and domain) and text.isprintable() and not set(text) & set(' <>,;:"')


def _wrong(place: int, what: str) -> SettingsError:
    return SettingsError(f"ML_ASSETS_ALERTS: address {place} {what}; {_RULE}.")
