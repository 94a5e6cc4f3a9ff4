"""A folder is kept under the digest of its manifest; a damaged one gives way to what is made
again."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ml_assets.errors import StorageError
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import Ref
from ml_assets.store.objects import (
    TRASH,
    LocalObjects,
    describe,
    file_digest,
    inside,
    read_verified,
)


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "objects")


@pytest.fixture
def made(tmp_path: Path) -> Ref:
    folder = tmp_path / "session" / "model"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"good")
    (weights,) = describe(folder, ["weights"])
    manifest = {"weights": weights.model_dump()}
    (folder / "model.json").write_bytes(canonical_json(manifest))
    return Ref(uri=str(folder), digest=file_digest(folder / "model.json"))


def flip(file: Path) -> None:
    file.write_bytes(b"bad!")


@pytest.mark.parametrize("damage", [flip, Path.unlink])
@pytest.mark.parametrize("name", ["weights", "model.json"])
def test_a_damaged_model_is_whole_again_when_it_is_made_again(
    objects: LocalObjects, made: Ref, damage: Callable[[Path], None], name: str
) -> None:
    own = objects.adopt(made, "models", "model.json")
    damage(Path(own.uri, name))
    assert objects.adopt(made, "models", "model.json") == own
    assert Path(own.uri, "weights").read_bytes() == b"good"
    assert file_digest(Path(own.uri, "model.json")) == made.digest
    assert not list(objects.path(TRASH).iterdir())


def test_a_damaged_copy_takes_the_place_of_no_sound_model(objects: LocalObjects, made: Ref) -> None:
    own = objects.adopt(made, "models", "model.json")
    flip(Path(made.uri, "weights"))
    assert objects.adopt(made, "models", "model.json") == own
    assert Path(own.uri, "weights").read_bytes() == b"good"


def test_many_may_adopt_the_same_model_at_once(objects: LocalObjects, made: Ref) -> None:
    def adopted(_: int) -> bool:
        own = objects.adopt(made, "models", "model.json")
        return Path(own.uri, "weights").read_bytes() == b"good"

    for _ in range(40):
        with ThreadPoolExecutor(6) as many:
            assert all(many.map(adopted, range(6)))
        shutil.rmtree(objects.path("models", made.digest))


def test_a_whole_one_stays_the_folder_that_it_is(objects: LocalObjects, made: Ref) -> None:
    own = objects.adopt(made, "models", "model.json")
    before = Path(own.uri).stat().st_ino
    assert objects.adopt(made, "models", "model.json") == own
    assert objects.adopt(own, "models", "model.json") == own
    gone = Ref(uri=f"{made.uri}-gone", digest=made.digest)
    assert objects.adopt(gone, "models", "model.json") == own
    assert Path(own.uri).stat().st_ino == before


def test_what_its_digest_does_not_name_takes_the_place_of_nothing(
    objects: LocalObjects, made: Ref
) -> None:
    own = objects.adopt(made, "models", "model.json")
    flip(Path(made.uri, "model.json"))
    with pytest.raises(StorageError, match="is damaged"):
        objects.adopt(made, "models", "model.json")
    assert file_digest(Path(own.uri, "model.json")) == made.digest


@pytest.mark.timeout(60)  # to read a pipe would never end
def test_a_pipe_in_the_place_of_a_file_is_refused(objects: LocalObjects, made: Ref) -> None:
    own = objects.adopt(made, "models", "model.json")
    folder = Path(own.uri)
    (weights,) = describe(folder, ["weights"])
    for name in ("model.json", "weights"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(StorageError, match=f"{name} is not a regular file"):
            inside(folder, name)
        with pytest.raises(StorageError, match=f"{name} is not a regular file"):
            objects.read_bytes("models", own.digest, name)
    with pytest.raises(StorageError, match="weights is not a regular file"):
        read_verified(weights, folder)
