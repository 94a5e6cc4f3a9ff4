"""The program's word: exit codes with a reason, a model that scores, and gradients that work."""

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray

from ml_assets.assets.training_set.encoding import decode_rows
from ml_assets.assets.training_set.shards import load_schema
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training import Mlp, TabM
from ml_assets.spec.training_program import Preprocessing, Ref, ScoreResult
from ml_assets.spec.training_program.events import Failed, FirstRows, FixedBatch
from ml_assets.training.losses import row_losses
from ml_assets.training.models.families import build, predictions, set_output_bias
from ml_assets.training.optimization import learning_rate
from ml_assets.training.rows.batches import Tensors
from ml_assets_tests.training.conftest import (
    FEATURES,
    LABEL,
    RENT,
    SPEC,
    Attempt,
    Sessions,
    frame,
    ranking_set,
    regression_set,
)
from ml_assets_tests.worlds.shards import shard_of, spoil, write_shards

NOTHING = Preprocessing(numeric=(), null_flags=(), categorical=())


def program(verb: str, request: Path) -> int:
    command = [sys.executable, "-m", "ml_assets.training", verb, "--request", str(request)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


def reason(attempt: Attempt) -> str:
    return next(event.reason for event in attempt.events() if isinstance(event, Failed))


def test_a_request_that_is_none_exits_64(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"verb": "train"}))
    assert program("train", file) == 64
    assert program("train", tmp_path / "missing.json") == 64


