"""Notifies other servers of each move in the ledger, with a CloudEvent over HTTP.

The ledger is the outbox: for each address, Dagster's storage keeps the last line that it accepted.
A line that was not accepted is sent again at the next tick, and no later one of its pipeline before
it. A kill between the answer and that note sends one again, with the same id.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel, ConfigDict

from ml_assets.automation.tick_failures import COULD_NOT_TELL
from ml_assets.errors import MlAssetsError, SettingsError, counted, outside
from ml_assets.records.ledger.chain import path_of, read
from ml_assets.records.tracking.links import Links
from ml_assets.settings import Settings
from ml_assets.settings.access import secret_bytes
from ml_assets.spec.load import pipeline_folders
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.open import shared_snapshots
from ml_assets.store.snapshots import SnapshotStore

if TYPE_CHECKING:
    from ml_assets.automation.alerts.recipients import Recipient
    from ml_assets.automation.alerts.reported import KeyValues

NAME = "release_events"
SECONDS_BETWEEN_TICKS = 15
TICK_SECONDS = 25.0
TYPE = "dev.ml-assets.release.{}.v1"
_KEY = "ml_assets/release_events"


class _Taken(BaseModel):
    """Address -> pipeline -> the newest line that it has taken."""

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    lines: dict[str, dict[str, int]] = {}


def definitions(settings: Settings) -> dg.Definitions:
    """The sensor, where ML_ASSETS_EVENTS says who is to be told.

    Raises:
        SettingsError: an address or the secret cannot be used.
    """
    if not settings.events:
        return dg.Definitions()
    from ml_assets.automation.alerts.recipients import WEBHOOK, recipients

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
    sent, failed, end = 0, [], time.monotonic() + TICK_SECONDS
    for one in to:
        if one.id not in taken.lines:
            taken.lines[one.id] = {name: len(entries) for name, entries in ledgers.items()}
        for pipeline, entries in ledgers.items():
            for entry in _new(entries, taken.lines[one.id].get(pipeline, 0)):
                said = _send(settings, one, event_of(store, settings, pipeline, entry), now, end)
                if said is not None:
                    failed.append(f"{one.shown}: {pipeline} line {entry.seq}: {said}")
                    break  # the next line waits for this one
                taken.lines[one.id][pipeline] = entry.seq
                notes.set_cursor_values({_KEY: taken.model_dump_json()})
                sent += 1
    notes.set_cursor_values({_KEY: taken.model_dump_json()})
    told = f"{counted(sent, 'event')} sent"
    return f"{COULD_NOT_TELL}{'; '.join([*failed, told])}." if failed else f"{told}."


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


def _new(entries: Sequence[LedgerEntry], after: int) -> Iterator[LedgerEntry]:
    return (one for one in entries if one.seq > after and one.kind in ("stage", "abort"))


def _send(
    settings: Settings, to: "Recipient", event: Mapping[str, Any], now: datetime, end: float
) -> str | None:
    from ml_assets.automation.alerts.delivery import signed, to_webhook

    body = json.dumps(event).encode()
    headers = signed(settings.webhook_secret, event["id"], body, now)
    left = end - time.monotonic()
    return to_webhook(to.url, body, "application/cloudevents+json", headers, left)
