"""A CloudEvent for each move of a release: signed, in order, once, and never lost."""

import base64
import hmac
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ml_assets.automation import release_events
from ml_assets.automation.alerts.media import recipients
from ml_assets.automation.release_events import NAME, definitions, tick
from ml_assets.errors import SettingsError
from ml_assets.records.ledger.chain import Head, append, register
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.open import shared_snapshots
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.listeners import Webhook, webhook

SECRET = "whsec_" + base64.b64encode(b"0123456789" * 4).decode()
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Notes(dict[str, str]):
    """Dagster's storage, as far as it is used."""

    def get_cursor_values(self, keys: set[str]) -> dict[str, str]:
        return {key: self[key] for key in keys if key in self}

    def set_cursor_values(self, pairs: dict[str, str]) -> None:
        self.update(pairs)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with webhook() as found:
        yield found


@pytest.fixture
def settings(tmp_path: Path, hook: Webhook) -> Settings:
    irises.plant(tmp_path / "pipelines", tmp_path / "sources")
    return read_settings(
        {
            "ML_ASSETS_HOME": str(tmp_path / "state"),
            "ML_ASSETS_PIPELINES": str(tmp_path / "pipelines"),
            "ML_ASSETS_EVENTS": f"{hook.url}/a?token=secret",
            "ML_ASSETS_WEBHOOK_SECRET": SECRET,
        }
    )


def move(settings: Settings, model: str, *, pipeline: str = "irises", **other: object) -> None:
    """A line as a release, or an abort, writes it."""

    def make(head: Head) -> LedgerEntry:
        line = {
            "seq": head.seq,
            "previous": head.previous,
            "kind": "stage",
            "model": model * 64,
            "stage": "production",
            "author": "team:botany",
            "reason": "decision in line 2: all 3 gates passed",
            "run": "r",
            "time": NOW,
        }
        return LedgerEntry.model_validate({**line, **other})

    append(shared_snapshots(settings.snapshots), pipeline, make)


def look(settings: Settings, notes: Notes) -> str:
    return tick(settings, recipients(settings.events), notes, NOW)


def test_each_move_is_told_once_in_order_and_signed(settings: Settings, hook: Webhook) -> None:
    notes = Notes()
    move(settings, "a")
    assert look(settings, notes) == "0 events sent."
    register(shared_snapshots(settings.snapshots), "irises", "c" * 64, "ada", "")
    move(settings, "b")
    move(settings, "a", because="rollback")
    move(settings, "b", kind="abort", stage=None)
    assert look(settings, notes) == "3 events sent."
    assert look(settings, notes) == "0 events sent."
    events = hook.bodies
    kinds = [one["type"].split(".")[3] for one in events]
    assert kinds == ["moved", "rolled-back", "aborted"]
    assert [one["data"]["ledger_line"] for one in events] == [3, 4, 5]
    assert len({one["id"] for one in events}) == 3
    first = events[0]
    assert first.keys() >= {"specversion", "id", "source", "type"}, "CloudEvents 1.0 asks for these"
    assert (first["data"]["model"], first["data"]["stage"]) == ("b" * 64, "production")
    body = hook.raw.split(b"\n\n")[1].split(b"POST")[0]
    headers = {name.lower(): value for name, value in hook.headers[0].items()}
    assert headers["content-type"] == "application/cloudevents+json"
    assert headers["webhook-id"] == first["id"]
    content = f"{first['id']}.{headers['webhook-timestamp']}.{json.dumps(first)}".encode()
    code = hmac.digest(b"0123456789" * 4, content, "sha256")
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(code).decode()}", body


def test_what_is_not_taken_is_sent_again_and_nothing_before_it(
    settings: Settings, hook: Webhook
) -> None:
    notes = Notes()
    look(settings, notes)
    move(settings, "a")
    move(settings, "b")
    hook.faults += ["403"]
    said = look(settings, notes)
    assert "irises line 1: it answered 403" in said and "token" not in said
    assert hook.bodies == []
    hook.faults += ["500"]
    assert look(settings, notes) == "2 events sent."
    assert [one["data"]["model"][0] for one in hook.bodies] == ["a", "b"]
    ids = [{n.lower(): v for n, v in one.items()}["webhook-id"] for one in hook.headers]
    assert ids[0] == ids[1] == ids[2] != ids[3], "the same event, tried again"


