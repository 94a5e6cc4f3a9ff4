"""Reads torch's distributed checkpoints without executing anything in them.

Torch describes a checkpoint by a pickle (``.metadata``) and reads the parts that are not tensors by
``torch.load``, so anyone who may write a checkpoint could run code in a training that resumes. Here
the pickle may build torch's own descriptions and nothing else, and the parts are read as data.
"""

import io
import pickle  # an unpickler that finds nothing but what is listed below
import warnings
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    Metadata,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict_loader import load

from ml_assets.errors import StorageError

_FILE = ".metadata"
_ALLOWED = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", *(name for name, kind in vars(torch).items() if type(kind) is torch.dtype)},
    "pathlib": {"PosixPath"},
    "collections": {"OrderedDict"},
}
"""Module -> names: descriptions of tensors and files. None does anything when it is made."""


class _Descriptions(pickle.Unpickler):
    """Builds what torch writes; any other name is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):  # a member, as Python before 3.11.4 writes it
            return _memory_format
        if name not in _ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it names something outside")


def _memory_format(kind: Any, name: Any) -> _MEM_FORMAT_ENCODING:
    if kind is not _MEM_FORMAT_ENCODING or name not in _MEM_FORMAT_ENCODING.__members__:
        raise pickle.UnpicklingError(f"it asks for {name!r} of {kind!r}")
    return _MEM_FORMAT_ENCODING[name]


class Reader(FileSystemReader):
    """Torch's reader, for a folder whose files may be anybody's."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Describe what the checkpoint holds.

        Raises:
            StorageError: it is described by anything else than tensors and files beside it.
        """
        found = _read(Path(self.path) / _FILE)
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class Planner(DefaultLoadPlanner):
    """Torch's planner; what is no tensor is numbers, text and lists of them."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put a part that is no tensor where it belongs."""
        found = torch.load(value, weights_only=True)
        set_element(self.original_state_dict, self.mappings[read_item.dest_index.fqn], found)


def _read(file: Path) -> Metadata:
    try:
        found = _Descriptions(io.BytesIO(file.read_bytes())).load()
    except Exception as error:  # whatever somebody's bytes lead to
        raise StorageError(
            f"{file} is not the description of a checkpoint: {error}. Nothing in it was executed."
        ) from error
    placed = getattr(found, "storage_data", None)
    if not isinstance(found, Metadata) or not isinstance(placed, dict):
        raise StorageError(f"{file} is not the description of a checkpoint: it is a {type(found)}.")
    for info in placed.values():
        name = getattr(info, "relative_path", None)
        if not isinstance(info, _StorageInfo) or not isinstance(name, str):
            raise StorageError(f"{file} is not the description of a checkpoint: {info!r:.60}.")
        if name in ("", ".", "..") or Path(name).name != name:
            raise StorageError(f"{file} names the file {name!r}, which is not beside it.")
    return found


BF16_WEIGHTS = "weights.bf16.safetensors"
_MODEL = "model."


def read_into(states: dict[str, Any], folder: Path, group: dist.ProcessGroup | None) -> None:
    """Fill states from a verified checkpoint, in place; None: on this process alone.

    Raises:
        StorageError: it does not hold what is asked for.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            load(
                states,
                storage_reader=Reader(folder),
                planner=Planner(),
                process_group=group,
                no_dist=group is None,
            )
    except CheckpointException as error:
        for failure, _ in error.failures.values():
            raise StorageError(f"The checkpoint {folder} cannot be read: {failure}") from error


def write_bf16(folder: Path, target: Path) -> None:
    """The weights of a checkpoint alone, floats rounded to bf16, under the network's own names."""
    metadata = Reader(folder).read_metadata().state_dict_metadata
    found = {
        name.removeprefix(_MODEL): torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in sorted(metadata.items())
        if name.startswith(_MODEL) and isinstance(entry, TensorStorageMetadata)
    }
    read_into({"model": found}, folder, None)
    rounded = {
        name: tensor.bfloat16() if tensor.is_floating_point() else tensor
        for name, tensor in found.items()
    }
    save_file(rounded, target)
