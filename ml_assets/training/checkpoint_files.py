"""Checkpoints as files, whatever engine wrote what is in them: whole or absent, kept or deleted.

A checkpoint exists when its manifest does, and that is written last. The trainer's own state is
JSON beside the model's. Each lies in a folder of its own (step and attempt), never written twice.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.base import Frozen
from ml_assets.spec.canonical import canonical_json
from ml_assets.spec.program import CheckpointManifest, Ref, TrainRequest
from ml_assets.storage.objects import describe, file_digest, verify, write_whole
from ml_assets.training.diagnosis import Evaluated
from ml_assets.training.events import EventWriter
from ml_assets.training.loss_scale import LossScale

MANIFEST = "manifest.json"
TRAINER = "trainer.json"


class Best(Frozen):
    """A checkpoint and the validation loss at it."""

    step: int
    validation_loss: float
    name: str


class TrainerState(Frozen):
    """Everything that training needs to go on besides the model and its optimizer."""

    step: int = 0
    best: tuple[Best, ...] = ()
    """The best ones so far, best first."""
    evaluations_without_better: int = 0
    loss_scale: LossScale | None = None
    """Of fp16; the other precisions have none."""
    history: tuple[Evaluated, ...] = ()
    """Every evaluation so far, for the diagnosis at the end."""

    def judged(self, loss: float, name: str, keep_best: int) -> "TrainerState":
        """The state after an evaluation of the step that it is at.

        Args:
            name: of the checkpoint at this step.
            keep_best: how many of the best to remember.
        """
        better = not self.best or loss < self.best[0].validation_loss
        entry = Best(step=self.step, validation_loss=loss, name=name)
        best = tuple(sorted((*self.best, entry), key=lambda b: (b.validation_loss, b.step)))
        return self.model_copy(
            update={
                "best": best[:keep_best],
                "evaluations_without_better": 0 if better else self.evaluations_without_better + 1,
            }
        )


@dataclass
class CheckpointFiles:
    """The checkpoints of one session, as the one process sees them that writes manifests."""

    request: TrainRequest
    events: EventWriter
    world: int
    parent: str | None = None
    """Name of the checkpoint that this attempt resumed from."""

    @property
    def folder(self) -> Path:
        return Path(self.request.output.checkpoints)

    def name(self, step: int) -> str:
        return f"step-{step:06d}.a{self.request.attempt}"

    def draft(self, step: int) -> Path:
        """An empty folder to save this step in."""
        folder = self.folder / self.name(step)
        shutil.rmtree(folder, ignore_errors=True)  # of this very attempt: not whole
        folder.mkdir(parents=True)
        return folder

    def seal(self, state: TrainerState, metrics: dict[str, float]) -> None:
        """What is in the folder of this step is a checkpoint from here on; older ones may go."""
        name = self.name(state.step)
        folder = self.folder / name
        (folder / TRAINER).write_bytes(canonical_json(state))
        files = describe(folder, sorted(path.name for path in folder.iterdir()))
        manifest = CheckpointManifest(
            session=self.request.session,
            attempt=self.request.attempt,
            step=state.step,
            validation_loss=metrics.get("validation_loss"),
            world=self.world,
            parent=self.parent,
            files=files,
        )
        write_whole(folder / MANIFEST, canonical_json(manifest))
        ref = Ref(uri=str(folder), digest=file_digest(folder / MANIFEST))
        best = bool(state.best) and state.best[0].name == name
        self.events.checkpoint(state.step, ref, sum(f.size for f in files), best, metrics)
        self._retain(state)

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


def read_state(folder: Path) -> TrainerState:
    """The trainer's state of a verified checkpoint."""
    return TrainerState.model_validate_json((folder / TRAINER).read_bytes())


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
