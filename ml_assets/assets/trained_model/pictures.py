"""The pictures of a training session, from its events so far."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, median

import numpy as np

from ml_assets.assets.training_set.encoding import decode_rows
from ml_assets.assets.training_set.tokens import texts_of
from ml_assets.errors import counted
from ml_assets.reports.drawing import HUES, Axis, Series, Stack, Tone, column_chart, line_chart
from ml_assets.reports.inline_pictures import glance_at_lines
from ml_assets.reports.picture import Picture, Table
from ml_assets.spec.parallel import idle_share
from ml_assets.spec.sanity import Alone
from ml_assets.spec.training import Boosted, ModelSpec, Task, TrainingSpec
from ml_assets.spec.training_program import LabelScale, Preprocessing
from ml_assets.spec.training_program.events import FirstRows, FixedBatch
from ml_assets.spec.training_progress import TrainingStory

Metrics = Mapping[int, Mapping[str, float]]
"""Step -> what was told of it."""
THROUGHPUT = "training_throughput_samples_per_sec"
_COLUMNS = 40
_MEANS = ("data_wait_share", "communication_share", "step_time_ms", "gpu_utilization_pct")
_MOST = ("memory_peak_mb", "memory_total_mb", "gpu_memory_peak_mb")
_USUAL = ("checkpoint_duration_ms", "checkpoint_background_ms", THROUGHPUT)
HISTORY_POINTS = 300
LIVE_POINTS = 60
"""Most points of one curve on the page, and in the picture of a checkpoint."""
FIXED_BATCH_STEPS = 16


def training_pictures(
    story: TrainingStory,
    task: Task,
    classes: Sequence[str],
    model: ModelSpec | None = None,
    points: int = HISTORY_POINTS,
) -> list[Picture]:
    """Losses, learning rate, the fixed batch and the pace; each as far as it was told.

    Args:
        model: what was trained; None: a network.
        points: most points of one curve.
    """
    unit = "round" if isinstance(model, Boosted) else "step"
    return [
        *_losses(story, unit, points),
        *_learning_rate(story, unit, points),
        *_fixed_batch(story.batches, task, classes),
        *_throughput(story.metrics, unit),
        *_parts_of_a_step(story.metrics),
    ]


def decoded_rows(
    first: FirstRows,
    preprocessing: Preprocessing,
    task: Task,
    classes: Sequence[str],
    scale: LabelScale | None = None,
) -> Table:
    """The first rows that the model saw, one a column, decoded to what a person reads."""
    if preprocessing.tokens:
        texts = texts_of(first.categorical, preprocessing.tokens)
        return Table(
            "First windows", "What the model sees first.", ("text",), [(t,) for t in texts]
        )
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
    labels = [_label(label, task, classes, scale) for label in first.labels]
    return Table(
        "Rows just before the model, decoded",
        "The first rows of the first batch as they enter the model: encoded, and read back"
        " through the preprocessing. A dash is a missing value.",
        ["column", *(f"row {number}" for number in range(1, len(first.labels) + 1))],
        [["label", *labels], *rows],
    )


def _label(value: float, task: Task, classes: Sequence[str], scale: LabelScale | None) -> str:
    """A label as the feature function returned it."""
    if classes or task == "binary":
        return (classes or ("false", "true"))[int(value)]
    return (
        f"{value:g}" if scale is None else _read(value * scale.std + scale.mean, 1e-5 * scale.std)
    )


def _read(value: float | str | None, nothing: float) -> str:
    """``nothing``: what rounding may leave of a zero."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return "0" if abs(value) < nothing else f"{value:.4g}"


def losses_at_a_glance(story: TrainingStory) -> str:
    """Markdown of the losses, as small as an asset page shows it by itself; empty: none yet."""
    series = _loss_series(story, HISTORY_POINTS)
    return glance_at_lines("Loss, step by step", series) if series else ""


def _losses(story: TrainingStory, unit: str, points: int) -> list[Picture]:
    series = _loss_series(story, points)
    if not series:
        return []
    low, high = _loss_range(series)
    chart = line_chart(
        f"Loss by {unit}", series, Axis(unit, 0.0), Axis("loss", low, high), wide=True
    )
    curve = story.curve("validation_loss")
    if not curve:
        return [Picture("Loss", "", chart)]
    step, least = min(curve, key=lambda point: point[1])
    return [Picture("Loss", f"Lowest validation loss {least:.4f}, at {unit} {step:.0f}.", chart)]


