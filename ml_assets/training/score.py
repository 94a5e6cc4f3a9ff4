"""The ``score`` verb: predictions for every row of a split, and the time of one row.

Each family's predictor is imported on demand: a boosted model loads no torch.
"""

import io
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ml_assets.spec.training import Boosted
from ml_assets.spec.training_program import File, ModelManifest, ScoreRequest, ScoreResult
from ml_assets.store.objects import file_digest, write_whole
from ml_assets.training.calibration import calibrated
from ml_assets.training.events import EventWriter
from ml_assets.training.model_folder import open_model
from ml_assets.training.rows.arrays import Predict, SplitArrays, open_set
from ml_assets.training.rows.tokens import split_arrays
from ml_assets.training.telemetry import memory_peak_mb

if TYPE_CHECKING:
    from ml_assets.training.models.team import TeamCode

_SINGLE_ROWS = 200
_FEWEST, _LONGEST = 20, 10.0
"""Single rows at least, and seconds after which these are enough: a text is a long row."""


def score(request: ScoreRequest, events: EventWriter) -> None:
    """Write the predictions, then the result, each whole."""
    manifest = open_model(request.model)
    code = None
    if request.code is not None:
        from ml_assets.training.models.families import code_of

        code = code_of(request)
    predict = load_predictor(Path(request.model.uri), manifest, request.world.threads, code)
    folder, schema = open_set(request.data, request.splits)
    rows = split_arrays(folder, schema, request.split)
    began = time.monotonic()
    spans = [
        np.arange(a, min(a + rows.at_once, len(rows))) for a in range(0, len(rows), rows.at_once)
    ]
    predicted = np.concatenate([predict(rows.take(span)) for span in spans])
    seconds = time.monotonic() - began
    buffer = io.BytesIO()
    np.save(buffer, predicted, allow_pickle=False)
    target = Path(request.output.predictions)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, buffer.getvalue())
    size, sha256 = target.stat().st_size, file_digest(target)
    median, slowest = _seconds_of_one(predict, rows)
    result = ScoreResult(
        session=request.session,
        attempt=request.attempt,
        predictions=File(path=str(target), size=size, sha256=sha256),
        rows=len(rows),
        latency_ms=1000 * median,
        rows_per_second=len(rows) / max(seconds, 1e-9),
        latency_p99_ms=1000 * slowest,
        memory_mb=memory_peak_mb(),
        samples=_samples(request, manifest, rows),
    )
    events.finished(result, request.output.result)


def load_predictor(
    folder: Path, manifest: ModelManifest, threads: int, code: "TeamCode | None" = None
) -> Predict:
    """The model of a verified folder, ready to predict: calibrated, in the label's own unit.

    Args:
        code: of a team's own network.
    """
    if isinstance(manifest.model, Boosted):
        from ml_assets.training.boosting.engines import engine_of

        predict = engine_of(manifest.model).load_predictor(folder, manifest, threads)
    else:
        from ml_assets.training.weights import load_predictor as load

        predict = load(folder, manifest, threads, code)
    scale = manifest.label_scale
    if (calibration := manifest.calibration) is not None:
        return lambda rows: calibrated(predict(rows), calibration)
    return predict if scale is None else lambda rows: predict(rows) * scale.std + scale.mean


def _samples(
    request: ScoreRequest, manifest: ModelManifest, rows: SplitArrays
) -> tuple[tuple[int, ...], ...]:
    """How a language model goes on with the first texts; nothing of another model."""
    if manifest.task != "language_model":
        return ()
    from ml_assets.training.weights import samples

    return samples(Path(request.model.uri), manifest, rows)


def _seconds_of_one(predict: Predict, rows: SplitArrays) -> tuple[float, float]:
    """Wall time of one row by itself: the median of some, and the slowest in a hundred."""
    taken: list[float] = []
    for number in range(_SINGLE_ROWS):
        began = time.perf_counter()
        predict(rows.take(np.array([number % len(rows)])))
        taken.append(time.perf_counter() - began)
        if len(taken) >= _FEWEST and sum(taken) > _LONGEST:
            break
    median, slowest = np.percentile(taken, [50, 99])
    return float(median), float(slowest)
