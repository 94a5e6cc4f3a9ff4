"""What the server does with its canary while it reads the ledger."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ml_assets.extras.serving import follow_ledger
from ml_assets.extras.serving.batching import Limits
from ml_assets.extras.serving.follow_ledger import Following
from ml_assets.extras.serving.metrics import Metrics

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
