"""Writes the source of code_lm: the Python sources of this interpreter, as one table."""

import sysconfig
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from ml_assets.errors import SourceError
from ml_assets.settings.environment import CODE_WORLD

FILE = "sources.parquet"
LARGEST = 100_000
"""Bytes of a file, at most: the larger ones are tables."""
_LEFT_OUT = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "encodings",  # tables of characters
        "ensurepip",
        "idle_test",
        "idlelib",  # two programs of their own
        "lib-dynload",
        "pydoc_data",  # a manual in one string
        "site-packages",  # what is installed: no two machines have the same
        "test",
        "tests",
        "turtledemo",
    }
)


def lay_out_code(world: Path) -> Path:
    """Write the table, unless it is there.

    Raises:
        SourceError: this interpreter has no sources.
    """
    target = world / CODE_WORLD / FILE
    if target.is_file():
        return target
    folder = Path(sysconfig.get_paths()["stdlib"])
    rows = list(_files(folder))
    if not rows:
        raise SourceError(f"There are no Python sources in {folder}: take another interpreter.")
    table = pl.DataFrame(rows, schema=["path", "package", "text"], orient="row").with_columns(
        pl.lit(datetime(2000, 1, 1, tzinfo=UTC)).dt.cast_time_unit("us").alias("modified_at")
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{FILE}")
    table.write_parquet(draft)
    draft.rename(target)
    return target


def _files(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(path, package, text) of each file that is Python as people write it."""
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).parts
        if _LEFT_OUT.intersection(parts) or not 0 < file.stat().st_size <= LARGEST:
            continue
        try:
            text = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        yield "/".join(parts), parts[0].removesuffix(".py"), text
