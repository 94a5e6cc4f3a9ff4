"""Notifies other servers of each move in the ledger, with a CloudEvent over HTTP.

The ledger is the outbox: for each address, Dagster's storage keeps the last line that it accepted.
A line that was not accepted is sent again at the next tick, and no later one of its pipeline before
it. A kill between the answer and that note sends one again, with the same id.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel, ConfigDict

from ml_assets.automation.tick_failures import COULD_NOT_TELL
from ml_assets.errors import MlAssetsError, SettingsError, counted, outside
from ml_assets.records.ledger.chain import path_of, read
from ml_assets.records.tracking.links import Links
from ml_assets.settings import Settings
from ml_assets.settings.access import secret_bytes
from ml_assets.spec.base import canonical_json
from ml_assets.spec.load import pipeline_folders
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.objects import bytes_digest
from ml_assets.store.open import shared_snapshots
from ml_assets.store.snapshots import SnapshotStore

if TYPE_CHECKING:
    from ml_assets.automation.alerts.media import Recipient
    from ml_assets.automation.alerts.reported import KeyValues

NAME = "release_events"
SECONDS_BETWEEN_TICKS = 15
TICK_SECONDS = 25.0
"""For all addresses together; of what is left of it each has an equal share."""
TYPE = "dev.ml-assets.release.{}.v1"
_KEY = "ml_assets/release_events"


class _Line(BaseModel):
    """A line of a ledger, to be known again."""

    model_config = ConfigDict(extra="forbid")

    digest: str
    time: datetime


class _Taken(BaseModel):
    """Address -> pipeline -> the newest line that it has taken."""

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    lines: dict[str, dict[str, int]] = {}
    """Its number; 0: none."""
    known: dict[str, dict[str, _Line]] = {}
    """The line itself: a ledger that was restored has another one of that number, or none."""

    def note(self, to: str, pipeline: str, entries: Sequence[LedgerEntry]) -> None:
        """Remember that an address has taken these lines, and no others."""
        self.lines.setdefault(to, {})[pipeline] = len(entries)
        self.known.setdefault(to, {}).pop(pipeline, None)
        if entries:
            self.known[to][pipeline] = _Line(digest=_digest(entries[-1]), time=entries[-1].time)

    def of(self, to: str, pipeline: str, entries: Sequence[LedgerEntry]) -> int:
        """How many lines of a ledger an address has taken; of one that was restored, those that
        are as old as what it took last."""
        if to not in self.lines:
            return len(entries)
        number = self.lines[to].get(pipeline, 0)
        last = self.known.get(to, {}).get(pipeline)
        if last is None:  # none yet, or an older version took it
            return min(number, len(entries))
        if number <= len(entries) and _digest(entries[number - 1]) == last.digest:
            return number
        return sum(entry.time <= last.time for entry in entries)


def definitions(settings: Settings) -> dg.Definitions:
    """The sensor, where ML_ASSETS_EVENTS says who is to be told.

    Raises:
        SettingsError: an address or the secret cannot be used.
    """
    if not settings.events:
        return dg.Definitions()
    from ml_assets.automation.alerts.media import WEBHOOK, recipients

    to = recipients(settings.events)
    if any(one.medium != WEBHOOK for one in to):
        raise SettingsError("ML_ASSETS_EVENTS: expected addresses of webhooks, http(s)://...")
    if settings.webhook_secret:
        secret_bytes(settings.webhook_secret)

    @dg.sensor(
        name=NAME,
        description="Reports each move of a release once, in the order of the ledger:"
        f" {', '.join(one.shown for one in to)}.",
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            done = tick(settings, to, context.instance.daemon_cursor_storage, datetime.now(UTC))
        except MlAssetsError as error:
            done = f"{COULD_NOT_TELL}{' '.join(str(error).split())}"
        return dg.SensorResult(skip_reason=done)

    return dg.Definitions(sensors=[evaluate])


def tick(settings: Settings, to: "Sequence[Recipient]", notes: "KeyValues", now: datetime) -> str:
    """Send what was not taken yet; what it came to, in words.

    An address that is new is told of what moves from now on.

    Raises:
        StorageError: a ledger is broken.
    """
    store = shared_snapshots(settings.snapshots)
    text = notes.get_cursor_values({_KEY}).get(_KEY)
    taken = _Taken.model_validate_json(text) if text else _Taken()
    ledgers = {name: read(store, name) for name in sorted(pipeline_folders(settings))}
    sent, failed, end = 0, list[str](), time.monotonic() + TICK_SECONDS
    for place, one in enumerate(to):
        own_end = time.monotonic() + (end - time.monotonic()) / (len(to) - place)
        send = partial(_send, settings, store, one, now, own_end)
        more, refused = _tell(one, ledgers, taken, notes, send)
        sent, failed = sent + more, [*failed, *refused]
    notes.set_cursor_values({_KEY: taken.model_dump_json()})
    told = f"{counted(sent, 'event')} sent"
    return f"{COULD_NOT_TELL}{'; '.join([*failed, told])}." if failed else f"{told}."


def _tell(
    to: "Recipient",
    ledgers: Mapping[str, Sequence[LedgerEntry]],
    taken: _Taken,
    notes: "KeyValues",
    send: Callable[[str, LedgerEntry], str | None],
) -> tuple[int, list[str]]:
    """Send an address the lines that it has not taken; how many it took now, and what it did not.

    One that does not answer is sent nothing more: the next tick tries again.
    """
    before = {name: taken.of(to.id, name, entries) for name, entries in ledgers.items()}
    for pipeline, entries in ledgers.items():
        taken.note(to.id, pipeline, entries[: before[pipeline]])
    sent, failed = 0, list[str]()
    for pipeline, entries in ledgers.items():
        for entry in _new(entries, before[pipeline]):
            said = send(pipeline, entry)
            if said is not None:
                failed.append(f"{to.shown}: {pipeline} line {entry.seq}: {said}")
                if _is_silent(said):
                    return sent, failed
                break  # the next line waits for this one
            taken.note(to.id, pipeline, entries[: entry.seq])
            notes.set_cursor_values({_KEY: taken.model_dump_json()})
            sent += 1
    return sent, failed


def event_of(
    store: SnapshotStore, settings: Settings, pipeline: str, entry: LedgerEntry
) -> Mapping[str, Any]:
    """The CloudEvent of a line: its id is of the line's bytes, the same whoever sends it."""
    line = store.read_bytes(store.resolve(), path_of(pipeline, entry.seq))
    digest = hashlib.sha256(line).hexdigest()
    what = "aborted" if entry.kind == "abort" else "rolled-back" if entry.because else "moved"
    return {
        "specversion": "1.0",
        "id": f"{pipeline}-{entry.seq}-{digest[:16]}",
        "source": Links.of(settings).asset(f"{pipeline}/released_model"),
        "type": TYPE.format(what),
        "subject": pipeline,
        "time": entry.time.astimezone(UTC).isoformat(),
        "datacontenttype": "application/json",
        "data": {
            "pipeline": pipeline,
            "model": entry.model,
            "stage": entry.stage or "canary",
            "replaced": entry.replaced,
            "ledger_line": entry.seq,
            "line_sha256": digest,
            "author": entry.author,
            "reason": outside(entry.reason),
        },
    }


def _digest(entry: LedgerEntry) -> str:
    return bytes_digest(canonical_json(entry))


def _new(entries: Sequence[LedgerEntry], after: int) -> Iterator[LedgerEntry]:
    return (one for one in entries if one.seq > after and one.kind in ("stage", "abort"))


def _send(
    settings: Settings,
    store: SnapshotStore,
    to: "Recipient",
    now: datetime,
    end: float,
    pipeline: str,
    entry: LedgerEntry,
) -> str | None:
    from ml_assets.automation.alerts.delivery import signed, to_webhook

    event = event_of(store, settings, pipeline, entry)
    body = json.dumps(event).encode()
    headers = signed(settings.webhook_secret, event["id"], body, now)
    left = end - time.monotonic()
    return to_webhook(to.url, body, "application/cloudevents+json", headers, left)


def _is_silent(said: str) -> bool:
    from ml_assets.automation.alerts.delivery import NO_ANSWER, NO_TIME

    return said.startswith((NO_ANSWER, NO_TIME))
