"""The recipients of alerts, and the medium of each, from the addresses of ML_ASSETS_ALERTS.

The addresses hold secrets, so none is shown whole.
"""

import hashlib
import importlib.util
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from ml_assets.errors import SettingsError, install

WEBHOOK = "webhook"
_SLACK_HOST = "hooks.slack.com"
_SCHEME = re.compile(r"([a-z][a-z0-9.+-]*)://.")
_ADDRESS = " (address {})"
_RULE = (
    "expected https://... of a webhook, or an address of apprise, such as"
    " mailtos://user:password@host/?to=a@b.org or slack://..."
)


@dataclass(frozen=True)
class Recipient:
    """One address: a webhook, which gets our JSON, or one that apprise knows how to send to."""

    medium: str
    """``webhook``, or the name that apprise gives the medium: ``slack``, ``mailtos``."""
    shown: str
    """What may be shown of it: the host of a webhook, with its place in the list where others are
    at that host; else the medium and the place: the host of an address of apprise may be a
    token."""
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    """What a webhook's messages are signed with; empty: they are not."""

    @property
    def id(self) -> str:
        """Names it in the record of what was told, and gives nothing of it away."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:12]


def recipients(addresses: Sequence[str], secret: str = "") -> tuple[Recipient, ...]:
    """The recipients of the addresses, each once. Apprise is not loaded for it.

    Args:
        secret: of ML_ASSETS_WEBHOOK_SECRET.

    Raises:
        SettingsError: an address cannot be used, or apprise is needed and not installed; the
            message holds the address's place, not the address.
    """
    places = {address: place for place, address in enumerate(addresses, start=1)}
    found = [_recipient(address, place) for address, place in places.items()]
    named = Counter(one.shown for one in found)
    return tuple(
        replace(one, secret=secret, shown=f"{one.shown}{_ADDRESS.format(place)}")
        if named[one.shown] > 1
        else replace(one, secret=secret)
        for one, place in zip(found, places.values(), strict=True)
    )


def _recipient(address: str, place: int) -> Recipient:
    scheme = _SCHEME.match(address)
    if scheme is None:
        raise _wrong(place, f"is not a URL; {_RULE}")
    medium = scheme[1]
    if medium in ("http", "https"):
        host = _host_of(address, place)
        if host != _SLACK_HOST:
            return Recipient(WEBHOOK, f"{WEBHOOK} {host}", address)
        medium = "slack"
    if importlib.util.find_spec("apprise") is None:
        raise _wrong(
            place,
            f"is an address of {medium}. Messages there are sent by apprise, which is not"
            f" installed: {install('alerts')}",
        )
    return Recipient(medium, f"{medium}{_ADDRESS.format(place)}", address)


def _host_of(address: str, place: int) -> str:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _wrong(place, f"is not a URL; {_RULE}") from None
    if not host:
        raise _wrong(place, f"names no host; {_RULE}")
    return host


def _wrong(place: int, what: str) -> SettingsError:
    return SettingsError(f"ML_ASSETS_ALERTS: address {place} {what}.")
