"""What the server does with its models while it reads the ledger, or cannot."""

import asyncio
import errno
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ml_assets.errors import DiskRefuses, StorageError, StoreAway
from ml_assets.extras.serving import follow_ledger
from ml_assets.extras.serving.batching import Limits
from ml_assets.extras.serving.follow_ledger import Following, NotServing
from ml_assets.extras.serving.metrics import Metrics
from ml_assets.records.ledger.chain import register
from ml_assets.spec.recalls import recall_file
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets_tests.records.conftest import recall
from ml_assets_tests.red_team.forging import point_main_at

GOOD, BAD = "a" * 64, "b" * 64


def release(model: str, stage: str) -> Any:
    entry = SimpleNamespace(stage=stage, seq=1)
    return SimpleNamespace(model=SimpleNamespace(digest=model), entry=entry)


def served(model: str, stage: str) -> Any:
    async def close() -> None: ...

    told = release(model, stage)
    return SimpleNamespace(release=told, digest=model, version=model[:12], close=close)


class AfterEach(ThreadPoolExecutor):
    """Something happens each time a store was read, before who waits for it goes on."""

    def __init__(self, happens: Callable[[str], None]) -> None:
        super().__init__(1)
        self._happens = happens

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        def read() -> Any:
            found = fn(*args, **kwargs)
            self._happens(fn.__name__)
            return found

        return super().submit(read)


def test_a_canary_that_is_aborted_while_the_ledger_is_read_stays_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = list[str]()
    canary = served(BAD, "canary")
    champion, in_canary = release(GOOD, "production"), canary.release
    monkeypatch.setattr(follow_ledger, "find_release", lambda _: champion)
    monkeypatch.setattr(follow_ledger, "load_release", lambda *_: in_canary)
    monkeypatch.setattr(follow_ledger, "abort", lambda _, model, *__: lines.append(model))
    store = SimpleNamespace(resolve=lambda: "1", list=lambda *_: [])
    spec = SimpleNamespace(owner="team:x", release=SimpleNamespace(rollout=object()))
    place = cast("Any", SimpleNamespace(name="p", store=store, objects=None, spec=spec))

    async def looked() -> None:
        loop = asyncio.get_running_loop()

        def aborts(read: str) -> None:
            if read == "_in_canary" and not lines and following.canary is not None:
                asyncio.run_coroutine_threadsafe(following.abort(canary, "bad"), loop).result()

        following = Following(place, Limits(), Metrics(), 1.0, lambda _: None)
        following._store = AfterEach(aborts)
        following._served, following.canary = served(GOOD, "production"), canary
        await following.look()
        assert following.canary is None
        assert not lines
        await following.look()
        assert following.canary is None
        await following.end()

    asyncio.run(looked())
    assert lines == [BAD], "the next look writes the line"


