"""Weights to begin with: matched by name, held to their digest, refused with what does not fit."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ml_assets.spec.base import canonical_json
from ml_assets.spec.training import LightGbm, Mlp, ModelSpec, TabM
from ml_assets.spec.training_program import (
    CategoricalColumn,
    File,
    ModelManifest,
    NumericColumn,
    Preprocessing,
    Ref,
    ShardSchema,
)
from ml_assets.spec.training_program.events import Progress
from ml_assets.store.objects import describe, file_digest
from ml_assets.training.models.families import build
from ml_assets.training.models.network import Network
from ml_assets.training.stop import BadData, BadRequest
from ml_assets.training.weights import warm_start
from ml_assets_tests.training.conftest import SPEC, Attempt, Sessions

WORDS = ("apple", "bread", "cheese")
MODELS = [TabM(family="tabm", width=8, members=3), Mlp(family="mlp", width=8)]
ROWS = 50


def columns(
    numeric: tuple[str, ...] = ("x", "z"), flags: tuple[str, ...] = ("z",), **words: tuple[str, ...]
) -> Preprocessing:
    words = words or {"c": WORDS, "d": ("d1", "d2")}
    return Preprocessing(
        numeric=tuple(NumericColumn(name=name, mean=0.0, std=1.0) for name in numeric),
        null_flags=flags,
        categorical=tuple(CategoricalColumn(name=n, vocabulary=w) for n, w in words.items()),
    )


def schema(preprocessing: Preprocessing, **more: Any) -> ShardSchema:
    about = {"task": "binary", "classes": (), "label_rate": (0.5,), **more}
    return ShardSchema(preprocessing=preprocessing, splits={}, **about)


def network(spec: ModelSpec, preprocessing: Preprocessing, seed: int) -> Network:
    torch.manual_seed(seed)
    made = build(spec, preprocessing, "binary", ())
    with torch.no_grad():
        made.output_bias.normal_()
    return made


def released(folder: Path, spec: ModelSpec, preprocessing: Preprocessing, made: Network) -> Ref:
    """A model's folder, as the exporter leaves it."""
    folder.mkdir(exist_ok=True)
    save_file(made.state_dict(), folder / "weights.safetensors")
    return manifest_of(folder, spec, preprocessing, describe(folder, ["weights.safetensors"])[0])


def manifest_of(folder: Path, spec: ModelSpec, preprocessing: Preprocessing, weights: File) -> Ref:
    manifest = ModelManifest(
        model=spec,
        task="binary",
        classes=(),
        preprocessing=preprocessing,
        weights=weights,
        step=1,
    )
    (folder / "model.json").write_bytes(canonical_json(manifest))
    return Ref(uri=str(folder), digest=file_digest(folder / "model.json"))


def rows(preprocessing: Preprocessing, seed: int = 0) -> dict[str, np.ndarray]:
    """Column -> values: numbers, flags, and words."""
    draw = np.random.default_rng(seed)
    numbers = [c.name for c in preprocessing.numeric]
    found: dict[str, np.ndarray] = {n: draw.normal(size=ROWS) for n in sorted(numbers)}
    found |= {f"{n} is null": draw.integers(0, 2, ROWS) for n in preprocessing.null_flags}
    words = {c.name: np.array([*c.vocabulary, "?"]) for c in preprocessing.categorical}
    return found | {name: draw.choice(known, ROWS) for name, known in sorted(words.items())}


def answers(of: Network, preprocessing: Preprocessing, values: dict[str, np.ndarray]) -> np.ndarray:
    """Logits [rows, members] of rows encoded by this preprocessing."""
    names = [c.name for c in preprocessing.numeric]
    names += [f"{name} is null" for name in preprocessing.null_flags]
    numeric = np.stack([values[name] for name in names], axis=1).astype(np.float32)
    codes = [
        [c.vocabulary.index(word) + 1 if word in c.vocabulary else 0 for word in values[c.name]]
        for c in preprocessing.categorical
    ]
    of.eval()
    with torch.no_grad():
        found = of(torch.from_numpy(numeric), torch.tensor(codes, dtype=torch.int32).T, None)
    return found[..., 0].numpy()


@pytest.mark.parametrize("spec", MODELS)
def test_a_warm_network_says_what_the_old_one_said(tmp_path: Path, spec: TabM | Mlp) -> None:
    was = columns()
    old, new = network(spec, was, seed=1), network(spec, was, seed=2)
    said = warm_start(new, released(tmp_path, spec, was, old), schema(was))
    values = rows(was)
    assert (answers(old, was, values) == answers(new, was, values)).all()
    assert "it knows every input and every category" in said


@pytest.mark.parametrize("spec", MODELS)
def test_words_and_columns_are_found_by_name_wherever_they_moved(
    tmp_path: Path, spec: TabM | Mlp
) -> None:
    """Codes, order and even the width of an embedding changed: the answers did not."""
    was = columns()
    many = tuple(f"new{n}" for n in range(5))
    now = columns(("z", "x", "w"), ("w", "z"), d=("d2", "d1"), c=(*many[:2], *WORDS, *many[2:]))
    old, new = network(spec, was, seed=1), network(spec, now, seed=2)
    assert new.embeddings.tables[1].weight.shape[1] > old.embeddings.tables[0].weight.shape[1]  # pyright: ignore
    said = warm_start(new, released(tmp_path, spec, was, old), schema(now))
    values = rows(was)
    both = values | {"w": np.ones(ROWS), "w is null": np.zeros(ROWS)}
    assert np.allclose(answers(old, was, values), answers(new, now, both), atol=1e-6)
    assert "new inputs, at first of weight 0: w, w is null" in said
    assert "categories it never saw: 5 of c" in said


