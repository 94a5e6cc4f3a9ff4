"""Small images: the handwritten digits that scikit-learn ships, each in a file of its own.

The table refers to the files; a function of the team makes numbers of them.
"""

import json
from pathlib import Path

SPEC = """\
type: ml_assets.component.TrainingPipeline
attributes:
  schema: 1
  name: digits
  description: Which digit somebody wrote (Alpaydin and Kaynak, 1998).
  owner: team:post
  sources:
    images:
      kind: files
      path: images/{digit}/*.pgm
      format: binary
      partitioned: false
      columns: {path: string, etag: string, bytes: int64, modified: datetime, digit: string}
      key: [path]
      contract: images.json
  features:
    function: features.py:build
    key: [path]
    decision_at: modified
    decode: {function: features.py:pixels, name: pixel, width: 64}
  label:
    column: digit
    task: multiclass
    classes: ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']
  split: {kind: random, validation: 0.2, holdout: 0.3}
  model: {family: mlp, width: 64, depth: 2}
  training:
    epochs: 20
    batch_size: 120
    microbatches: 12
    learning_rate: 0.003
    evaluate_every: 40
    patience: 50
    strategy: replicate
    processes: 1
  evaluation:
    block: row
    bootstrap_samples: 200
    baselines:
      - {kind: constant}
  gates:
    - {kind: bound, name: accuracy_floor, metric: accuracy, at_least: 0.9}
    - {kind: champion}
"""

FEATURES = '''\
"""The images as they are, and the numbers in them."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    return tables["images"]


def pixels(files: list[bytes]) -> np.ndarray:
    """[n, 64] from 0 to 1: behind the header of a PGM file lie 8 rows of 8 bytes."""
    return np.stack([np.frombuffer(file, np.uint8)[-64:] for file in files]) / 16
'''

CONTRACT = {
    "name": "images",
    "expectations": [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "bytes", "min_value": 64, "max_value": 100},
            "severity": "critical",
        },
    ],
}


def plant(pipelines: Path, sources: Path) -> None:
    """Write the pipeline's folder and its images."""
    folder = pipelines / "digits"
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(SPEC)
    (folder / "features.py").write_text(FEATURES)
    (folder / "images.json").write_text(json.dumps(CONTRACT))
    write_images(sources / "images")


def write_images(folder: Path) -> None:
    """1,797 images of 8 by 8 pixels, each in the folder of its digit."""
    from sklearn.datasets import load_digits

    data = load_digits()
    for number, (image, digit) in enumerate(zip(data.images, data.target, strict=True)):
        file = folder / str(digit) / f"{number:04}.pgm"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"P5 8 8 16\n" + image.astype("uint8").tobytes())
