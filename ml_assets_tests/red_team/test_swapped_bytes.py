"""Bytes that are changed before the gates, between gate and release, or before they are loaded."""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import Ref
from ml_assets.store.layout import Address
from ml_assets_tests.red_team.conftest import NAME, Scene
from ml_assets_tests.red_team.forging import flip_a_byte
from ml_assets_tests.red_team.refused_release import DECIDED, require_refused
from ml_assets_tests.worlds.shards import shard_of

# --- the bytes that decisions are made from -------------------------------------------------------


def score_session(scene: Scene) -> str:
    """The newest session that scored the candidate on its holdout."""
    folders = (scene.objects.root / "sessions").glob(f"{NAME}-score-*/attempts/*/request.json")
    asked = [f for f in folders if json.loads(f.read_bytes())["model"]["digest"] == scene.candidate]
    assert asked
    return max(asked, key=lambda file: file.stat().st_mtime).parents[2].name


def test_planted_predictions_are_not_believed(refused: Scene) -> None:
    """A finished session, whole and without a fault, that nobody of ours saw."""
    session = refused.objects.path("sessions", score_session(refused))
    file = session / "predictions.npy"
    true = np.load(file)
    labels = pl.read_parquet(holdout(refused))["species"].to_list()
    species = sorted(set(labels))
    perfect = np.full((len(labels), 3), 1e-9)
    perfect[np.arange(len(labels)), [species.index(one) for one in labels]] = 1 - 2e-9
    planted = true.copy()
    planted[: len(labels)] = perfect
    buffer = io.BytesIO()
    np.save(buffer, planted)
    file.write_bytes(buffer.getvalue())
    result = json.loads((session / "attempts" / "1" / "result.json").read_bytes())
    result["predictions"] |= {
        "size": len(buffer.getvalue()),
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    (session / "attempts" / "1" / "result.json").write_bytes(canonical_json(result))
    (session / "attempts" / "9").mkdir()
    (session / "attempts" / "9" / "result.json").write_bytes(canonical_json(result))

    said = refused.materialize("evaluation_report", "released_model", checks=True)

    assert np.array_equal(np.load(file), true), "they were computed anew"
    assert (session / "attempts" / "10" / "result.signature.json").is_file()
    assert refused.in_production != refused.candidate
    assert not refused.ledger[-1].decision.passed, said


def holdout(scene: Scene) -> Path:
    record = scene.store.read_bytes(scene.store.resolve(), Address(NAME, "training_set").record)
    digest = json.loads(record)["data_version"]
    data = Ref(uri=str(scene.objects.path("shards", NAME, digest)), digest=digest)
    return shard_of(data, "holdout") / "rows.parquet"


def test_a_holdout_whose_labels_were_changed_is_not_judged_on(refused: Scene) -> None:
    file = holdout(refused)
    rows = pl.read_parquet(file)
    rows.with_columns(pl.lit("setosa").alias("species")).write_parquet(file)
    said = refused.materialize("evaluation_report", "released_model", checks=True)
    require_refused(refused, said, f"{file} is damaged")


def test_a_champion_that_was_changed_is_not_compared_with(refused: Scene) -> None:
    """A weaker champion would let a weaker model win."""
    folder = refused.objects.path("models", str(refused.in_production))
    flip_a_byte(folder / "weights.safetensors")
    said = refused.materialize("evaluation_report", "released_model", checks=True)
    assert "is lost or damaged" in said
    assert refused.in_production != refused.candidate


# --- between the gates, the release and the use ---------------------------------------------------


@pytest.mark.parametrize("name", ["weights.safetensors", "model.json"])
def test_a_byte_swapped_between_gate_and_release(passed: Scene, name: str) -> None:
    flip_a_byte(passed.objects.path("models", passed.candidate) / name)
    said = passed.materialize("released_model")
    assert f"The model {passed.candidate[:12]} of irises is lost or damaged" in said
    assert passed.in_production is None
    assert [line.kind for line in passed.ledger if line.kind in DECIDED] == ["decision"]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("at_least: 0.8", "at_least: 0.99999"), "irises: gates or release changed in"),
        (("bootstrap_samples: 200", "bootstrap_samples: 2000"), "irises: evaluation changed in"),
        (("holdout: 0.3", "holdout: 0.25"), "irises: split changed in"),
        (("at_least: 0.8", "at_least: high"), "irises: 1 mistake in"),
    ],
)
def test_gates_edited_between_gate_and_release(
    passed: Scene, edit: tuple[str, str], said: str
) -> None:
    begun, spec = passed.definitions(), passed.world.pipelines / NAME / "defs.yaml"
    assert edit[0] in spec.read_text()
    spec.write_text(spec.read_text().replace(*edit))
    assert said in passed.materialize("released_model", begun=begun)
    assert passed.in_production is None
    assert [line.kind for line in passed.ledger if line.kind in DECIDED] == ["decision"]


def test_an_edit_of_no_gate_between_gate_and_release_stops_nothing(passed: Scene) -> None:
    """The suite above would be worth nothing if what passed and is whole were not released."""
    begun, spec = passed.definitions(), passed.world.pipelines / NAME / "defs.yaml"
    spec.write_text(spec.read_text().replace("epochs: 30", "epochs: 31"))
    assert passed.materialize("released_model", begun=begun) == ""
    assert passed.in_production == passed.candidate


def test_a_byte_swapped_between_release_and_load(released: Scene) -> None:
    flip_a_byte(released.objects.path("models", released.candidate) / "weights.safetensors")
    for command in (["predict", NAME, "--row", "{}"], ["release", "export", NAME, "--to", "out"]):
        assert "is lost or damaged" in released.world.cli(*command, code=1)
    assert not (released.world.root / "out").exists()
    assert "refused  production" in released.world.cli("release", "verify", NAME, code=3)