class Ledger:
    """A store in which the model that answers can be recalled."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = EmbeddedStore(root)
        self.store.resolve()
        self.told = list[str]()

    def pipeline(self) -> Any:
        spec = SimpleNamespace(owner="team:x", release=SimpleNamespace(rollout=None))
        settings = SimpleNamespace(snapshots=str(self.root))
        return SimpleNamespace(name="p", store=self.store, spec=spec, settings=settings)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[Following]:
        """A server whose model answers, followed as the server does it."""
        found = Following(self.pipeline(), Limits(), Metrics(), 0.05, self.told.append)
        found._served = served(GOOD, "production")
        beside = [asyncio.create_task(one) for one in (found.run(), found.watch())]
        try:
            yield found
        finally:
            for one in beside:
                one.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await found.end()

    def recall(self) -> Path:
        """Recall the model, and return the file of the recall."""
        told = recall(self.store, GOOD, "p")
        digest, _ = self.store.entry(self.store.resolve(), recall_file(told.id))
        return self.root / "objects" / digest[:2] / digest


async def silent(following: Following) -> str:
    """Why the server does not answer, once it does not."""
    end = time.monotonic() + 10
    while following.ready:
        assert time.monotonic() < end, "it answers"
        await asyncio.sleep(0.02)
    with pytest.raises(NotServing) as caught:
        _ = following.served
    return str(caught.value)


def test_a_recall_waits_for_no_look_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, hangs, ended = Ledger(tmp_path), threading.Event(), threading.Event()

    def find(_: object) -> Any:
        hangs.set()
        ended.wait()
        raise StorageError("it hung")

    monkeypatch.setattr(follow_ledger, "find_release", find)
    monkeypatch.setattr(follow_ledger, "_LONGEST_SECONDS", 0.5)

    async def recalled() -> None:
        async with ledger.following() as following:
            try:
                assert await asyncio.to_thread(hangs.wait, 10)
                await asyncio.to_thread(ledger.recall)
                assert "is recalled by ann" in await silent(following)
                await asyncio.sleep(0.6)
            finally:
                ended.set()

    asyncio.run(recalled())
    assert any("a look at the ledger has waited" in said for said in ledger.told)


def test_a_store_that_was_put_back_to_before_a_recall_is_taken_up_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path)
    monkeypatch.setattr(follow_ledger, "find_release", lambda _: release(GOOD, "production"))

    async def put_back() -> None:
        async with ledger.following() as following:
            before = ledger.store.resolve()
            await asyncio.to_thread(ledger.recall)
            await silent(following)
            assert any(path.startswith("recalls/") for path in following._recalls_seen)
            point_main_at(ledger.root, before)
            while not any("put back to an earlier state" in said for said in ledger.told):
                await asyncio.sleep(0.02)
            assert not following.ready
            following.noticed = frozenset({("ledger/p/000001.json", "another digest")})
            register(ledger.store, "p", GOOD, "eve", "")
            following._recalls_seen.clear()
            with pytest.raises(StorageError, match=r"000001\.json is gone, or another one"):
                following._news()

    asyncio.run(asyncio.wait_for(put_back(), 30))


def damage(file: Path) -> None:
    file.write_bytes(b"{}")


@pytest.mark.parametrize("destroy", [Path.unlink, damage])
def test_a_recall_whose_record_is_destroyed_silences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, destroy: Callable[[Path], None]
) -> None:
    ledger = Ledger(tmp_path)
    monkeypatch.setattr(follow_ledger, "find_release", lambda _: release(GOOD, "production"))
    destroy(ledger.recall())

    async def destroyed() -> None:
        async with ledger.following() as following:
            why = await silent(following)
            assert "nobody can tell whether model aaaaaaaaaaaa is recalled: recalls/" in why
            assert ("is lost" in why) == (destroy is Path.unlink)
            assert "again" not in why.partition("until that can be read again")[0], "it is no asset"
            assert any(why.split(": ", 1)[1][:60] in said for said in ledger.told)
            assert following.seen is None, "once it is read again, the next look takes up the model"

    asyncio.run(destroyed())


def test_a_store_whose_folder_is_away_silences_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, away = Ledger(tmp_path / "store"), tmp_path / "away"
    monkeypatch.setattr(follow_ledger, "find_release", lambda _: release(GOOD, "production"))
    ledger.recall()
    ledger.root.rename(away)

    async def unplugged() -> None:
        async with ledger.following() as following:
            await asyncio.sleep(1)
            assert following.ready
            away.rename(ledger.root)
            assert "is recalled by ann" in await silent(following)

    asyncio.run(unplugged())


@pytest.mark.parametrize(
    ("error", "answers"),
    [
        (StoreAway("lakeFS does not answer."), True),
        (DiskRefuses("The disk is full."), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError(errno.EMFILE, "too many open files"), True),
        (StorageError("The record is damaged."), False),
        (PermissionError(errno.EACCES, "not allowed"), False),
        (ValueError("no JSON"), False),
    ],
)
def test_only_a_store_that_does_not_answer_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, answers: bool
) -> None:
    ledger = Ledger(tmp_path)

    def refuses(*_: object) -> None:
        raise error

    monkeypatch.setattr(follow_ledger, "require_sound_model", refuses)
    following = Following(ledger.pipeline(), Limits(), Metrics(), 1.0, ledger.told.append)
    assert (not following._forbidden(GOOD)) == answers