def _loss_series(story: TrainingStory, points: int) -> list[Series]:
    names: dict[str, Tone] = {"train_loss": "one", "validation_loss": "two"}
    return [
        Series(name.replace("_", " "), _thin(story.curve(name), points), tone)
        for name, tone in names.items()
        if story.curve(name)
    ]


def _learning_rate(story: TrainingStory, unit: str, points: int) -> list[Picture]:
    curve = _thin(story.curve("learning_rate"), points)
    if not curve:
        return []
    chart = line_chart(
        f"Learning rate by {unit}",
        [Series("learning rate", curve)],
        Axis(unit, 0.0),
        Axis("learning rate", 0.0),
        wide=True,
    )
    words = _way_of_rates([value for _, value in story.curve("learning_rate")])
    return [Picture("Learning rate", words, chart)]


def _way_of_rates(rates: Sequence[float]) -> str:
    """How a learning rate went, as far as it was told."""
    top = max(rates)
    rises, falls = (end < top * (1 - 1e-6) for end in (rates[0], rates[-1]))
    if rises:
        return f"It warms up to {top:.2g}{', then decays' if falls else ' and stays there'}."
    return f"It decays from {top:.2g}." if falls else f"It is constant: {top:.2g}."


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
    outcome = _outcomes(labels, task, classes)
    series: list[Series] = []
    for row, label in sorted(enumerate(labels), key=lambda pair: pair[1]):
        output = int(label) if task == "multiclass" else 0
        points = [(float(one.step), round(one.predictions[row][output], 3)) for one in kept]
        series.append(Series(outcome[label][0], points, outcome[label][1], thin=True))
    probable = task in ("binary", "multiclass")
    said = "predicted probability" if probable else "prediction"
    said = "probability of the true class" if task == "multiclass" else said
    axis = Axis(said, 0.0, 1.0) if probable else Axis(said)
    chart = line_chart("Predictions on a fixed batch", series, Axis("step", 0.0), axis, wide=True)
    learns = "their label: as the network learns, the colours part"
    if task == "multiclass":
        learns = "their true class: as the network learns, the lines rise towards 1"
    rows = counted(len(labels), "validation row")
    words = f"The same {rows} at every evaluation, coloured by {learns}."
    return [Picture("Predictions on a fixed batch", words, chart)]


