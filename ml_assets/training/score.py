"""The ``score`` verb: predictions for every row of a split, and how long one row takes."""

import io
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import File, ScoreRequest, ScoreResult
from ml_assets.storage.objects import file_digest
from ml_assets.training.checkpoint import write_whole
from ml_assets.training.data import SplitArrays, open_set
from ml_assets.training.events import EventWriter
from ml_assets.training.export import load_model
from ml_assets.training.models import predictions

_CHUNK = 8192
_SINGLE_ROWS = 50


def score(request: ScoreRequest, events: EventWriter) -> None:
    """Write the predictions, then the result, each whole."""
    torch.set_num_threads(request.world.threads)
    torch.use_deterministic_algorithms(True)
    manifest, network = load_model(request.model)
    folder, schema = open_set(request.data)
    rows = SplitArrays(folder, schema, request.split)

    @torch.no_grad()
    def predict(numbers: np.ndarray) -> torch.Tensor:
        taken = rows.take(numbers)
        found = predictions(network(taken.numeric, taken.categorical, None), manifest.task)
        scale = manifest.label_scale
        return found if scale is None else found * scale.std + scale.mean

    began = time.monotonic()
    spans = [np.arange(a, min(a + _CHUNK, len(rows))) for a in range(0, len(rows), _CHUNK)]
    predicted = torch.cat([predict(span) for span in spans]).numpy()
    seconds = time.monotonic() - began
    buffer = io.BytesIO()
    np.save(buffer, predicted, allow_pickle=False)
    target = Path(request.output.predictions)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, buffer.getvalue())
    size, sha256 = target.stat().st_size, file_digest(target)
    result = ScoreResult(
        session=request.session,
        attempt=request.attempt,
        predictions=File(path=str(target), size=size, sha256=sha256),
        rows=len(rows),
        latency_ms=1000
        * statistics.median(_timed(predict, n % len(rows)) for n in range(_SINGLE_ROWS)),
        rows_per_second=len(rows) / max(seconds, 1e-9),
    )
    write_whole(Path(request.output.result), canonical_json(result))
    events.finished(result)


def _timed(predict: object, row: int) -> float:
    assert callable(predict)
    began = time.perf_counter()
    predict(np.array([row]))
    return time.perf_counter() - began
