"""Files that are not what they are offered as: refused wherever a model or weights come in.

Each would touch a file if anything in it were executed.
"""

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ml_assets.actions.verify import verify_folder
from ml_assets.assets.trained_model.initial_weights import given_models
from ml_assets.errors import MlAssetsError, SpecError, StorageError, TrainingFailed
from ml_assets.launch.launcher import ScoreJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.records.load_release import load_release
from ml_assets.spec.base import canonical_json
from ml_assets.spec.load import load_spec
from ml_assets.spec.training_program import Ref
from ml_assets.store.objects import bytes_digest
from ml_assets_tests.red_team.conftest import NAME, SPEC, Scene, scene_of
from ml_assets_tests.worlds.opened import pipeline_of


class Bomb:
    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.touched,)


def _pickle(touched: Path) -> bytes:
    return pickle.dumps(Bomb(touched))


def _torch(touched: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"weights": Bomb(touched)}, buffer)
    return buffer.getvalue()


def _zip_bomb(_touched: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights", bytes(50_000_000))
    return buffer.getvalue()


def _numpy(touched: Path) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb(touched)], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def _safetensors(_touched: Path) -> bytes:
    tensor = {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}
    header = json.dumps({"layers.0.weight": tensor}).encode()
    return len(header).to_bytes(8, "little") + header


KINDS = {
    "pickle": _pickle,
    "pt": _torch,
    "zip": _zip_bomb,
    "npy": _numpy,
    "safetensors": _safetensors,
}


@pytest.fixture(params=KINDS)
def bomb(request: pytest.FixtureRequest, tmp_path: Path):
    touched = tmp_path / "touched"
    yield KINDS[request.param](touched)
    assert not touched.exists(), "something in it ran"


def test_the_bombs_would_go_off(tmp_path: Path) -> None:
    pickle.loads(_pickle(tmp_path / "1"))
    torch.load(io.BytesIO(_torch(tmp_path / "2")), weights_only=False)
    np.load(io.BytesIO(_numpy(tmp_path / "3")), allow_pickle=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "3"]


@pytest.mark.parametrize("kind", ["pt", "pkl", "pickle", "bin", "ckpt", "zip", "joblib"])
def test_the_spec_begins_with_no_other_kind_of_file(released: Scene, kind: str) -> None:
    said = SPEC.replace("epochs: 30", f"epochs: 30\n    init_from: w.{kind}@sha256:{'0' * 64}")
    (released.world.pipelines / NAME / "defs.yaml").write_text(said)
    with pytest.raises(SpecError, match=r"must be 'release' or FILE\.safetensors@sha256"):
        load_spec(released.world.pipelines / NAME)


def test_init_from_a_file_that_only_has_the_name(released: Scene, bomb: bytes) -> None:
    file = released.world.pipelines / NAME / "w.safetensors"
    file.write_bytes(bomb)
    named = f"w.safetensors@sha256:{bytes_digest(bomb)}"
    said = SPEC.replace("epochs: 30", f"epochs: 30\n    init_from: {named}")
    (released.world.pipelines / NAME / "defs.yaml").write_text(said)
    graph = pipeline_of(file.parent)
    store = released.store
    with pytest.raises(StorageError, match="not a complete safetensors file"):
        given_models(None, graph.at(store.resolve()))  # pyright: ignore[reportArgumentType]  it warns of nothing
    file.unlink()


def offered(released: Scene, folder: Path, bomb: bytes) -> Ref:
    """A model folder whose manifest fits its weights in every digest: only they are a bomb."""
    shutil.copytree(released.objects.path("models", released.candidate), folder)
    manifest = json.loads((folder / "model.json").read_bytes())
    manifest["weights"] |= {"size": len(bomb), "sha256": bytes_digest(bomb)}
    (folder / "weights.safetensors").write_bytes(bomb)
    (folder / "model.json").write_bytes(canonical_json(manifest))
    return Ref(uri=str(folder), digest=bytes_digest((folder / "model.json").read_bytes()))


def test_the_loader_and_whoever_uses_it(released: Scene, tmp_path: Path, bomb: bytes) -> None:
    planted = offered(released, tmp_path / "model", bomb)
    place = released.objects.path("models", released.candidate)
    for name in ("weights.safetensors", "model.json"):
        shutil.copy(Path(planted.uri) / name, place / name)
        with pytest.raises(StorageError, match="is lost or damaged"):
            load_release(released.store, released.objects, NAME, "production")


def test_the_training_program_scoring_a_model_that_somebody_offers(
    released: Scene, tmp_path: Path
) -> None:
    """One process for the worst of them: each digest fits, the weights are a pickle."""
    planted = offered(released, tmp_path / "model", _pickle(tmp_path / "touched"))
    data = json.loads(
        released.store.read_bytes(released.store.resolve(), f"records/{NAME}/training_set/all.json")
    )["data_version"]
    shards = Ref(uri=str(released.objects.path("shards", NAME, data)), digest=data)
    launcher = LocalLauncher(tmp_path / "objects")
    with pytest.raises(TrainingFailed, match="not a complete safetensors file"):
        launcher.score(ScoreJob(NAME, planted, shards, "holdout"), lambda _: None)
    assert not (tmp_path / "touched").exists()


