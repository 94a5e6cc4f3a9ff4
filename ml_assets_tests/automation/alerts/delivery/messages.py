"""Causes, messages and recipients of the tests of delivery, and a notebook of what was told."""

from collections.abc import Mapping
from datetime import UTC, datetime

from ml_assets.automation.alerts.delivery import deliver
from ml_assets.automation.alerts.media import Recipient, recipients
from ml_assets.automation.alerts.message import Cause, Kind, Message
from ml_assets.automation.alerts.reported import tell

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECRET = "s3cr3t-t0ken"
TOKEN = "3ccdd113474722377935511f"


class Notebook:
    """A record in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get_cursor_values(self, keys: set[str]) -> Mapping[str, str]:
        return {key: self.values[key] for key in keys if key in self.values}

    def set_cursor_values(self, pairs: Mapping[str, str]) -> None:
        self.values.update(pairs)


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
