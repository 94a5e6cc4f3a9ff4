"""Writes the source of digits: the handwritten digits that scikit-learn ships, a file for each."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ml_assets.settings.environment import IMAGE_WORLD

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