def test_new_words_have_values_of_their_own(tmp_path: Path) -> None:
    spec, was = MODELS[1], columns(c=WORDS)
    now = columns(c=("fish", *WORDS))
    fresh = network(spec, now, seed=2).embeddings.tables[0].weight[1].tolist()  # pyright: ignore
    new = network(spec, now, seed=2)
    warm_start(new, released(tmp_path, spec, was, network(spec, was, seed=1)), schema(now))
    assert new.embeddings.tables[0].weight[1].tolist() == fresh  # pyright: ignore


def test_a_column_that_is_gone_is_told(tmp_path: Path) -> None:
    spec, was, now = MODELS[0], columns(), columns(("x",), ())
    old, new = network(spec, was, seed=1), network(spec, now, seed=2)
    said = warm_start(new, released(tmp_path, spec, was, old), schema(now))
    assert "inputs that are gone: z, z is null" in said


def test_a_new_input_learns(tmp_path: Path) -> None:
    spec, was, now = MODELS[0], columns(), columns(("x", "z", "w"))
    new = network(spec, now, seed=2)
    warm_start(new, released(tmp_path, spec, was, network(spec, was, seed=1)), schema(now))
    new(torch.randn(5, 4), torch.ones(5, 2, dtype=torch.int32), None).square().sum().backward()
    gradient = dict(new.named_parameters())["layers.0.weight"].grad
    assert gradient is not None
    assert gradient[:, 2].abs().max() > 0


def test_every_tensor_that_does_not_fit_is_named(tmp_path: Path) -> None:
    was = columns()
    wide = MODELS[1].model_copy(update={"width": 16, "depth": 3})
    ref = released(tmp_path, wide, was, network(wide, was, seed=1))
    with pytest.raises(BadRequest) as caught:
        warm_start(network(MODELS[1], was, seed=2), ref, schema(was))
    said = str(caught.value)
    assert "layers.0.bias is 16, expected 8" in said
    assert "layers.2.bias is 16, expected absent and 2 more" in said
    assert "Set model.family, width, depth and members" in said


def test_another_task_or_family_is_refused(tmp_path: Path) -> None:
    was = columns()
    ref = released(tmp_path, MODELS[0], was, network(MODELS[0], was, seed=1))
    with pytest.raises(BadRequest, match="its outputs mean something else"):
        warm_start(network(MODELS[0], was, seed=2), ref, schema(was, task="regression"))
    weights = describe(tmp_path, ["weights.safetensors"])[0]
    trees = manifest_of(tmp_path, LightGbm(family="lightgbm"), was, weights)
    with pytest.raises(BadRequest, match="a network cannot begin with them"):
        warm_start(network(MODELS[0], was, seed=2), trees, schema(was))


class Bomb:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
        return eval, (f"open({str(self.target)!r}, 'w')",)


def test_what_is_no_safetensors_is_refused_and_nothing_of_it_runs(tmp_path: Path) -> None:
    file, left = tmp_path / "weights.safetensors", tmp_path / "left"
    bomb = pickle.dumps(Bomb(left))
    pickle.loads(bomb).close()
    assert left.exists(), "the bomb works"
    left.unlink()
    file.write_bytes(bomb)
    ref = Ref(uri=str(file), digest=hashlib.sha256(bomb).hexdigest())
    with pytest.raises(BadData, match="is not a complete safetensors file"):
        warm_start(network(MODELS[1], columns(), 0), ref, schema(columns()))
    assert not left.exists()


@pytest.mark.parametrize("length", [0, 7, 100])
def test_a_torn_file_is_refused(tmp_path: Path, length: int) -> None:
    file = tmp_path / "weights.safetensors"
    save_file(network(MODELS[1], columns(), 0).state_dict(), file)
    file.write_bytes(file.read_bytes()[:length])
    ref = Ref(uri=str(file), digest=file_digest(file))
    with pytest.raises(BadData, match="is not a complete safetensors file"):
        warm_start(network(MODELS[1], columns(), 0), ref, schema(columns()))


def test_a_file_that_changed_since_it_was_asked_for_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    save_file(network(MODELS[1], columns(), 0).state_dict(), file)
    with pytest.raises(BadData, match="has changed"):
        warm_start(
            network(MODELS[1], columns(), 0), Ref(uri=str(file), digest="0" * 64), schema(columns())
        )


def test_a_bare_file_gives_its_tensors_as_they_are(tmp_path: Path) -> None:
    file, was = tmp_path / "weights.safetensors", columns()
    old, new = network(MODELS[1], was, 1), network(MODELS[1], was, 2)
    save_file(old.state_dict(), file)
    said = warm_start(new, Ref(uri=str(file), digest=file_digest(file)), schema(was))
    assert (answers(old, was, rows(was)) == answers(new, was, rows(was))).all()
    assert "are used unchanged" in said


@pytest.mark.daemon
def test_a_warm_training_begins_where_the_old_one_ended(sessions: Sessions, whole: Attempt) -> None:
    """Sharded over two processes, with a learning rate that moves nothing."""
    still = SPEC.model_copy(update={"learning_rate": 1e-12, "epochs": 1, "init_from": "release"})
    begin = whole.result().model
    warm = sessions.attempt("warm", spec=still, init=begin)
    assert warm.run() == 0
    old = whole.result().metrics["validation_loss"]
    assert warm.validation_losses()[5] == pytest.approx(old, abs=1e-6)
    told = [event.message for event in warm.events() if isinstance(event, Progress)]
    assert f"begins with the weights of {begin.uri} ({begin.digest[:12]})" in told[0]
    weights = load_file(Path(begin.uri) / "weights.safetensors")
    (file,) = Path(warm.request.output.model).glob("weights.*")
    assert all(torch.allclose(t, weights[name], atol=1e-6) for name, t in load_file(file).items())
