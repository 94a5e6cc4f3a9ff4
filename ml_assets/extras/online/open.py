"""Opens the online store: a file, or a Redis server."""

from pathlib import Path

from ml_assets.extras.online.store import OnlineStore

SERVERS = ("redis", "rediss")
"""Schemes of a server; what has none is a file."""


def open_online(location: str) -> OnlineStore:
    """The online store at a path or a Redis URL.

    Raises:
        SettingsError: the client of the server is not installed.
    """
    if location.split("://")[0] in SERVERS:
        from ml_assets.extras.online.redis import RedisOnline

        return RedisOnline(location)
    from ml_assets.extras.online.sqlite import SqliteOnline

    return SqliteOnline(Path(location))
