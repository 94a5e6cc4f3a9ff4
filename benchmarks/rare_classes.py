"""Four ways to learn a class of 1 %, with and without calibration: python rare_classes.py [ROWS]

A table is made up, so that the true probability of each row is known; the training program learns
it with a plain log-loss, weighted, with a focal loss, and oversampled, and each model is judged on
rows of its own before and after its calibration. Prints a table, then one figure a line:
NAME VALUE AIM holds|short. A log-loss is told as what it is above that of the true probabilities.
"""

import logging
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.assets.evaluation_report.metrics.metrics import judged
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.assets.training_set.shards import load_schema
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program import (
    ModelManifest,
    Ref,
    TrainOutput,
    TrainRequest,
    TrainResult,
    World,
)
from ml_assets.training.calibration import calibrated
from ml_assets.training.events import EventWriter
from ml_assets.training.rows.arrays import Predict, SplitArrays
from ml_assets.training.train import train
from ml_assets.training.weights import load_predictor
from ml_assets_tests.worlds.shards import write_shards

NUMBERS = ("a", "b", "c", "d")
FEATURES = FeaturesSpec(
    function="features.py:build", key=("k",), decision_at="at", numeric=NUMBERS, categorical=("w",)
)
LABEL = LabelSpec(column="y", task="binary")
MODEL = Mlp(family="mlp", width=32, depth=2)
PLAIN = TrainingSpec(
    epochs=6, batch_size=480, learning_rate=3e-3, evaluate_every=40, patience=20, processes=1
)
WAYS = {
    "log_loss": {},
    "weighted": {"positive_weight": 50.0},
    "focal": {"loss": "focal", "focal_gamma": 2.0},
    "oversampled": {"oversample": 0.3},
}
MOVED = 5.0
"""Uncalibrated, the loss above the true one is at least so many times the plain model's."""
NEAR = 2.0
"""Calibrated, it is at most so many times the plain model's; so for the calibration error."""
CHANCE = {"loss": 5e-4, "ece": 1e-3}
"""Below this a difference is one of the draw of the rows."""
RANKED = 0.75
"""The average precision is at least this share of the plain model's."""


@dataclass(frozen=True)
class Figures:
    """Of one model on the holdout."""

    loss: float
    """Mean log-loss above that of the true probabilities, nats."""
    ece: float
    average_precision: float


def main() -> None:
    """Train the four, print the table and what it says."""
    rows = int((sys.argv[1:] or ["60000"])[0])
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder), rows)
    print(f"{'':22}{'loss above truth':>18}{'ECE':>10}{'PR-AUC':>9}")
    for (way, state), figures in found.items():
        print(
            f"{way:12}{state:10}{figures.loss:18.5f}{figures.ece:10.5f}"
            f"{figures.average_precision:9.4f}"
        )
    lines = verdicts(found)
    print(*lines, sep="\n")
    sys.exit(any(line.endswith("short") for line in lines))


def compare(folder: Path, rows: int) -> dict[tuple[str, str], Figures]:
    """(way, raw or calibrated) -> its figures on the holdout."""
    parts = {"train": (rows, 0), "validation": (rows // 2, 1), "holdout": (rows, 2)}
    splits = {name: world(size, seed) for name, (size, seed) in parts.items()}
    data = write_shards(splits, FEATURES, LABEL, folder)  # pyright: ignore[reportArgumentType]
    arrays = SplitArrays(Path(data.uri), load_schema(data), "holdout")
    holdout = arrays.whole()
    truth = splits["holdout"].collect()["p"].to_numpy()
    label = holdout.label.astype(bool)
    found = {("truth", ""): figures_of(label, truth, truth)}
    for way, changed in WAYS.items():
        spec = PLAIN.model_validate({**PLAIN.model_dump(), **changed, "recalibrate": True})
        predict, manifest = trained(folder / way, data, spec)
        raw = predict(holdout)
        assert manifest.calibration is not None
        for state, p in {"raw": raw, "calibrated": calibrated(raw, manifest.calibration)}.items():
            found[way, state] = figures_of(label, p[:, 0], truth)
    return found


def world(rows: int, seed: int) -> pl.LazyFrame:
    """Rows whose probability ``p`` of being positive is known; 1 % in the mean."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, len(NUMBERS)))
    word = draw.integers(0, 8, rows)
    logit = -5.72 + 1.1 * x[:, 0] - 0.8 * np.abs(x[:, 1]) + 0.6 * x[:, 2] * (word < 4) + 0.25 * word
    p = 1 / (1 + np.exp(-logit))
    at = [datetime(2024, 1, 1, tzinfo=UTC)] * rows
    numbers = {name: x[:, n] for n, name in enumerate(NUMBERS)}
    words = [f"w{n}" for n in word]
    y = draw.random(rows) < p
    return pl.LazyFrame({"k": range(rows), "at": at, **numbers, "w": words, "p": p, "y": y})


def trained(folder: Path, data: Ref, spec: TrainingSpec) -> tuple[Predict, ModelManifest]:
    """A model by the training program, as it predicts without its calibration."""
    output = TrainOutput(
        checkpoints=str(folder / "checkpoints"),
        model=str(folder / "model"),
        events=str(folder / "events.jsonl"),
        result=str(folder / "result.json"),
    )
    request = TrainRequest(
        session="rare",
        attempt=1,
        model=MODEL,
        training=spec,
        data=data,
        resume=None,
        output=output,
        world=World(),
    )
    train(request, EventWriter(Path(output.events), request.session, 1, rank=0))
    result = TrainResult.model_validate_json(Path(output.result).read_bytes())
    model = Path(result.model.uri)
    manifest = ModelManifest.model_validate_json((model / "model.json").read_bytes())
    return load_predictor(model, manifest, threads=1), manifest


def figures_of(label: np.ndarray, p: np.ndarray, truth: np.ndarray) -> Figures:
    """What predictions [n] are worth beside the true probabilities [n]."""
    best = -np.log(np.where(label, truth, 1 - truth)).mean()
    points = judged(Truth("binary", label.astype(np.int64)), p).points()
    return Figures(points["log_loss"] - best, points["ece"], points["average_precision"])


def verdicts(found: dict[tuple[str, str], Figures]) -> list[str]:
    """One line a figure: NAME VALUE AIM holds|short."""
    plain = found["log_loss", "raw"]
    lines: list[str] = []
    for way in WAYS:
        raw, after = found[way, "raw"], found[way, "calibrated"]
        if way != "log_loss":
            ratio = raw.loss / max(plain.loss, CHANCE["loss"])
            lines.append(line(f"{way}_raw_loss_ratio", ratio, f">={MOVED:g}", ratio >= MOVED))
        for name in ("loss", "ece"):
            ratio = getattr(after, name) / max(getattr(plain, name), CHANCE[name])
            lines.append(line(f"{way}_{name}_ratio", ratio, f"<={NEAR:g}", ratio <= NEAR))
        ratio = after.average_precision / plain.average_precision
        lines.append(line(f"{way}_pr_auc_ratio", ratio, f">={RANKED:g}", ratio >= RANKED))
    return lines


def line(name: str, value: float, aim: str, holds: bool) -> str:
    """One figure."""
    return f"{name} {value:.3f} {aim} {'holds' if holds else 'short'}"


if __name__ == "__main__":
    main()