@pytest.fixture(scope="module")
def whole_export(made: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release, exported once."""
    from ml_assets.actions.export import export_release

    with pytest.MonkeyPatch.context() as patch:
        scene = scene_of(made, "released", SPEC, patch)
        return export_release(scene.place, tmp_path_factory.mktemp("whole") / "export").folder


@pytest.fixture
def exported(whole_export: Path, released: Scene, tmp_path: Path) -> Path:
    """A copy of its own for each attack."""
    return shutil.copytree(whole_export, tmp_path / "export")


def refusals(folder: Path) -> str:
    found = verify_folder(folder, None)
    assert not found.holds
    return " ".join(check.reason for check in found.checks if check.outcome == "refused")


def test_verify_of_a_folder_with_a_bomb_in_any_place(
    released: Scene, exported: Path, bomb: bytes
) -> None:
    for name in sorted(path.name for path in exported.iterdir()):
        whole = (exported / name).read_bytes()
        (exported / name).write_bytes(bomb)
        assert refusals(exported)
        (exported / name).write_bytes(whole)
    assert verify_folder(exported, None).holds
    (exported / "more.pkl").write_bytes(bomb)
    assert "more.pkl" in refusals(exported)


def test_every_byte_of_an_exported_folder_counts(released: Scene, exported: Path) -> None:
    for file in sorted(exported.iterdir()):
        whole = file.read_bytes()
        for place in {0, len(whole) // 2, len(whole) - 2}:
            changed = bytearray(whole)
            changed[place] ^= 1
            file.write_bytes(bytes(changed))
            assert not verify_folder(exported, None).holds, (file.name, place)
        file.write_bytes(whole)
    assert verify_folder(exported, None).holds


def test_verify_says_what_each_key_proves(
    released: Scene, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = (exported / "signer.pub").read_text().strip()
    by_own_key = verify_folder(exported, None)
    [release] = [check for check in by_own_key.checks if check.name == "release"]
    assert release.outcome == "note" and "not that the model went to a stage" in release.reason
    assert by_own_key.checks[-1].reason == "integrity and authorship"
    assert verify_folder(exported, own).holds
    assert verify_folder(exported, str(exported / "signer.pub")).holds
    monkeypatch.delenv("ML_ASSETS_SIGNING_KEY")
    assert "integrity only" in verify_folder(exported, None).checks[-1].reason
    other = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    [refused] = [c for c in verify_folder(exported, other).checks if c.outcome == "refused"]
    assert "is foreign" in refused.reason and own in refused.reason
    monkeypatch.setenv("ML_ASSETS_TRUSTED_KEYS", own)
    assert verify_folder(exported, None).holds


def test_an_older_certificate_beside_another_models_files(released: Scene, exported: Path) -> None:
    """What was exported of one model, with the files of one that was refused."""
    others = (released.world.root / "refused" / "objects" / "models").iterdir()
    other = next(path for path in others if path.name != released.candidate)
    for name in ("model.json", "weights.safetensors"):
        shutil.copy(other / name, exported / name)
    assert f"not {released.candidate[:12]}" in refusals(exported)


def test_what_a_person_answers_for_is_exported_with_that_word(
    refused: Scene, tmp_path: Path
) -> None:
    from ml_assets.actions.export import export_release
    from ml_assets.actions.override import override

    override(refused.store, NAME, None, "Ada", "a fair <risk>")
    assert refused.materialize("released_model") == ""
    folder = export_release(refused.place, tmp_path / "export").folder
    verified = verify_folder(folder, None)
    assert verified.holds
    [decision] = [check.reason for check in verified.checks if check.name == "decision"]
    assert decision.startswith("OVERRIDDEN by Ada, a fair <risk>. The gates: refused by")
    assert "**Overridden** by Ada: a fair \\<risk\\>" in (folder / "MODEL_CARD.md").read_text()
    for name in ("ledger_line.json", "overridden_line.json"):
        whole = (folder / name).read_text()
        for was, instead in (("Ada", "Bob"), ('"passed":false', '"passed":true ')):
            if was in whole:
                (folder / name).write_text(whole.replace(was, instead))
                assert refusals(folder)
        (folder / name).write_text(whole)
    (folder / "overridden_line.json").unlink()
    assert refusals(folder)


def test_a_link_or_a_folder_in_an_exported_folder(exported: Path, tmp_path: Path) -> None:
    (exported / "weights.safetensors").rename(tmp_path / "w")
    (exported / "weights.safetensors").symlink_to(tmp_path / "w")
    assert "is not a plain file" in refusals(exported)


def test_export_is_whole_or_absent_and_takes_nobodys_place(
    released: Scene, whole_export: Path, exported: Path, tmp_path: Path
) -> None:
    from ml_assets.actions.export import export_release

    assert list(whole_export.parent.iterdir()) == [whole_export]
    assert export_release(released.place, exported).new is False
    (exported / "MODEL_CARD.md").write_text("mine")
    with pytest.raises(MlAssetsError, match="holds something else"):
        export_release(released.place, exported)
    assert (exported / "MODEL_CARD.md").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
