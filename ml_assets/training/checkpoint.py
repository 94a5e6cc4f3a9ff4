"""Checkpoints of networks: saved asynchronously by torch's distributed checkpoint, one in flight.

What makes one whole, and which are kept, is in ``checkpoint_files``.
"""

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.optim import Optimizer

from ml_assets.spec.program import Ref
from ml_assets.storage.objects import file_digest
from ml_assets.training.checkpoint_files import (
    MANIFEST,
    CheckpointFiles,
    TrainerState,
    read_state,
    verify_checkpoint,
)
from ml_assets.training.models import Network
from ml_assets.training.parallel import Ranks
from ml_assets.training.telemetry import milliseconds_since


@dataclass
class _InFlight:
    state: TrainerState
    metrics: dict[str, float]
    done: Future[Any]
    began: float

    def written(self, _: Future[Any]) -> None:
        self.metrics.setdefault("checkpoint_background_ms", milliseconds_since(self.began))


@dataclass
class Checkpoints:
    """Saves, keeps and loads the checkpoints of one session."""

    files: CheckpointFiles
    ranks: Ranks
    _in_flight: _InFlight | None = None
    _stager: DefaultStager = field(
        default_factory=lambda: DefaultStager(StagingOptions(False, False, False, False))
    )

    def save(
        self,
        network: Network,
        optimizer: Optimizer,
        state: TrainerState,
        metrics: dict[str, float],
    ) -> None:
        """Begin to save; the one before is finished first.

        Training stands still for ``checkpoint_duration_ms``; the files are written after
        ``checkpoint_background_ms``. Both are told with the checkpoint.
        """
        began = time.perf_counter()
        self.finish()
        if self.ranks.rank == 0:
            self.files.draft(state.step)
        dist.barrier()
        model, optim = get_state_dict(network, optimizer)
        done = async_save(
            {"model": model, "optimizer": optim},
            checkpoint_id=self.files.folder / self.files.name(state.step),
            process_group=self.ranks.side,
            async_stager=self._stager,
        )
        assert isinstance(done, Future)
        durations = {"checkpoint_duration_ms": milliseconds_since(began)}
        self._in_flight = _InFlight(state, {**metrics, **durations}, done, began)
        done.add_done_callback(self._in_flight.written)

    def finish(self) -> None:
        """Wait for the save in flight; its manifest makes it whole, then retention may delete."""
        flight, self._in_flight = self._in_flight, None
        if flight is None:
            return
        flight.done.result()
        flight.written(flight.done)  # who waits may come before the callback
        if self.ranks.rank == 0:
            self.files.seal(flight.state, flight.metrics)
        dist.barrier()

    def close(self) -> None:
        self.finish()
        self._stager.close()

    def load(self, ref: Ref, network: Network, optimizer: Optimizer) -> TrainerState:
        """Load a whole checkpoint into model and optimizer; any world size.

        Raises:
            StorageError: it is not whole, or not what its manifest says.
        """
        folder = Path(ref.uri)
        verify_checkpoint(folder, ref.digest)
        model, optim = get_state_dict(network, optimizer)
        states = {"model": model, "optimizer": optim}
        load(states, checkpoint_id=folder)
        set_state_dict(
            network,
            optimizer,
            model_state_dict=states["model"],
            optim_state_dict=states["optimizer"],
        )
        self.files.parent = folder.name
        return read_state(folder)

    def load_model(self, name: str, network: Network, optimizer: Optimizer) -> None:
        """Load the weights of one of this session's checkpoints."""
        folder = self.files.folder / name
        verify_checkpoint(folder, file_digest(folder / MANIFEST))
        model, optim = get_state_dict(network, optimizer)
        load({"model": model}, checkpoint_id=folder)
        set_state_dict(network, optimizer, model_state_dict=model, optim_state_dict=optim)
