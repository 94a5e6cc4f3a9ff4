"""Unpacks gzip, but no further than an honest file would need."""

import gzip
import io
import zlib

from ml_assets.assets.raw_snapshot.readers.places import CHUNK, MOST_BYTES
from ml_assets.errors import SourceError, quoted

RATIO = 100
"""Text shrinks to a tenth, seldom to a thirtieth; what shrinks more is no text."""
_ALLOWED = 64 << 20
"""Bytes that any file may unpack to, whatever its ratio."""
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"


def allowed(packed: int, at_least: int = _ALLOWED) -> int:
    """Bytes that so many packed ones may become."""
    return min(MOST_BYTES, max(at_least, RATIO * packed))


def unpacked(content: bytes, path: str, where: str) -> bytes:
    """The text of a file: unpacked where its name ends in ``.gz``, else as it is.

    Raises:
        SourceError: it is cut off, damaged, or grows beyond every measure; or it is an archive.
    """
    if content.startswith(_ZIP):
        raise SourceError(f"{where} is a ZIP archive. Deliver the file itself, or gzip (.gz).")
    if not path.endswith(".gz"):
        if content.startswith(_GZIP):
            raise SourceError(f"{where} is gzip, and its name does not say so: end it in .gz.")
        return content
    bound = allowed(len(content))
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            while part := packed.read(CHUNK):
                size += len(part)
                if size > bound:
                    raise SourceError(
                        f"{where}: {len(content):,} bytes of gzip unpack to more than {bound:,}"
                        f" bytes. At most {RATIO} times as much is expected of rows; write the"
                        " file uncompressed if it is meant."
                    )
                parts.append(part)
    except EOFError as error:
        raise SourceError(
            f"{where} is cut off: its gzip does not end. Deliver it again, whole."
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(
            f"{where} is not whole gzip: {quoted(error)}. Deliver it again."
        ) from error
    return b"".join(parts)