def test_a_kill_before_the_note_sends_the_same_event_again(
    settings: Settings, hook: Webhook
) -> None:
    notes = Notes()
    look(settings, notes)
    move(settings, "a")
    before = Notes(notes)
    look(settings, notes)
    look(settings, before)
    first, second = hook.bodies
    assert first == second


def test_a_second_address_is_told_whatever_the_first_does(
    settings: Settings, hook: Webhook
) -> None:
    notes = Notes()
    with webhook() as other:
        both = replace(settings, events=(*settings.events, other.url))
        look(both, notes)
        move(settings, "a")
        hook.faults += ["403"]
        look(both, notes)
        assert (len(hook.bodies), len(other.bodies)) == (0, 1)
        look(both, notes)
        assert (len(hook.bodies), len(other.bodies)) == (1, 1)


def restored(settings: Settings, place: Path) -> Settings:
    """The ledger as it was after its first move."""
    found = replace(settings, snapshots=str(place / "restored"))
    move(found, "a")
    return found


@pytest.mark.parametrize("seen", [True, False], ids=["seen between", "not seen between"])
def test_what_comes_after_a_ledger_was_restored_is_told(
    settings: Settings, hook: Webhook, tmp_path: Path, seen: bool
) -> None:
    notes = Notes()
    look(settings, notes)
    for model in "abc":
        move(settings, model)
    assert look(settings, notes) == "3 events sent."
    settings = restored(settings, tmp_path)
    if seen:
        assert look(settings, notes) == "0 events sent."
    for model in "def":
        move(settings, model, time=NOW + timedelta(hours=1))
    assert look(settings, notes) == "3 events sent."
    assert look(settings, notes) == "0 events sent."
    assert [one["data"]["model"][0] for one in hook.bodies] == ["a", "b", "c", "d", "e", "f"]


def test_what_an_older_version_noted_is_still_read(
    settings: Settings, hook: Webhook, tmp_path: Path
) -> None:
    notes = Notes()
    look(settings, notes)
    for model in "abc":
        move(settings, model)
    look(settings, notes)
    ((key, text),) = notes.items()
    before = json.loads(text)
    del before["known"]
    notes[key] = json.dumps(before)
    move(settings, "d")
    assert look(settings, notes) == "1 event sent."
    notes[key] = json.dumps(before)
    settings = restored(settings, tmp_path)
    assert look(settings, notes) == "0 events sent."
    move(settings, "e")
    assert look(settings, notes) == "1 event sent."


def test_an_address_that_never_answers_takes_no_time_of_the_next_one(
    settings: Settings, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_events, "TICK_SECONDS", 1.0)
    (pipelines,) = settings.pipelines
    shutil.copytree(pipelines / "irises", pipelines / "irises_too")
    notes = Notes()
    with webhook() as other:
        both = replace(settings, events=(*settings.events, other.url))
        look(both, notes)
        for pipeline in ("irises", "irises_too"):
            move(settings, "a", pipeline=pipeline)
        hook.faults += ["silence", "silence", "silence"]
        said = look(both, notes)
        assert said.endswith("; 2 events sent.") and len(other.bodies) == 2
        assert "irises line 1: no answer" in said and "irises_too" not in said
        hook.faults.clear()
        hook.over.set()
        assert look(both, notes) == "2 events sent."
        assert {one["data"]["pipeline"] for one in hook.bodies} == {"irises", "irises_too"}


def test_the_sensor_is_there_where_somebody_is_to_be_told(settings: Settings) -> None:
    assert [one.name for one in definitions(settings).sensors or ()] == [NAME]
    assert not definitions(replace(settings, events=())).sensors
    with pytest.raises(SettingsError, match="ML_ASSETS_EVENTS: expected addresses of webhooks"):
        definitions(replace(settings, events=("mailto://a@b.org",)))
    with pytest.raises(SettingsError, match="not base64 of 24 bytes"):
        definitions(replace(settings, webhook_secret="short"))