def test_damaged_data_exits_65_and_names_the_file(sessions: Sessions, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(Path(sessions.data.uri).parent, copy)
    ref = Ref(uri=str(copy / sessions.data.digest), digest=sessions.data.digest)
    (shard_of(ref, "train") / "label.npy").write_bytes(b"nothing")
    attempt = sessions.attempt("bad", procs=1, data=ref)
    assert attempt.run() == 65
    assert "label.npy is damaged" in reason(attempt)


def test_a_non_finite_loss_exits_66_before_it_updates_anything(
    sessions: Sessions, tmp_path: Path
) -> None:
    folder = tmp_path / "nan"
    splits = {"train": frame(400, 0), "validation": frame(100, 1), "holdout": frame(100, 2)}
    ref = write_shards(splits, FEATURES, LABEL, folder)  # pyright: ignore[reportArgumentType]
    poisoned = poison(ref)
    attempt = sessions.attempt("nan", procs=1, data=poisoned)
    assert attempt.run() == 66
    assert "nothing was updated" in reason(attempt)
    assert not Path(attempt.request.output.result).exists()


def poison(ref: Ref) -> Ref:
    def bad(label: NDArray[np.generic]) -> None:
        label[:] = np.nan

    return spoil(ref, "train", "label", bad)


def scored(attempt: Attempt, folder: Path) -> tuple[ScoreResult, np.ndarray]:
    """The validation split as the attempt's model scores it."""
    request = attempt.score_request(folder)
    (folder / "request.json").write_bytes(canonical_json(request))
    assert program("score", folder / "request.json") == 0
    result = ScoreResult.model_validate_json((folder / "result.json").read_bytes())
    return result, np.load(folder / "p.npy", allow_pickle=False)


def array(attempt: Attempt, kind: str) -> np.ndarray:
    return np.load(shard_of(attempt.request.data, "validation") / f"{kind}.npy")


def test_an_exported_model_scores_rows_in_their_order(whole: Attempt, tmp_path: Path) -> None:
    result, p = scored(whole, tmp_path)
    label = array(whole, "label")
    loss = -(label * np.log(p[:, 0]) + (1 - label) * np.log(1 - p[:, 0])).mean()
    assert p.shape == (300, 1)
    assert loss == pytest.approx(whole.result().metrics["validation_loss"], abs=1e-9)
    assert 0 < result.latency_ms <= result.latency_p99_ms
    assert 10 < result.memory_mb < 10_000


def test_a_regression_is_scored_in_the_unit_of_its_label(
    sessions: Sessions, tmp_path: Path
) -> None:
    attempt = sessions.attempt("rents", procs=1, data=regression_set(tmp_path / "shards"))
    assert attempt.run() == 0
    _, predicted = scored(attempt, tmp_path)
    scale = load_schema(attempt.request.data).label_scale
    assert scale is not None and scale.mean == pytest.approx(RENT, abs=5)
    loss = (((predicted[:, 0] - array(attempt, "label")) / scale.std) ** 2).mean()
    assert loss == pytest.approx(attempt.result().metrics["validation_loss"], abs=1e-9)
    error = np.sqrt(loss) * scale.std
    assert error < 0.5 * scale.std, "it has learned something"
    assert predicted.mean() == pytest.approx(RENT, abs=10)


def test_a_ranking_is_scored_row_by_row_and_validated_query_by_query(
    sessions: Sessions, tmp_path: Path
) -> None:
    attempt = sessions.attempt("clicks", procs=1, data=ranking_set(tmp_path / "shards"))
    assert attempt.run() == 0
    _, score = scored(attempt, tmp_path)
    shares, starts = array(attempt, "label"), array(attempt, "queries")
    losses = [
        -(shares[a:b] * log_softmax(score[a:b, 0])).sum()
        for a, b in pairwise(starts)
        if shares[a:b].sum() > 0
    ]
    loss = attempt.result().metrics["validation_loss"]
    assert np.mean(losses) == pytest.approx(loss, abs=1e-6)
    assert loss < 0.9 * np.log(5), "better than no order at all"


def log_softmax(score: np.ndarray) -> np.ndarray:
    return score - np.log(np.exp(score).sum())


def test_the_program_tells_the_first_rows_and_a_fixed_batch_at_each_evaluation(
    whole: Attempt,
) -> None:
    events = whole.events()
    (first,) = (event for event in events if isinstance(event, FirstRows))
    schema = load_schema(whole.request.data)
    decoded = decode_rows(
        np.asarray(first.numeric, np.float32),
        np.asarray(first.categorical, np.int32),
        schema.preprocessing,
    )
    train = pl.read_parquet(shard_of(whole.request.data, "train") / "rows.parquet")
    seen = [row for row in decoded.rows(named=True) if _is_in(train, row)]
    assert len(seen) == len(decoded) == 5
    batches = [event for event in events if isinstance(event, FixedBatch)]
    assert [batch.step for batch in batches] == list(whole.validation_losses())
    assert {batch.labels for batch in batches} == {batches[0].labels}
    assert len(batches[0].labels) == 32
    moved = np.abs(np.array(batches[-1].predictions) - np.array(batches[0].predictions))
    assert moved.max() > 0.05, "the network learned something"


def _is_in(train: pl.DataFrame, row: dict[str, object]) -> bool:
    near = (pl.col("x") - row["x"]).abs() < 1e-4
    return not train.filter(near & (pl.col("c") == row["c"])).is_empty()


@pytest.mark.parametrize(
    "spec", [TabM(family="tabm", width=8, members=3), Mlp(family="mlp", width=8)]
)
def test_the_loss_at_initialization_is_near_the_entropy_of_the_labels(spec: TabM | Mlp) -> None:
    torch.manual_seed(0)
    network = build(spec, NOTHING, "binary", ())
    set_output_bias(network, "binary", (0.2,))
    logits = network(torch.zeros(1000, 0), torch.zeros(1000, 0, dtype=torch.int32), None)
    nothing = torch.zeros(1000, 0)
    rows = Tensors(nothing, nothing.int(), (torch.arange(1000) % 5 == 0).float())
    entropy = -(0.2 * np.log(0.2) + 0.8 * np.log(0.8))
    assert float(row_losses(logits, rows, "binary").mean()) == pytest.approx(entropy, abs=0.15)


def test_multiclass_probabilities_sum_to_one() -> None:
    network = build(TabM(family="tabm", width=8, members=3), NOTHING, "multiclass", ("a", "b", "c"))
    logits = network(torch.zeros(4, 0), torch.zeros(4, 0, dtype=torch.int32), None)
    assert predictions(logits, "multiclass").sum(dim=1).tolist() == pytest.approx([1.0] * 4)


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    rates = [learning_rate(SPEC, step, 100) for step in range(100)]
    assert rates[0] < rates[5] < rates[9] == pytest.approx(SPEC.learning_rate)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 1e-4
