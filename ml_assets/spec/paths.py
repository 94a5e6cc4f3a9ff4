"""Paths that a spec names: inside a folder, with fields and wildcards, or on S3."""

import re
from pathlib import PurePosixPath

PARTITION_FIELD = "{partition}"
PARTITION = re.compile(r"\{partition(?::((?:%[YmdH]|[-_.T/])+))?\}")
"""The partition's key, or its year, month, day and hour as a path writes them: ``%Y/%m``."""
VERSION_FIELD = "{version}"
"""A date, written 2013-01-31: from that day on the file is what is known."""
S3 = "s3://"
FIELD = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_ANY_DEPTH = "**"
_FIELDS = (
    "{!r}: write a field as {{name}}, a partition as {{partition}}, or with %Y, %m, %d and %H as in"
    " {{partition:%Y-%m}}; wildcards are *, ? and **"
)


def inside(path: str) -> str:
    """Accept a relative path that stays below its root.

    Raises:
        ValueError: the path is absolute, climbs out with ``..``, or holds a sign by which it may.
    """
    parts = PurePosixPath(path)
    if sign := next((sign for sign in "\0\\%" if sign in path), ""):
        raise ValueError(
            f"{path!r} must be a relative path without {sign!r}, which may lead elsewhere in a URL"
            " or on another machine: rename the file or folder"
        )
    if parts.is_absolute() or ".." in parts.parts or not path.strip():
        raise ValueError(f"{path!r} must be a relative path that stays inside its folder")
    return path


def source_path(path: str) -> str:
    """Accept a path with ``{fields}``, ``*``, ``?`` and one ``**``, here or on S3.

    The partition may be written otherwise than its key is: ``{partition:%Y-%m}``.

    Raises:
        ValueError: it leads out of its folder, or holds what no path of a source holds.
    """
    below = PARTITION.sub(PARTITION_FIELD, path).removeprefix(S3)
    if "{partition:" in below:
        raise ValueError(_FIELDS.format(path))
    inside(below)
    is_s3 = path.startswith(S3)
    if is_s3 and "/" not in below.strip("/"):
        raise ValueError(f"{path!r} names only a bucket: write s3://bucket/prefix/file")
    if is_s3 and any(sign in below.split("/")[0] for sign in "{}*?"):
        raise ValueError(f"{path!r}: the bucket's name cannot contain a pattern")
    rest = FIELD.sub("", below)
    if any(sign in rest for sign in "{}[]"):
        raise ValueError(_FIELDS.format(path))
    segments = below.split("/")
    if "" in segments or "." in segments:
        raise ValueError(f"{path!r} has an empty part: write each folder once, and no '.'")
    joined = [part for part in segments if _ANY_DEPTH in part]
    if any(part != _ANY_DEPTH for part in joined) or len(joined) > 1 or segments[-1] in joined:
        raise ValueError(
            f"{path!r}: ** may be used once, between two slashes; it matches folders of any depth"
        )
    return path


def partition_parts(path: str) -> frozenset[str]:
    """The parts of a moment that a path names of its partition: ``Y``, ``m``, ``d``, ``H``.

    All of them where it holds the key itself, none where it holds no partition.
    """
    formats = [found[1] for found in PARTITION.finditer(path)]
    if None in formats:
        return frozenset("YmdH")
    return frozenset(part for one in formats for part in re.findall("%(.)", one))
