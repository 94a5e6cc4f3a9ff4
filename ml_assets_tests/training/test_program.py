"""The program's word: exit codes with a reason, a model that scores, and gradients that work."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from ml_assets.dataset.encoding import decode_rows
from ml_assets.dataset.shards import load_schema, write_shards
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import (
    Failed,
    FirstRows,
    FixedBatch,
    Preprocessing,
    Ref,
    ScoreOutput,
    ScoreRequest,
    ScoreResult,
    World,
)
from ml_assets.spec.training import Mlp, TabM
from ml_assets.training.losses import row_losses
from ml_assets.training.models import build, probabilities, set_output_bias
from ml_assets.training.optimization import learning_rate
from ml_assets_tests.training.conftest import FEATURES, LABEL, SPEC, Attempt, Sessions, frame

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
    shutil.copytree(sessions.data.uri, copy)
    (copy / "train" / "label.npy").write_bytes(b"nothing")
    ref = Ref(uri=str(copy), digest=sessions.data.digest)
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
    """A set whose checksums are right and whose values are not: an encoder's bug."""
    import hashlib

    folder = Path(ref.uri)
    file = folder / "train" / "numeric.npy"
    array = np.load(file)
    array[:, 0] = np.nan
    np.save(file, array)
    schema = json.loads((folder / "schema.json").read_text())
    entry = schema["splits"]["train"][0]["numeric"]
    entry["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    entry["size"] = file.stat().st_size
    data = json.dumps(schema).encode()
    (folder / "schema.json").write_bytes(data)
    return Ref(uri=ref.uri, digest=hashlib.sha256(data).hexdigest())


def test_an_exported_model_scores_rows_in_their_order(whole: Attempt, tmp_path: Path) -> None:
    result = whole.result()
    request = ScoreRequest(
        session="score",
        attempt=1,
        model=result.model,
        data=whole.request.data,
        split="validation",
        output=ScoreOutput(
            predictions=str(tmp_path / "p.npy"),
            events=str(tmp_path / "events.jsonl"),
            result=str(tmp_path / "result.json"),
        ),
        world=World(),
    )
    (tmp_path / "request.json").write_bytes(canonical_json(request))
    assert program("score", tmp_path / "request.json") == 0
    scored = ScoreResult.model_validate_json((tmp_path / "result.json").read_bytes())
    p = np.load(tmp_path / "p.npy", allow_pickle=False)
    label = np.load(Path(whole.request.data.uri) / "validation" / "label.npy")
    loss = -(label * np.log(p[:, 0]) + (1 - label) * np.log(1 - p[:, 0])).mean()
    assert p.shape == (300, 1)
    assert loss == pytest.approx(result.metrics["validation_loss"], abs=1e-9)
    assert scored.latency_ms > 0


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
    train = pl.read_parquet(Path(whole.request.data.uri) / schema.rows["train"].path)
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
    label = (torch.arange(1000) % 5 == 0).float()
    entropy = -(0.2 * np.log(0.2) + 0.8 * np.log(0.8))
    assert float(row_losses(logits, label, "binary").mean()) == pytest.approx(entropy, abs=0.15)


def test_multiclass_probabilities_sum_to_one() -> None:
    network = build(TabM(family="tabm", width=8, members=3), NOTHING, "multiclass", ("a", "b", "c"))
    logits = network(torch.zeros(4, 0), torch.zeros(4, 0, dtype=torch.int32), None)
    assert probabilities(logits, "multiclass").sum(dim=1).tolist() == pytest.approx([1.0] * 4)


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    rates = [learning_rate(SPEC, step, 100) for step in range(100)]
    assert rates[0] < rates[5] < rates[9] == pytest.approx(SPEC.learning_rate)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 1e-4
