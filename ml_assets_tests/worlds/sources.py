"""The second demo's pipeline, small: short texts, and a network that is trained in seconds."""

import shutil
from pathlib import Path

import polars as pl

from ml_assets.extras.demo.shown_sources import FILE, lay_out_code
from ml_assets.settings import SHOWN_AFTER_DEMO
from ml_assets.settings.environment import CODE_WORLD

NAME = "code_lm"
LONGEST = 4000
"""Bytes of a text."""
_CHANGES = {
    "tokens: {column: text, vocabulary: 2048, context: 256}": (
        "tokens: {column: text, vocabulary: 400, context: 64}"
    ),
    "preset: 1m": "width: 32, depth: 2, heads: 2",
    "    processes: 2": "    processes: 1",
    "evaluate_every: 180": "evaluate_every: 40",
    "margin: 0.02": "margin: 1.0",
    "at_most: 3.0": "at_most: 6.0",
    "margin: 0.3}": "margin: -0.5}",
    "baseline: bigram}": "baseline: bigram, margin: -2.0}",
    "validation: 0.05, holdout: 0.15": "validation: 0.2, holdout: 0.3",
}


def plant(pipelines: Path, sources: Path) -> None:
    """The pipeline in ``pipelines``, and what it reads below ``sources``."""
    folder = pipelines / NAME
    shutil.copytree(
        SHOWN_AFTER_DEMO / CODE_WORLD / NAME, folder, ignore=shutil.ignore_patterns("__pycache__")
    )
    spec = folder / "defs.yaml"
    text = spec.read_text()
    for old, new in _CHANGES.items():
        assert old in text, old
        text = text.replace(old, new)
    spec.write_text(text)
    file = lay_out_code(sources)
    assert file == sources / CODE_WORLD / FILE
    short = pl.col("text").str.len_bytes() < LONGEST
    pl.read_parquet(file).filter(short).write_parquet(file)