def _outcomes(
    labels: Sequence[float], task: Task, classes: Sequence[str]
) -> dict[float, tuple[str, Tone]]:
    """Label -> what came true of a row, in words and as a colour."""
    if task == "multiclass":
        tones = _tones_of_classes(labels, len(classes))
        other: tuple[str, Tone] = ("other classes", "plain")
        places = {label: int(label) for label in labels}
        return {
            label: (classes[place], tones[place]) if place in tones else other
            for label, place in places.items()
        }
    if task == "binary":
        return {label: (f"label {label:g}", HUES[int(label)]) for label in labels}
    middle = sorted(labels)[len(labels) // 2]
    sides = (f"label up to {middle:.3g}", f"label above {middle:.3g}")
    return {label: (sides[label > middle], HUES[label > middle]) for label in labels}


def _tones_of_classes(labels: Sequence[float], count: int) -> dict[int, Tone]:
    """No two classes share a colour: of more than there are, those with most rows have one."""
    coloured: Sequence[int] = range(count)
    if count > len(HUES):
        most = Counter(int(label) for label in sorted(labels)).most_common(len(HUES))
        coloured = sorted(place for place, _ in most)
    return dict(zip(coloured, HUES, strict=False))


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


def pace_numbers(metrics: Metrics) -> dict[str, float]:
    """One number for a whole training of each measurement: the usual one, the mean or the most."""
    ways = [(_USUAL, median), (_MEANS, fmean), (_MOST, max)]
    return {
        name: way(values)
        for names, way in ways
        for name in names
        if (values := [told[name] for told in metrics.values() if name in told])
    }


def scaling(
    pace: Mapping[str, float],
    alone: Alone | None,
    training: TrainingSpec,
    worlds: Collection[int],
    *,
    gpu: bool,
) -> dict[str, float | str]:
    """Return what the processes of a training are worth beside one by itself; nothing of a single
    one.

    Args:
        pace: see ``pace_numbers``.
        alone: one process by itself.
        worlds: how many processes its attempts had.
        gpu: whether they computed on GPUs.
    """
    count, together = max(worlds), pace.get(THROUGHPUT)
    if count == 1 or together is None:
        return {}
    processes = counted(count, "process")
    idle = idle_share(training.microbatches, count // training.parallel.over(count).tensor)
    waits = {
        "is communication": pace.get("communication_share"),  # a GPU's is not timed
        "waiting for data": pace.get("data_wait_share"),
        f"idle ({counted(training.microbatches, 'microbatch')} on {processes})": idle,
    }
    shares = ", ".join(f"{share:.1%} {what}" for what, share in waits.items() if share is not None)
    said = f"{processes} train {together:,.0f} rows/s"
    if len(worlds) > 1:
        return {"idle_share": idle, "scaling": f"{said}; their number changed. Of a step {shares}."}
    if alone is None or alone.gpu != gpu:
        why = "was not measured alone" if alone is None else "was measured alone on another device"
        return {"idle_share": idle, "scaling": f"{said}; one process {why}. Of a step {shares}."}
    efficiency = together / (count * alone.rows_per_second)
    faster = (
        " One process is faster: set training.processes to 1." if efficiency * count < 1 else ""
    )
    return {
        "rows_per_second_alone": alone.rows_per_second,
        "efficiency": efficiency,
        "idle_share": idle,
        "scaling": f"{said}, {efficiency:.0%} of {count} times the {alone.rows_per_second:,.0f}"
        f" rows/s of one alone, which the sanity step measured. Of a step {shares}.{faster}",
    }


def _throughput(metrics: Metrics, unit: str) -> list[Picture]:
    kept = _measured(metrics, THROUGHPUT)
    if not kept:
        return []
    curve = [(float(step), round(told[THROUGHPUT])) for step, told in kept.items()]
    chart = line_chart(
        f"Throughput by {unit}",
        [Series("throughput", curve)],
        Axis(unit, 0.0),
        Axis("rows per second", 0.0),
        wide=True,
    )
    usual = median(value for _, value in curve)
    words = f"Usually {usual:,.0f} rows per second, over all processes; evaluations are left out."
    return [Picture("Throughput", words, chart)]


def _parts_of_a_step(metrics: Metrics) -> list[Picture]:
    kept = _measured(metrics, "data_wait_share")
    if not kept:
        return []
    time, data, others = (
        [told.get(name, 0.0) for told in kept.values()]  # a GPU's collectives are not timed
        for name in ("step_time_ms", "data_wait_share", "communication_share")
    )
    computing = [max(0.0, 1 - d - c) for d, c in zip(data, others, strict=True)]
    parts = [
        Stack("computing", _of(time, computing), "one"),
        Stack("waiting for other processes", _of(time, others), "two"),
        Stack("waiting for data", _of(time, data), "three"),
    ]
    chart = column_chart(
        "Where the time of a step goes",
        parts,
        Axis("step", names=[str(step) for step in kept]),
        Axis("milliseconds", 0.0),
    )
    words = (
        f"A step takes {median(time):,.3g} ms: {fmean(data):.1%} of it is waiting for data,"
        f" {fmean(others):.1%} waiting for other processes."
    )
    fetched = [told for told in kept.values() if "fetch_wait_share" in told]
    if fetched:
        stalls, moved = fmean(t["fetch_wait_share"] for t in fetched), fetched[-1].get("fetched_mb")
        words += (
            f" Rows were fetched on demand (training.order: blocks): {stalls:.1%} of a step was"
            f" spent waiting for rows that came too late; {moved or 0:,.0f} MB were fetched."
        )
    return [Picture("Where the time of a step goes", words, chart)]


def _of(whole: list[float], shares: list[float]) -> list[float]:
    return [one * share for one, share in zip(whole, shares, strict=True)]


def _measured(metrics: Metrics, name: str) -> dict[int, Mapping[str, float]]:
    """The steps that have a measurement, in order, so few that each can be seen."""
    told = {step: metrics[step] for step in sorted(metrics) if name in metrics[step]}
    every = max(1, -(-len(told) // _COLUMNS))
    return {step: told[step] for step in list(told)[::every]}
