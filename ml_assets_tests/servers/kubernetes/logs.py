"""A container's log: lines with the time they came, which a follower can wait on."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ml_assets_tests.servers.kubernetes.clock import Clock, micro_stamp, read_stamp
from ml_assets_tests.servers.kubernetes.errors import Json
from ml_assets_tests.servers.kubernetes.requests import is_true


@dataclass(frozen=True)
class LogQuery:
    """The parameters of `GET pods/NAME/log`."""

    follow: bool = False
    tail: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit: int | None = None
    """Bytes."""

    @classmethod
    def of(cls, query: dict[str, str], clock: Clock) -> "LogQuery":
        since = read_stamp(query["sinceTime"]) if query.get("sinceTime") else None
        if query.get("sinceSeconds"):
            since = clock.now() - timedelta(seconds=int(query["sinceSeconds"]))
        return cls(
            follow=is_true(query.get("follow")),
            tail=int(query["tailLines"]) if query.get("tailLines") else None,
            since=since,
            timestamps=is_true(query.get("timestamps")),
            limit=int(query["limitBytes"]) if query.get("limitBytes") else None,
        )


class Log:
    def __init__(self, path: Path, clock: Clock) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._path = path
        self._clock = clock
        self._grown = threading.Condition()
        self._closed = False

    def append(self, line: bytes) -> None:
        """A whole line, or the last, unfinished one, as it came."""
        when = micro_stamp(self._clock.now()).encode()
        with self._grown, self._path.open("ab") as file:
            file.write(when + b" " + line)
            self._grown.notify_all()

    def close(self) -> None:
        """Nothing more will come: followers end."""
        with self._grown:
            self._closed = True
            self._grown.notify_all()

    def read(self, query: LogQuery) -> Iterator[bytes]:
        """Chunks of the log; with `follow` until it is closed (empty: still open)."""
        shown, sent = self._lines(0)
        if query.tail is not None:
            shown = shown[len(shown) - query.tail :] if query.tail < len(shown) else shown
            shown = [] if query.tail == 0 else shown
        left = query.limit
        while True:
            chunk = b"".join(_line(line, query) for line in shown)
            if left is not None:
                chunk, left = chunk[:left], left - len(chunk[:left])
            yield chunk
            if not query.follow or left == 0:
                return
            shown, sent, ended = self._more(sent)
            if ended and not shown:
                return

    def _more(self, sent: int) -> tuple[list[bytes], int, bool]:
        with self._grown:
            if self._path.stat().st_size <= sent and not self._closed:
                self._grown.wait(1.0)
            closed = self._closed
        if not self._path.exists():
            return [], sent, True
        lines, at = self._lines(sent)
        return lines, at, closed

    def _lines(self, start: int) -> tuple[list[bytes], int]:
        with self._path.open("rb") as file:
            file.seek(start)
            data = file.read()
        return data.splitlines(keepends=True), start + len(data)

    def tail_text(self, lines: int, most: int) -> str:
        """The end of the log, for `FallbackToLogsOnError`."""
        found, _ = self._lines(0)
        text = b"".join(line.partition(b" ")[2] for line in found[-lines:])
        return text[-most:].decode(errors="replace")


def _line(line: bytes, query: LogQuery) -> bytes:
    when, _, text = line.partition(b" ")
    if query.since is not None and read_stamp(when.decode()) < query.since:
        return b""
    return line if query.timestamps else text


def container_of(pod: Json, name: str | None) -> str:
    """Which container a log is asked of; ValueError, in real words, where it is unclear."""
    spec = pod["spec"]
    mains = [container["name"] for container in spec["containers"]]
    inits = [container["name"] for container in spec.get("initContainers") or []]
    if name is None:
        if len(mains) + len(inits) == 1:
            return mains[0]
        told = f"choose one of: [{' '.join(mains)}]"
        if inits:
            told += f" or one of the init containers: [{' '.join(inits)}]"
        raise ValueError(
            f"a container name must be specified for pod {pod['metadata']['name']}, {told}"
        )
    if name not in [*mains, *inits]:
        raise ValueError(f"container {name} is not valid for pod {pod['metadata']['name']}")
    return name
