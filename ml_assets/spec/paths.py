"""Paths that a spec names: inside a folder, with fields and wildcards, or on S3."""

import re
from pathlib import PurePosixPath

PARTITION_FIELD = "{partition}"
VERSION_FIELD = "{version}"
"""A date, written 2013-01-31: from that day on the file is what is known."""
S3 = "s3://"
FIELD = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_ANY_DEPTH = "**"


def inside(path: str) -> str:
    """Accept a relative path that stays below its root.

    Raises:
        ValueError: the path is absolute, climbs out with ``..``, or would after a URL's unescaping.
    """
    parts = PurePosixPath(path)
    odd = any(sign in path for sign in "\0\\%")
    if parts.is_absolute() or ".." in parts.parts or not path.strip() or odd:
        raise ValueError(f"{path!r} must be a relative path that stays inside its folder")
    return path


def source_path(path: str) -> str:
    """Accept a path with ``{fields}``, ``*``, ``?`` and one ``**``, here or on S3.

    Raises:
        ValueError: it leads out of its folder, or holds what no path of a source holds.
    """
    below = path.removeprefix(S3)
    inside(below)
    if path != below and "/" not in below.strip("/"):
        raise ValueError(
            f"{path!r} names a bucket and nothing in it: write s3://bucket/prefix/file"
        )
    if path != below and any(sign in below.split("/")[0] for sign in "{}*?"):
        raise ValueError(f"{path!r}: the bucket's name is given as it is")
    rest = FIELD.sub("", below)
    if any(sign in rest for sign in "{}[]"):
        raise ValueError(f"{path!r}: a field is written {{name}}; wildcards are *, ? and **")
    segments = below.split("/")
    if "" in segments or "." in segments:
        raise ValueError(f"{path!r} has an empty part: write each folder once, and no '.'")
    joined = [part for part in segments if _ANY_DEPTH in part]
    if any(part != _ANY_DEPTH for part in joined) or len(joined) > 1 or segments[-1] in joined:
        raise ValueError(f"{path!r}: ** stands once, between two slashes, for folders of any depth")
    return path
