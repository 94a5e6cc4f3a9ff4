"""The pictures of a training session, from what its events have told so far."""

from collections.abc import Mapping, Sequence

import numpy as np

from ml_assets.assets.trained_model.pace_pictures import pace_pictures
from ml_assets.assets.training_set.encoding import decode_rows
from ml_assets.reports.drawing import Axis, Series, Tone, line_chart
from ml_assets.reports.picture import Picture, Table
from ml_assets.spec.program import Preprocessing
from ml_assets.spec.program.events import FirstRows, FixedBatch
from ml_assets.spec.training import Task
from ml_assets.spec.training_story import TrainingStory

HISTORY_POINTS = 300
LIVE_POINTS = 60
"""Most points of one curve on the page, and in the picture of a checkpoint."""
FIXED_BATCH_STEPS = 16
_TONES: tuple[Tone, ...] = ("one", "two", "three", "four")


def training_pictures(
    story: TrainingStory, task: Task, classes: Sequence[str], points: int = HISTORY_POINTS
) -> list[Picture]:
    """Losses, learning rate, the fixed batch and the pace; each as far as it was told.

    Args:
        points: most points of one curve.
    """
    return [
        *_losses(story, points),
        *_learning_rate(story, points),
        *_fixed_batch(story.batches, task, classes),
        *pace_pictures(story.metrics),
    ]


def decoded_rows(first: FirstRows, preprocessing: Preprocessing, classes: Sequence[str]) -> Table:
    """The first rows that the model saw, one a column, decoded to what a person reads."""
    frame = decode_rows(
        np.asarray(first.numeric, np.float32),
        np.asarray(first.categorical, np.int32),
        preprocessing,
    )
    nothing = {column.name: 1e-5 * column.std for column in preprocessing.numeric}
    rows = [
        [name, *(_read(value, nothing.get(name, 0.0)) for value in frame[name])]
        for name in frame.columns
    ]
    if classes:
        labels = [classes[int(label)] for label in first.labels]
    else:
        labels = [f"{label:g}" for label in first.labels]
    return Table(
        "Rows just before the model, decoded",
        "The first rows of the first batch as they enter the model: encoded, and read back"
        " through the preprocessing. A dash is a missing value.",
        ["column", *(f"row {number}" for number in range(1, len(first.labels) + 1))],
        [["label", *labels], *rows],
    )


def _read(value: float | str | None, nothing: float) -> str:
    """``nothing``: what rounding may leave of a zero."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return "0" if abs(value) < nothing else f"{value:.4g}"


def _losses(story: TrainingStory, points: int) -> list[Picture]:
    names: dict[str, Tone] = {"train_loss": "one", "validation_loss": "two"}
    series = [
        Series(name.replace("_", " "), _thin(story.curve(name), points), tone)
        for name, tone in names.items()
        if story.curve(name)
    ]
    if not series:
        return []
    low, high = _loss_range(series)
    chart = line_chart(
        "Loss by step", series, Axis("step", 0.0), Axis("loss", low, high), wide=True
    )
    curve = story.curve("validation_loss")
    if not curve:
        return [Picture("Loss", "", chart)]
    step, least = min(curve, key=lambda point: point[1])
    return [Picture("Loss", f"Lowest validation loss {least:.4f}, at step {step:.0f}.", chart)]


def _learning_rate(story: TrainingStory, points: int) -> list[Picture]:
    curve = _thin(story.curve("learning_rate"), points)
    if not curve:
        return []
    chart = line_chart(
        "Learning rate by step",
        [Series("learning rate", curve)],
        Axis("step", 0.0),
        Axis("learning rate", 0.0),
        wide=True,
    )
    words = f"Highest {max(value for _, value in curve):.2g}: warm-up, then decay."
    return [Picture("Learning rate", words, chart)]


def _fixed_batch(
    batches: Mapping[int, FixedBatch], task: Task, classes: Sequence[str]
) -> list[Picture]:
    """One line a row: how its prediction moved, coloured by what came true."""
    if not batches:
        return []
    kept = [
        batches[int(step)]
        for step, _ in _thin([(s, 0.0) for s in sorted(batches)], FIXED_BATCH_STEPS)
    ]
    labels = kept[-1].labels
    middle = sorted(labels)[len(labels) // 2]
    series: list[Series] = []
    for row, label in sorted(enumerate(labels), key=lambda pair: pair[1]):
        output = int(label) if task == "multiclass" else 0
        points = [(float(one.step), round(one.predictions[row][output], 3)) for one in kept]
        name, tone = _outcome(task, classes, label, middle)
        series.append(Series(name, points, tone, thin=True))
    probable = task in ("binary", "multiclass")
    said = "predicted probability" if probable else "prediction"
    said = "probability of the true class" if task == "multiclass" else said
    axis = Axis(said, 0.0, 1.0) if probable else Axis(said)
    chart = line_chart("Predictions on a fixed batch", series, Axis("step", 0.0), axis, wide=True)
    words = (
        f"The same {len(labels)} validation rows at every evaluation, coloured by their label:"
        " as the network learns, the colours part."
    )
    return [Picture("Predictions on a fixed batch", words, chart)]


def _outcome(task: Task, classes: Sequence[str], label: float, middle: float) -> tuple[str, Tone]:
    """What came true of a row, in words and as a colour."""
    if task == "multiclass":
        return classes[int(label)], _TONES[int(label) % len(_TONES)]
    if task == "binary":
        return f"label {label:g}", _TONES[int(label)]
    high = label > middle
    return f"label {'above' if high else 'up to'} {middle:.3g}", _TONES[high]


def _loss_range(series: Sequence[Series]) -> tuple[float | None, float | None]:
    """The range of the losses, cut where a few first steps would flatten all that follows."""
    values = sorted(value for one in series for _, value in one.points)
    usual = values[int(len(values) * 0.97)] if len(values) > 20 else values[-1]
    spread = usual - values[0]
    return None, (usual + 0.25 * spread) if values[-1] - values[0] > 3 * spread > 0 else None


def _thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    every = max(1, -(-len(points) // most))
    kept = [*points[::every]]
    if points and points[-1] != kept[-1]:
        kept.append(points[-1])
    return kept
