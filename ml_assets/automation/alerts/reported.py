"""Records what was sent to whom: each cause once, until it is gone and comes again."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from ml_assets.automation.alerts.delivery import Deliver
from ml_assets.automation.alerts.media import Recipient
from ml_assets.automation.alerts.message import Cause, messages
from ml_assets.errors import StorageError, counted

KEY = "ml_assets/alerts"


class KeyValues(Protocol):
    """Says where the record is kept: Dagster's own storage, durable wherever the daemon runs."""

    def get_cursor_values(self, keys: set[str]) -> Mapping[str, str]: ...

    def set_cursor_values(self, pairs: Mapping[str, str]) -> None: ...


class OpenCause(BaseModel):
    """One cause that was seen and is not gone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: datetime
    what: str
    told: tuple[str, ...] = ()
    """Ids of the recipients that took it."""


class Told(BaseModel):
    """All open causes by their ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 1
    open: dict[str, OpenCause] = {}


@dataclass
class Round:
    """The result of one tick."""

    sent: list[str] = field(default_factory=list)
    """Titles of the messages that were taken, with who took them."""
    failed: list[str] = field(default_factory=list)
    """Recipients that did not take theirs, and why."""
    closed: int = 0
    open: int = 0

    def __str__(self) -> str:
        closed = [f"{self.closed} gone"] if self.closed else []
        return "; ".join([f"{self.open} open", *closed, *self.sent, *self.failed])


def read_told(store: KeyValues) -> Told:
    """The record; an empty one where nothing was ever told.

    Raises:
        StorageError: it cannot be read.
    """
    text = store.get_cursor_values({KEY}).get(KEY)
    try:
        return Told.model_validate_json(text) if text else Told()
    except ValidationError as error:
        raise StorageError(
            f"The record of alerts ({KEY} in Dagster's storage) cannot be read:"
            f" {counted(error.error_count(), 'mistake')}. It was written by another version."
        ) from error


def tell(
    causes: Sequence[Cause],
    to: Sequence[Recipient],
    store: KeyValues,
    deliver: Deliver,
    now: datetime,
    seconds: float,
) -> Round:
    """Tell each recipient of the causes that it does not know, and forget those that are gone.

    The record is written after every message that was taken: a kill repeats at most that one. A
    message that is not taken is owed to the next round, and keeps no other one from being sent.

    Args:
        causes: all that is wrong now.
        seconds: for all of it together; of what is left of it each recipient has an equal share.
    """
    before = read_told(store).open
    known = {
        cause.id: before.get(cause.id, OpenCause(since=now.astimezone(UTC), what=cause.what[:200]))
        for cause in causes
    }
    done = Round(closed=len(before.keys() - known.keys()), open=len(known))
    if known != before:
        _write(store, known)
    end = time.monotonic() + seconds
    for place, recipient in enumerate(to):
        own_end = time.monotonic() + (end - time.monotonic()) / (len(to) - place)
        new = [cause for cause in causes if recipient.id not in known[cause.id].told]
        for message in messages(new, now):
            failed = deliver(recipient, message, own_end - time.monotonic())
            if failed is not None:
                said = f"{recipient.shown}: {failed}"
                done.failed += [] if said in done.failed else [said]
                continue
            done.sent.append(f"{message.title} to {recipient.shown}")
            for cause in message.causes:
                told = (*known[cause.id].told, recipient.id)
                known[cause.id] = known[cause.id].model_copy(update={"told": told})
            _write(store, known)
    return done


def _write(store: KeyValues, known: dict[str, OpenCause]) -> None:
    store.set_cursor_values({KEY: Told(open=known).model_dump_json()})
