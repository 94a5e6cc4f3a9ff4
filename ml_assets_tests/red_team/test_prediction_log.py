"""What cannot be written down: other requests are logged, and the canary is watched on."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from ml_assets.errors import RowsRefused
from ml_assets.extras.serving import traffic
from ml_assets.extras.serving.batching import Limits
from ml_assets.extras.serving.follow_ledger import Following
from ml_assets.extras.serving.open_inference import read_document
from ml_assets.extras.serving.prediction_log import Answered, PredictionLog
from ml_assets.extras.serving.run_server import Listening, _answer
from ml_assets.extras.serving.traffic import Traffic
from ml_assets.store.objects import LocalObjects
from ml_assets_tests.records.conftest import A
from ml_assets_tests.worlds.world import free_ports

NASTY = "\ud800"


def answered(order: object) -> Answered:
    outputs = {"probability": [0.25]}
    return Answered(datetime.now(UTC), "r", [0], "canary", A, 0.004, {"order": [order]}, outputs)


def log_of(folder: Path) -> PredictionLog:
    spec = SimpleNamespace(features=SimpleNamespace(key=("order",)))
    place = SimpleNamespace(name="p", spec=spec, objects=LocalObjects(folder))
    return PredictionLog(cast(Any, place), every=0.0)


def logged(folder: Path) -> list[str]:
    files = sorted(folder.rglob("*.parquet"))
    return sorted(key for f in files for key in pl.read_parquet(f)["key"].struct.field("order"))


def test_half_a_sign_in_a_key_ends_neither_the_log_nor_the_watch(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """The door refuses it in JSON; whatever comes by another way is written down all the same."""
    with pytest.raises(RowsRefused, match="half a character"):
        read_document(json.dumps({"rows": [{"order": NASTY}]}).encode())
    monkeypatch.setattr(traffic, "_LOOK_SECONDS", 0.01)
    log = log_of(tmp_path)
    served = cast(Any, SimpleNamespace(canary=None))

    async def served_on() -> bool:
        watched = Traffic.__new__(Traffic)
        watched.__dict__.update(
            following=served, log=log, tell=print, _watch=None, _watched=None, _told=""
        )
        task = asyncio.create_task(watched.run())
        for order in ("7", NASTY, "8"):
            log.add(answered(order))
        await asyncio.sleep(0.5)
        log.add(answered("9"))
        await asyncio.sleep(0.5)
        ended = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return ended

    ended = asyncio.run(served_on())
    assert not ended, "nobody looks at the canary any more"
    assert {"7", "8", "9"} <= set(logged(tmp_path))


def test_a_log_that_cannot_be_written_is_told_once_and_waits(
    tmp_path: Path, monkeypatch: Any
) -> None:
    log, said = log_of(tmp_path), list[str]()
    log.add(answered("7"))
    served = cast(Any, SimpleNamespace(tell=said.append, _told=""))

    def burst(*_: object) -> None:
        raise ValueError("no such shape")

    with monkeypatch.context() as patched:
        patched.setattr(log, "_write", burst)
        asyncio.run(Traffic._flush(served, log))
        asyncio.run(Traffic._flush(served, log))
    assert said == ["the prediction log waits: no such shape"] and not logged(tmp_path)
    asyncio.run(Traffic._flush(served, log))
    assert logged(tmp_path) == ["7"]


def test_a_server_ends_with_a_task_beside_it(monkeypatch: Any) -> None:
    """Nobody would watch the canary or write the log: whoever started it starts another."""

    async def waits(_: object) -> None:
        await asyncio.Event().wait()

    async def ends(_: object) -> None:
        raise ZeroDivisionError("nobody watches")

    monkeypatch.setattr(Following, "look", waits)
    monkeypatch.setattr(Traffic, "run", ends)
    spec = SimpleNamespace(release=SimpleNamespace(rollout=None))
    pipeline = cast(Any, SimpleNamespace(name="p", spec=spec))
    listening = Listening("127.0.0.1", free_ports(1)[0], (), 0.0, 1.0)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(_answer(pipeline, listening, Limits(), print), 20))
