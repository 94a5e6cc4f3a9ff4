"""A teacher: it reads the rows of another training as its own, and is felt in the weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ml_assets.spec.base import canonical_json
from ml_assets.spec.ensemble import Distill, Ensemble
from ml_assets.spec.training import LightGbm, Mlp, TrainingSpec
from ml_assets.spec.training_program import (
    File,
    LabelScale,
    ModelManifest,
    Preprocessing,
    Ref,
    TrainRequest,
)
from ml_assets.store.objects import file_digest
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.stop import BadRequest
from ml_assets.training.teacher import Columns, load_teacher
from ml_assets.training.weights import load_predictor, networks_of
from ml_assets_tests.training.conftest import SPEC, Attempt, Sessions, regression_set
from ml_assets_tests.training.test_ensemble import manifest_of
from ml_assets_tests.training.test_exactness import left_at
from ml_assets_tests.training.test_warm_start import columns, network, released

CPU = torch.device("cpu")
SMALL = Mlp(family="mlp", width=8, depth=1)
DISTILL = Distill(teacher="release", weight=5.0)
TAUGHT = SPEC.model_copy(update={"epochs": 3, "keep_last": 100, "distill": DISTILL})


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Attempt:
    """An ensemble of two checkpoints."""
    spec = SPEC.model_copy(update={"epochs": 2, "ensemble": Ensemble(checkpoints=2)})
    attempt = Sessions(tmp_path_factory.mktemp("teacher"), data).attempt(
        "teacher", procs=1, spec=spec
    )
    attempt.run_here()
    return attempt


def taught(by: Attempt | Ref | None, sessions: Sessions, name: str, **asked: Any) -> Attempt:
    ref = by.result().model if isinstance(by, Attempt) else by
    attempt = sessions.attempt(name, **{"spec": TAUGHT, "model": SMALL, **asked})
    return replace(attempt, request=attempt.request.model_copy(update={"teacher": ref}))


def predicted(attempt: Attempt) -> np.ndarray:
    folder, schema = open_set(attempt.request.data)
    rows = SplitArrays(folder, schema, "validation").whole()
    return load_predictor(Path(attempt.result().model.uri), manifest_of(attempt), 1)(rows)


def encoded(numbers: dict[str, np.ndarray], words: np.ndarray, by: Preprocessing) -> Tensors:
    """Rows as a training set has them: a NaN is missing."""
    raw = {one.name: (numbers[one.name] - one.mean) / one.std for one in by.numeric}
    clipped = [np.nan_to_num(raw[one.name].clip(-8, 8)) for one in by.numeric]
    flags = [np.isnan(numbers[name]) for name in by.null_flags]
    known = by.categorical[0].vocabulary
    codes = [[known.index(word) + 1 if word in known else 0] for word in words]
    numeric = torch.tensor(np.stack([*clipped, *flags], axis=1), dtype=torch.float32)
    return Tensors(numeric, torch.tensor(codes, dtype=torch.int32), torch.zeros(len(words)))


def moved(of: Preprocessing, mean: float, std: float) -> Preprocessing:
    scaled = {"mean": mean, "std": std}
    numeric = tuple(one.model_copy(update=scaled) for one in of.numeric)
    return of.model_copy(update={"numeric": numeric})


def test_a_teacher_reads_rows_of_other_columns_words_and_means_as_its_own() -> None:
    mine = moved(columns(("x", "y", "z"), ("x", "z"), c=("bread", "cheese", "fish")), 0.5, 2.0)
    its = moved(columns(("z", "x"), ("z",), c=("apple", "bread", "cheese")), -1.0, 0.5)
    draw = np.random.default_rng(0)
    numbers = {name: draw.normal(size=40) for name in "xyz"}
    for name in "xz":
        numbers[name][draw.random(40) < 0.2] = np.nan
    words = draw.choice(["bread", "cheese", "fish", "?"], 40)
    wanted = encoded(numbers, words, its)
    numeric, categorical = Columns.between(mine, its, CPU).of(encoded(numbers, words, mine))
    assert torch.allclose(numeric, wanted.numeric, atol=1e-5)
    assert torch.equal(categorical, wanted.categorical)
    with pytest.raises(BadRequest, match="the teacher reads y, which this training set does not"):
        Columns.between(its, mine, CPU)


def test_it_says_the_mean_of_its_softened_members(teacher: Attempt, sessions: Sessions) -> None:
    request = taught(teacher, sessions, "asked", procs=1).request
    folder, schema = open_set(request.data)
    found = load_teacher(request, schema, CPU)
    assert found is not None
    taken = SplitArrays(folder, schema, "train").whole()
    numeric, categorical = torch.from_numpy(taken.numeric), torch.from_numpy(taken.categorical)
    rows = Tensors(numeric, categorical, torch.from_numpy(taken.label))
    both = networks_of(Path(teacher.result().model.uri), manifest_of(teacher), None)
    assert len(both) == 2
    with torch.no_grad():
        each = [torch.sigmoid(one(numeric, categorical, None) / 2).mean(1) for one in both]
    assert torch.allclose(found.says(rows), (each[0] + each[1]) / 2, atol=1e-6)


def test_a_network_comes_closer_to_its_teacher_than_by_the_labels_alone(
    teacher: Attempt, sessions: Sessions
) -> None:
    pupil, alone = taught(teacher, sessions, "pupil"), taught(None, sessions, "alone", procs=1)
    assert pupil.run() == 0
    alone.run_here()
    whole = predicted(teacher)
    apart = {one.folder.name: np.abs(predicted(one) - whole).mean() for one in (pupil, alone)}
    assert apart["pupil"] < 0.8 * apart["alone"], apart
    assert manifest_of(pupil).ensemble == 1

    again = taught(teacher, sessions, "pupil", number=2, resume=left_at(pupil, 10))
    assert again.run() == 0
    assert again.weights() == pupil.weights()
    one = taught(teacher, sessions, "one", procs=1)
    one.run_here()
    assert np.allclose(predicted(one), predicted(pupil), atol=1e-4), "as any number of processes"


def test_a_number_is_taught_in_its_own_unit(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path, regression_set(tmp_path / "shards"))
    spec = TrainingSpec.model_validate({**SPEC.model_dump(), "epochs": 1})
    teacher = sessions.attempt("teacher", procs=1, spec=spec, model=SMALL)
    teacher.run_here()
    request = taught(teacher, sessions, "pupil", procs=1).request
    folder, schema = open_set(request.data)
    taken = SplitArrays(folder, schema, "train").whole()
    numeric, categorical = torch.from_numpy(taken.numeric), torch.from_numpy(taken.categorical)
    rows = Tensors(numeric, categorical, torch.from_numpy(taken.label))
    assert schema.label_scale is not None
    mean, std = schema.label_scale.mean, schema.label_scale.std
    other = schema.model_copy(update={"label_scale": LabelScale(mean=0.0, std=1.0)})
    known, unit = (load_teacher(request, one, CPU) for one in (schema, other))
    assert known is not None and unit is not None
    assert torch.allclose(unit.says(rows), known.says(rows) * std + mean, rtol=1e-4)


def asked(sessions: Sessions, ref: Ref, **changes: Any) -> TrainRequest:
    return taught(ref, sessions, "asked", procs=1, **changes).request


def test_what_cannot_teach_is_refused_with_what_to_do(
    teacher: Attempt, sessions: Sessions, tmp_path: Path
) -> None:
    schema = open_set(sessions.data)[1]
    ref = teacher.result().model
    other = schema.model_copy(update={"task": "multiclass", "classes": ("a", "b")})
    with pytest.raises(
        BadRequest, match="predicts a binary label, this training a multiclass label of the classes"
    ):
        load_teacher(asked(sessions, ref), other, CPU)
    manifest = manifest_of(teacher)
    for name, update, said in (
        ("trees", {"model": LightGbm(family="lightgbm")}, "is of trees, which no step can ask"),
        ("own", {"code": "a" * 64}, "a network of a team's own, of other code than this one"),
    ):
        its = columns()
        made = released(tmp_path / name, SMALL, its, network(SMALL, its, 1))
        file = Path(made.uri) / "model.json"
        changed = manifest.model_copy(update={**update, "weights": _weights(file)})
        file.write_bytes(canonical_json(changed))
        with pytest.raises(BadRequest, match=said) as error:
            load_teacher(asked(sessions, Ref(uri=made.uri, digest=file_digest(file))), schema, CPU)
        assert "Name another version in training.distill.from, or remove distill" in str(error)


def _weights(file: Path) -> File:
    return ModelManifest.model_validate_json(file.read_bytes()).weights
