"""The online store in Redis: for many machines. redis-py is loaded when the first store is opened.

A version is a hash of its own (entity -> row). One key names the served hash. The hash before it
stays until the next switch, for readers that have just read its name.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from ml_assets.errors import SettingsError, StoreAway, counted, install
from ml_assets.extras.online.store import EntityRows, Rows, Served

_SECONDS_TO_ANSWER = 10.0
_ROWS_AT_ONCE = 1000


class RedisOnline:
    """OnlineStore on a Redis server.

    Raises:
        SettingsError: redis-py is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            from redis import Redis
            from redis.exceptions import RedisError
        except ImportError as error:
            raise SettingsError(
                f"ML_ASSETS_ONLINE names a Redis server, and its client is not installed:"
                f" {install('redis')}"
            ) from error
        parts = urlsplit(url)
        self._title = f"{parts.hostname}:{parts.port or 6379}"  # the URL may hold a password
        self._redis: Any = Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=_SECONDS_TO_ANSWER,
            socket_connect_timeout=_SECONDS_TO_ANSWER,
        )
        self._failed: type[Exception] = RedisError

    def current(self, pipeline: str) -> Served | None:
        with self._told():
            named = self._redis.hgetall(_served(pipeline))
            if not named:
                return None
            served = Served.of_json(named["what"])
            whole = self._redis.hlen(named["hash"]) == served.rows
        return served if whole else None

    def get(self, pipeline: str, entities: Sequence[str]) -> EntityRows | None:
        with self._told():
            named = self._redis.hgetall(_served(pipeline))
            while named:
                rows = self._redis.hmget(named["hash"], entities) if entities else []
                again = named if None not in rows else self._redis.hgetall(_served(pipeline))
                if again == named:  # a row that is not there is not there: its hash still is
                    return EntityRows(Served.of_json(named["what"]), tuple(rows))
                named = again
        return None

    def serve(self, served: Served, rows: Rows) -> None:
        name = f"{_base(served.pipeline)}:rows:{served.version[:16]}:{uuid4().hex[:8]}"
        known = f"{_base(served.pipeline)}:hashes"
        with self._told():
            before = self._redis.hget(_served(served.pipeline), "hash")
            self._redis.sadd(known, name)
            left = iter(rows)
            while part := dict(islice(left, _ROWS_AT_ONCE)):
                self._redis.hset(name, mapping=part)
            if self._redis.hlen(name) != served.rows:
                raise StoreAway(
                    f"{served.pipeline}: {self._redis.hlen(name)} of {counted(served.rows, 'row')}"
                    f" are in the online store {self._title}. Another process loads it now: try"
                    " again later."
                )
            with self._redis.pipeline(transaction=True) as step:
                what = {"hash": name, "what": served.as_json()}
                step.hset(_served(served.pipeline), mapping=what)
                step.execute()
            old = self._redis.smembers(known) - {name, before}
            if old:
                self._redis.unlink(*old)
                self._redis.srem(known, *old)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._failed as error:
            raise StoreAway(
                f"The online store at {self._title} does not answer as it should"
                f" ({type(error).__name__}). Check ML_ASSETS_ONLINE, its password, and the server."
            ) from None


def _base(pipeline: str) -> str:
    return f"ml_assets:{{{pipeline}}}"  # in braces: one slot of a cluster


def _served(pipeline: str) -> str:
    return f"{_base(pipeline)}:served"
