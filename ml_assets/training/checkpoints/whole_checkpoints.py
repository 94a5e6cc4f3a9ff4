"""Checkpoints as files, whatever engine wrote their content: whole or absent, kept or deleted.

A checkpoint exists when its manifest does, and that is written last. The trainer's own state is
JSON beside the model's. Each lies in a folder of its own (step and attempt), never written twice.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ml_assets.errors import StorageError, StoreAway, StoreRefuses
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import CheckpointManifest, File, Ref, TrainRequest
from ml_assets.store.checkpoint_store import (
    CheckpointStore,
    FoundCheckpoint,
    attempt_of,
    checkpoint_name,
    claim_session,
    last_claim,
    whole_checkpoints,
)
from ml_assets.store.disk import free_bytes
from ml_assets.store.local_checkpoints import open_checkpoints
from ml_assets.store.objects import bytes_digest, describe, write_whole
from ml_assets.store.retries import persist
from ml_assets.training.events import EventWriter
from ml_assets.training.stop import NotSaved, Superseded
from ml_assets.training.trainer_state import TrainerState

TRAINER = "trainer.json"
_MB = 1e6


@dataclass(frozen=True)
class Written:
    """The files that ranks put into a checkpoint before it is sealed."""

    files: tuple[File, ...]
    bf16_weights: str | None = None


class HeldCheckpoint(NamedTuple):
    """A verified checkpoint on this machine."""

    found: FoundCheckpoint
    folder: Path


@dataclass
class CheckpointFiles:
    """The checkpoints of one session; the first rank alone claims, seals, keeps and deletes."""

    request: TrainRequest
    events: EventWriter
    world: int
    parent: str | None = None
    """Name of the checkpoint that this attempt resumed from."""
    damaged: set[str] = field(default_factory=set)
    """Names of those that were found not to be what their manifests say."""
    store: CheckpointStore = field(init=False)

    def __post_init__(self) -> None:
        output = self.request.output
        self.store = open_checkpoints(
            output.checkpoints, Path(output.events).parent / "checkpoints"
        )

    def name(self, step: int) -> str:
        return checkpoint_name(step, self.request.attempt)

    # --- taking up ------------------------------------------------------------------------------

    def claim(self) -> list[FoundCheckpoint]:
        """Fence older attempts off; the checkpoints to go on from, the newest first.

        Raises:
            Superseded: a newer attempt began before this one came so far.
            StoreAway: nobody can tell, for a quarter of an hour.
        """
        return persist(self._claimed)

    def _claimed(self) -> list[FoundCheckpoint]:
        session, attempt = self.request.session, self.request.attempt
        claim_session(self.store, session, attempt, resume=self.request.resume is not None)
        self.hold()
        return list(reversed(whole_checkpoints(self.store, session)))

    def hold(self) -> None:
        """Go on only while the session belongs to this attempt, else raise.

        Raises:
            Superseded: a newer one claimed it.
        """
        claim = last_claim(self.store)
        mine = self.request.attempt
        if claim is not None and claim.attempt > mine:
            raise Superseded(
                f"attempt {claim.attempt} of session {self.request.session} began: attempt {mine}"
                " is superseded, and what it writes from here on is ignored"
            )

    def best_first(self) -> list[FoundCheckpoint]:
        """The whole ones that were judged, by validation loss; of equal ones the earlier first.

        Raises:
            Superseded: a newer attempt has the session.
            StoreAway: see ``claim``.
        """

        def held() -> list[FoundCheckpoint]:
            self.hold()
            return _best_first(whole_checkpoints(self.store, self.request.session))

        return persist(held)

    def fetch(self, found: FoundCheckpoint) -> Path:
        """A folder with the checkpoint's files; the weights for others to read are left there.

        Raises:
            StorageError: it is not what its manifest says.
            StoreAway: see ``claim``.
        """
        manifest = found.manifest
        files = [file for file in manifest.files if file.path != manifest.bf16_weights]
        return persist(lambda: self.store.fetch(found.name, files))

    def first_whole(
        self,
        candidates: Iterable[FoundCheckpoint],
        instead: str,
        fetch: Callable[[FoundCheckpoint], Path] | None = None,
    ) -> HeldCheckpoint | None:
        """The first one that is what its manifest says, on this machine; the others are told.

        Args:
            fetch: on more machines than this one; see ``fetch``.
        """
        for found in candidates:
            try:
                return HeldCheckpoint(found, (fetch or self.fetch)(found))
            except StoreAway:
                raise
            except StorageError as error:
                self.damaged.add(found.name)
                self.events.warning(f"{error} The {instead} is used.")
        return None

    # --- writing --------------------------------------------------------------------------------

    def draft(self, step: int) -> Path:
        """An empty folder to save this step in."""
        self.hold()
        name = self.name(step)
        self.store.discard(name)  # of this very attempt: not whole
        self.damaged.discard(name)  # what is written now is another one
        return self.store.draft(name)

    def put(self, step: int, names: Sequence[str]) -> tuple[File, ...]:
        """Hand files of the draft over; each rank does so with its own."""
        name = self.name(step)
        described = describe(self.store.draft(name), sorted(names))
        self.store.put(name, sorted(names))
        return described

    def seal(self, state: TrainerState, metrics: dict[str, float], written: Written) -> None:
        """Make what was put for this step a checkpoint; older ones may go."""
        name = self.name(state.step)
        write_whole(self.store.draft(name) / TRAINER, canonical_json(state))
        files = (*written.files, *self.put(state.step, [TRAINER]))
        judged = state.judged_at == state.step
        manifest = CheckpointManifest(
            session=self.request.session,
            attempt=self.request.attempt,
            step=state.step,
            validation_loss=metrics.get("validation_loss") if judged else None,
            world=self.world,
            parent=self.parent,
            files=tuple(sorted(files, key=lambda file: file.path)),
            best=state.best[0].name if state.best else None,
            bf16_weights=written.bf16_weights,
        )
        self.hold()
        data = canonical_json(manifest)
        self.store.commit(name, data)
        self.store.release(name)
        ref = Ref(uri=f"{self.store.uri}/{name}", digest=bytes_digest(data))
        best = bool(state.best) and state.best[0].name == name
        self.events.checkpoint(state.step, ref, sum(f.size for f in files), best, metrics)
        self._retain()

    def not_saved(self, step: int, why: Exception, needed: int) -> NotSaved:
        """Tell that a save failed, delete what it wrote, and what to raise if it was the last one.

        Args:
            needed: bytes of the state, over all ranks.
        """
        name, place = self.name(step), self.store.place
        free = free_bytes(place)
        self.store.release(name)
        try:
            self.store.discard(name)
            whole = whole_checkpoints(self.store, self.request.session)
            kept = (
                f"The last whole checkpoint, {whole[-1].name}, is kept"
                if whole
                else "No checkpoint is whole yet"
            )
        except StorageError:  # away; whatever is whole there stays whole
            kept = "The whole checkpoints are kept"
        said = (
            f"the checkpoint of step {step} was not saved in {self.store.uri}: {why}."
            f" {free / _MB:,.1f} MB are free at {place}, about {needed / _MB:,.1f} MB are"
            f" needed. {kept}"
        )
        self.events.warning(
            f"{said[0].upper()}{said[1:]}. Training continues, and the next save tries again. Free"
            " space, or lower training.keep_last or training.keep_best."
        )
        found = NotSaved(said, step)
        found.passes = isinstance(why, StoreAway) and not isinstance(why, StoreRefuses)
        return found

    def is_needed(self, failed: NotSaved, state: TrainerState) -> bool:
        """Return whether the model would be made from the step that was not saved.

        Args:
            state: the trainer's, at the newest step.
        """
        chosen = state.best[: self.request.training.chosen_checkpoints]
        return failed.step in {best.step for best in chosen}

    def _retain(self) -> None:
        """Keep the newest and the best whole ones; a half-written one is never counted.

        What older attempts left and does not count goes too: nobody will ever read it.
        """
        try:
            self._delete(self._kept())
        except StoreAway as error:
            self.events.warning(f"Old checkpoints were not deleted: {error}")

    def _kept(self) -> set[str]:
        spec = self.request.training
        whole = whole_checkpoints(self.store, self.request.session)
        found = [one for one in whole if one.name not in self.damaged]
        return {f.name for f in (*found[-spec.keep_last :], *_best_first(found)[: spec.keep_best])}

    def _delete(self, kept: set[str]) -> None:
        for name in self.store.names():
            if name not in kept and attempt_of(name) <= self.request.attempt:
                self.hold()
                self.store.discard(name)


def read_state(folder: Path) -> TrainerState:
    """The trainer's state of a verified checkpoint."""
    return TrainerState.model_validate_json((folder / TRAINER).read_bytes())


def _best_first(found: Iterable[FoundCheckpoint]) -> list[FoundCheckpoint]:
    """Those that were judged, by validation loss, then step; of two attempts the newer first."""

    def order(one: FoundCheckpoint) -> tuple[float, int, int]:
        loss = one.manifest.validation_loss
        assert loss is not None
        return loss, one.manifest.step, -one.manifest.attempt

    return sorted((one for one in found if one.manifest.validation_loss is not None), key=order)


class CheckpointClock:
    """Counts the minutes since the last checkpoint; None: evaluations alone save.

    A clock changes when training is saved and never what is trained. Of several ranks the first
    one's clock counts; its flag rides on the step's sum as the notice to stop does.
    """

    def __init__(self, minutes: float | None) -> None:
        self._seconds = None if minutes is None else 60 * minutes
        self._since = time.monotonic()

    @property
    def due(self) -> bool:
        return self._seconds is not None and time.monotonic() - self._since >= self._seconds

    def saved(self) -> None:
        """A checkpoint was saved, for whatever reason: count from here."""
        self._since = time.monotonic()
