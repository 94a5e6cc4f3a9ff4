"""Contents that were read lately, by digest: records are read again and again."""

from collections import OrderedDict
from threading import Lock


class LruCache:
    """Up to so many bytes in all; what was not used for longest goes first. Threads may share it.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, digest: str) -> bytes | None:
        """The content of a digest; None where it is not known, or not any more."""
        with self._lock:
            found = self._contents.get(digest)
            if found is not None:
                self._contents.move_to_end(digest)
            return found

    def keep(self, digest: str, content: bytes) -> None:
        """Remember a content that was held to its digest."""
        with self._lock:
            if digest in self._contents:
                return
            self._contents[digest] = content
            self._held += len(content)
            while self._held > self._most:
                _, gone = self._contents.popitem(last=False)
                self._held -= len(gone)
