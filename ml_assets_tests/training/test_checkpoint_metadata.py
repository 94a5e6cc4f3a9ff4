"""A checkpoint that somebody else wrote: what lies in it is refused or read, never executed."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.state_dict_saver import save

from ml_assets.errors import StorageError
from ml_assets.training.checkpoints.read import Reader, read_into


def state() -> dict[str, Any]:
    """Every kind of thing that an optimizer's state has."""
    group = {"lr": 0.1, "betas": (0.9, 0.999), "fused": None, "amsgrad": False, "params": ["w"]}
    moments = {"step": torch.tensor(3.0), "exp_avg": torch.arange(4.0)}
    model = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    return {"model": model, "optimizer": {"state": {"w": moments}, "param_groups": [group]}}


def blank() -> dict[str, Any]:
    found = state()
    for tensor in (*found["model"].values(), *found["optimizer"]["state"]["w"].values()):
        tensor.zero_()
    found["optimizer"]["param_groups"][0] |= {"lr": 0.0, "betas": (0.0, 0.0)}
    return found


class Bomb:
    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.touched,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(state(), checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    return tmp_path / "checkpoint"


def test_what_torch_writes_is_read_whole(folder: Path) -> None:
    found = blank()
    read_into(found, folder, None)
    assert str(found) == str(state())


def test_a_description_that_would_run_something_is_refused(folder: Path, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    (folder / ".metadata").write_bytes(pickle.dumps(Bomb(touched)))
    with pytest.raises(StorageError, match=r"it names pathlib\.Path.* Nothing in it was executed"):
        read_into(blank(), folder, None)
    assert not touched.exists()


def test_only_a_memory_format_is_got_from_anything(folder: Path) -> None:
    reached = b"cbuiltins\ngetattr\n(ctorch\nSize\nS'mro'\ntR."
    (folder / ".metadata").write_bytes(reached)
    with pytest.raises(StorageError, match="it asks for 'mro' of"):
        Reader(folder).read_metadata()
    told = b"cbuiltins\ngetattr\n(ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n"
    (folder / ".metadata").write_bytes(told + b"S'__reduce_ex__'\ntR.")
    with pytest.raises(StorageError, match="it asks for '__reduce_ex__' of"):
        Reader(folder).read_metadata()


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "torch.load", "torch.hub.load"])
def test_no_function_is_found_whatever_it_is_called(folder: Path, name: str) -> None:
    module, _, function = name.rpartition(".")
    (folder / ".metadata").write_bytes(f"c{module}\n{function}\n(S'true'\ntR.".encode())
    with pytest.raises(StorageError, match=f"it names {name}"):
        Reader(folder).read_metadata()


def test_a_part_that_is_no_tensor_and_would_run_something_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    touched = tmp_path / "touched"
    planted = state()
    planted["optimizer"]["param_groups"][0]["lr"] = Bomb(touched)
    save(planted, checkpoint_id=folder, no_dist=True)
    touched.unlink(missing_ok=True)  # whoever wrote it may have touched it
    with pytest.raises(StorageError, match="cannot be read: Weights only load failed"):
        read_into(blank(), folder, None)
    assert not touched.exists()


@pytest.mark.parametrize("name", ["../elsewhere", "/etc/passwd", "a/b", "", "..", 7])
def test_a_file_that_is_not_beside_it_is_not_read(folder: Path, name: Any) -> None:
    placed = {MetadataIndex("model.w"): _StorageInfo(name, 0, 1)}
    described = Metadata(state_dict_metadata={}, storage_data=placed)
    (folder / ".metadata").write_bytes(pickle.dumps(described))
    with pytest.raises(StorageError, match=r"which is not beside it|not the descr"):
        Reader(folder).read_metadata()


@pytest.mark.parametrize(
    "content", [b"", b"no pickle", pickle.dumps([1]), pickle.dumps(torch.Size)]
)
def test_what_describes_no_checkpoint_is_refused(folder: Path, content: bytes) -> None:
    (folder / ".metadata").write_bytes(content)
    with pytest.raises(StorageError, match="not the description of a checkpoint"):
        Reader(folder).read_metadata()
