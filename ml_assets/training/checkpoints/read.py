"""Reads what torch's distributed checkpoint wrote: into ranks, or as bf16."""

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from ml_assets.errors import StorageError
from ml_assets.training.checkpoints.metadata import Planner, Reader

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
