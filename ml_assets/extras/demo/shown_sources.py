"""Writes the sources of the pipelines that are shown after the demo.

Of code_lm the Python sources of this interpreter, as one table; of digits the handwritten digits
that scikit-learn ships, a file for each.
"""

import os
import shutil
import sysconfig
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.errors import SourceError
from ml_assets.settings.environment import CODE_WORLD, IMAGE_WORLD

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


WRITTEN = datetime(1998, 7, 1, tzinfo=UTC).timestamp()
"""The files' time: of the donation. It is the same on every machine, and so are the versions."""


def lay_out_images(world: Path) -> Path:
    """Write 1,797 images of 8 by 8 pixels, each below the folder of its digit, unless they are
    there."""
    target = world / IMAGE_WORLD
    if target.is_dir():
        return target
    from sklearn.datasets import load_digits

    draft = target.with_name(f".{target.name}")
    shutil.rmtree(draft, ignore_errors=True)  # of a command that was killed
    images, digits = (np.asarray(part) for part in load_digits(return_X_y=True))
    for number, (image, digit) in enumerate(zip(images, digits, strict=True)):
        file = draft / str(digit) / f"{number:04}.pgm"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"P5 8 8 16\n" + image.astype("uint8").tobytes())
        os.utime(file, (WRITTEN, WRITTEN))
    draft.rename(target)
    return target
