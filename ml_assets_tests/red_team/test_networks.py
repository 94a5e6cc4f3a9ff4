"""The code and the weights of a network at rest: what is looked at is what runs."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ml_assets.errors import StorageError
from ml_assets.launch.local.process import environment
from ml_assets.spec.base import canonical_json
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.training_program import File, Ref
from ml_assets.spec.training_program.start import PROGRAM
from ml_assets.store.kept_code import bring_network
from ml_assets.store.objects import LocalObjects
from ml_assets.training.boosting import engine
from ml_assets.training.model_folder import open_model
from ml_assets.training.stop import BadData
from ml_assets.training.weights import load_predictor, read_tensors
from ml_assets_tests.red_team.conftest import Scene

HONEST = '''\
"""A line."""

import torch


def build(config, columns):
    """Layers, as many as outputs."""
    return torch.nn.Linear(len(columns.numeric), columns.outputs)
'''
READS_ITSELF = HONEST.replace("    return", "    exec(__doc__)\n    return")
EDITS = {
    "an encoding in which a comment is code": (
        HONEST,
        f"# coding: utf-7\n# +AAo-raise SystemExit+AAo-\n{HONEST}",
    ),
    "a docstring that the code reads": (
        READS_ITSELF,
        READS_ITSELF.replace("A line.", "raise SystemExit"),
    ),
}


@pytest.mark.parametrize("how", EDITS)
def test_a_kept_network_whose_code_was_changed_is_not_loaded(tmp_path: Path, how: str) -> None:
    """It is asked for by its digest where the pipeline's folder has moved on."""
    certified, forged = (NetworkCode(files={"net.py": text}) for text in EDITS[how])
    objects = LocalObjects(tmp_path / "objects")
    objects.write_bytes(canonical_json(forged), "networks", f"{certified.digest}.json")
    with pytest.raises(StorageError, match="is damaged"):
        bring_network(objects, LocalObjects(tmp_path / "there"), manifest_of(certified))


def manifest_of(code: NetworkCode):
    """As much of a manifest as says which code a model is of."""
    from types import SimpleNamespace

    return SimpleNamespace(code=code.digest)


def test_a_comment_or_another_layout_is_the_same_network(tmp_path: Path) -> None:
    same = HONEST.replace('"""A line."""', "# a comment").replace("\n\n\n", "\n\n")
    codes = [NetworkCode(files={"net.py": text}) for text in (HONEST, same)]
    assert codes[0].digest == codes[1].digest
    assert codes[0].digest != NetworkCode(files={"net.py": READS_ITSELF}).digest


def test_a_module_beside_somebodys_data_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command is called in a folder that came from elsewhere; the program begins there."""
    ran = tmp_path / "ran"
    (tmp_path / "argparse.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [*PROGRAM, "--help"], env=environment(1), capture_output=True, text=True, check=False
    )
    assert (done.returncode, ran.exists()) == (0, False), done.stderr


# --- weights: swapped behind the look and before they are loaded ----------------------------------


def copied(scene: Scene, tmp_path: Path) -> tuple[Path, Ref]:
    folder = tmp_path / "model"
    shutil.copytree(scene.objects.path("models", scene.candidate), folder)
    return folder, Ref(uri=str(folder), digest=scene.candidate)


def test_weights_that_are_swapped_behind_the_look_are_not_loaded(
    released: Scene, tmp_path: Path
) -> None:
    folder, ref = copied(released, tmp_path)
    manifest = open_model(ref)
    load_predictor(folder, manifest, 1)
    weights = folder / manifest.weights.path
    whole = load_file(weights)
    save_file({name: torch.zeros_like(tensor) for name, tensor in whole.items()}, weights)
    assert weights.stat().st_size == manifest.weights.size
    with pytest.raises(BadData, match="was changed while it was loaded"):
        load_predictor(folder, manifest, 1)


def test_trees_that_are_swapped_behind_the_look_are_not_loaded(tmp_path: Path) -> None:
    from types import SimpleNamespace

    file = tmp_path / "trees.txt"
    file.write_bytes(b"tree\nversion=v4\nend of trees\n")
    named = File(path=file.name, size=file.stat().st_size, sha256="0" * 64)
    with pytest.raises(BadData, match="is damaged"):
        engine.trees_of(tmp_path, SimpleNamespace(weights=named))  # type: ignore[arg-type]


def test_tensors_are_read_as_safetensors_reads_them(tmp_path: Path) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float16, torch.uint8)
    tensors = {f"t{n}": torch.arange(6).reshape(3, 2).to(kind) for n, kind in enumerate(kinds)}
    tensors |= {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4)}
    file = tmp_path / "weights.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    found, digest = read_tensors(file)
    assert digest == hashlib.sha256(file.read_bytes()).hexdigest()
    expected = load_file(file)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor, expected[name]), name
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StorageError):
        read_tensors(file)
