"""Whole-or-absent checkpoints: a checkpoint exists when its manifest does, and it is written last.

Saved asynchronously by torch's distributed checkpoint, one in flight, each in a directory of its
own (step and attempt) that is never written twice. The trainer's own state is JSON beside it.
"""

import shutil
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist
from pydantic import ValidationError
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.optim import Optimizer

from ml_assets.errors import StorageError
from ml_assets.spec.base import Frozen
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import CheckpointManifest, Ref, TrainRequest
from ml_assets.storage.objects import describe, file_digest, verify, write_whole
from ml_assets.training.events import EventWriter
from ml_assets.training.models import Network
from ml_assets.training.parallel import Ranks

MANIFEST = "manifest.json"
TRAINER = "trainer.json"


class Best(Frozen):
    """A checkpoint and the validation loss at it."""

    step: int
    validation_loss: float
    name: str


class TrainerState(Frozen):
    """Everything that training needs to go on besides model and optimizer."""

    step: int = 0
    best: tuple[Best, ...] = ()
    """The best ones so far, best first."""
    evaluations_without_better: int = 0
    saved: tuple[str, ...] = ()
    """Whole checkpoints of this session that retention has kept, oldest first."""


@dataclass
class _InFlight:
    name: str
    state: TrainerState
    metrics: dict[str, float]
    done: Future[Any]


@dataclass
class Checkpoints:
    """Saves, keeps and loads the checkpoints of one session."""

    request: TrainRequest
    ranks: Ranks
    events: EventWriter
    parent: str | None = None
    _in_flight: _InFlight | None = None
    _stager: DefaultStager = field(
        default_factory=lambda: DefaultStager(StagingOptions(False, False, False, False))
    )

    @property
    def folder(self) -> Path:
        return Path(self.request.output.checkpoints)

    def name(self, step: int) -> str:
        return f"step-{step:06d}.a{self.request.attempt}"

    def save(
        self,
        network: Network,
        optimizer: Optimizer,
        state: TrainerState,
        metrics: dict[str, float],
    ) -> None:
        """Begin to save; the one before is finished first."""
        self.finish()
        name = self.name(state.step)
        if self.ranks.rank == 0:
            shutil.rmtree(self.folder / name, ignore_errors=True)  # of this very attempt: not whole
            (self.folder / name).mkdir(parents=True)
        dist.barrier()
        model, optim = get_state_dict(network, optimizer)
        done = async_save(
            {"model": model, "optimizer": optim},
            checkpoint_id=self.folder / name,
            process_group=self.ranks.side,
            async_stager=self._stager,
        )
        assert isinstance(done, Future)
        self._in_flight = _InFlight(name, state, metrics, done)

    def finish(self) -> None:
        """Wait for the save in flight; its manifest makes it whole, then retention may delete."""
        flight, self._in_flight = self._in_flight, None
        if flight is None:
            return
        flight.done.result()
        if self.ranks.rank == 0:
            self._seal(flight)
            self._retain(flight.state)
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
        self.parent = folder.name
        return TrainerState.model_validate_json((folder / TRAINER).read_bytes())

    def load_model(self, name: str, network: Network, optimizer: Optimizer) -> None:
        """Load the weights of one of this session's checkpoints."""
        folder = self.folder / name
        verify_checkpoint(folder, file_digest(folder / MANIFEST))
        model, optim = get_state_dict(network, optimizer)
        load({"model": model}, checkpoint_id=folder)
        set_state_dict(network, optimizer, model_state_dict=model, optim_state_dict=optim)

    def _seal(self, flight: _InFlight) -> None:
        folder = self.folder / flight.name
        (folder / TRAINER).write_bytes(canonical_json(flight.state))
        paths = sorted(path.name for path in folder.iterdir())
        files = describe(folder, paths)
        best = bool(flight.state.best) and flight.state.best[0].name == flight.name
        manifest = CheckpointManifest(
            session=self.request.session,
            attempt=self.request.attempt,
            step=flight.state.step,
            validation_loss=flight.metrics.get("validation_loss"),
            world=self.ranks.world,
            parent=self.parent,
            files=files,
        )
        write_whole(folder / MANIFEST, canonical_json(manifest))
        ref = Ref(uri=str(folder), digest=file_digest(folder / MANIFEST))
        size = sum(file.size for file in files)
        self.events.checkpoint(flight.state.step, ref, size, best, flight.metrics)

    def _retain(self, state: TrainerState) -> None:
        """Keep the newest and the best whole ones; a half-written one is never counted."""
        spec = self.request.training
        whole = [path.parent for path in manifests(self.folder)]
        kept = {path.name for path in whole[-spec.keep_last :]}
        kept |= {best.name for best in state.best[: spec.keep_best]}
        for path in whole:
            if path.name not in kept:
                (path / MANIFEST).unlink()  # first: what is half deleted is not whole
                shutil.rmtree(path, ignore_errors=True)


def verify_checkpoint(folder: Path, digest: str) -> CheckpointManifest:
    """Hold a checkpoint to its manifest.

    Raises:
        StorageError: the manifest or a file is missing or damaged.
    """
    file = folder / MANIFEST
    try:
        if file_digest(file) != digest:
            raise StorageError(f"{file} is damaged: its checksum is not {digest[:12]}.")
        manifest = CheckpointManifest.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise StorageError(f"The checkpoint {folder} is not whole: {error}") from error
    verify(folder, manifest.files)
    return manifest


def manifests(folder: Path) -> list[Path]:
    """The manifests of a session's checkpoints, by step, then attempt."""

    def order(file: Path) -> tuple[int, int]:
        step, _, attempt = file.parent.name.removeprefix("step-").partition(".a")
        return int(step), int(attempt)

    return sorted(folder.glob(f"step-*.a*/{MANIFEST}"), key=order)


def newest_whole(folder: Path, events: EventWriter) -> Ref | None:
    """The newest checkpoint that is what its manifest says; damaged ones are passed by, aloud."""
    for file in reversed(manifests(folder)):
        ref = Ref(uri=str(file.parent), digest=file_digest(file))
        try:
            verify_checkpoint(file.parent, ref.digest)
        except StorageError as error:
            events.warning(f"{error} The checkpoint before it is used.")
            continue
        return ref
    return None
