"""Saves checkpoints of networks: torch's distributed checkpoint, in a thread, one at a time.

Training waits only for the copy of its state to memory. The thread does the writing, checksums,
upload and manifest, in the same order on all ranks. ``whole_checkpoints`` says what makes a
checkpoint whole, and which are kept.
"""

import io
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from ml_assets.errors import StorageError
from ml_assets.store.checkpoint_store import FoundCheckpoint
from ml_assets.store.objects import make_durable
from ml_assets.store.retries import persist
from ml_assets.training.checkpoints.read import BF16_WEIGHTS, read_into, write_bf16
from ml_assets.training.checkpoints.whole_checkpoints import (
    CheckpointFiles,
    HeldCheckpoint,
    Written,
    read_state,
)
from ml_assets.training.distributed.powersgd import PowerSgd
from ml_assets.training.distributed.ranks import Ranks, on_every_rank, on_first_rank, total
from ml_assets.training.models.network import Network
from ml_assets.training.stop import NotSaved, PeerLost, PeerSilent, may_pass
from ml_assets.training.telemetry import milliseconds_since
from ml_assets.training.trainer_state import Best, TrainerState

_SECONDS_BETWEEN_BEATS = 1.0
_LAST_SAVE_SECONDS = 30.0
"""A save in flight may take so long to end when training ended in an error."""


@dataclass
class Checkpoints:
    """Saves, keeps and loads the checkpoints of one session; all ranks make the same calls."""

    files: CheckpointFiles
    ranks: Ranks
    alive: Callable[[], None]
    """Called now and then while a save is waited for."""
    powersgd: PowerSgd | None = None
    """Holds the residual gradients that PowerSGD did not send; None: it is not used."""
    _in_flight: Future[NotSaved | None] | None = None
    _unsaved: NotSaved | None = None
    _last: Callable[[], NotSaved | None] | None = None
    """Makes the last save, in the thread; it holds a copy of the state, and may be called again."""
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
    )
    _stager: DefaultStager = field(
        default_factory=lambda: DefaultStager(
            StagingOptions(torch.cuda.is_available(), False, False, False)
        )
    )

    # --- saving ---------------------------------------------------------------------------------

    def save(
        self,
        network: Network,
        optimizer: Optimizer,
        state: TrainerState,
        metrics: dict[str, float],
    ) -> None:
        """Begin to save; the one before is finished first.

        A save that fails is reported, and training continues. Where the model would be made from
        it, it is tried again before the next one: no later checkpoint counts on a missing one.
        Training stands still for ``checkpoint_duration_ms``; the files are written after
        ``checkpoint_background_ms``. Both are reported with the checkpoint.

        Raises:
            NotSaved: such a one failed again. The next attempt goes on from before it.
            Superseded: a newer attempt has the session.
        """
        began = time.perf_counter()
        self.finish()
        if self._unsaved is not None and self.files.is_needed(self._unsaved, state):
            self._save_again()
        model, optim = get_state_dict(network, optimizer)
        unsent = self.powersgd.state() if self.powersgd else {}
        staged = self._stager.stage({"model": model, "optimizer": optim, **unsent})
        durations = {"checkpoint_duration_ms": milliseconds_since(began)}
        self._last = partial(self._save, staged, state, {**metrics, **durations})
        self._in_flight = self._thread.submit(self._last)

    def finish(self) -> None:
        """Wait for the save in flight, all in step: one that hangs is noticed as in training."""
        flight, self._in_flight = self._in_flight, None
        while flight is not None:
            wait([flight], _SECONDS_BETWEEN_BEATS)
            self.alive()
            done = flight.done()
            failed = done and flight.exception() is not None
            waiting, failing = total([float(not done), float(failed)])
            if failing or not waiting:
                self._unsaved = flight.result()  # if another rank failed, this rank's ends too
                return

    def close(self) -> None:
        """Wait for the last save; where the store is away, save again until it answers.

        Raises:
            NotSaved: it failed.
        """
        self.finish()
        if self._unsaved is not None:
            if not self._unsaved.passes:
                raise self._unsaved
            self._save_again()
        self._stager.close()

    def _save_again(self) -> None:
        """Make the last save again; where the store is away, until it answers."""

        def saved() -> None:
            assert self._last is not None
            self._in_flight = self._thread.submit(self._last)
            self.finish()
            if self._unsaved is not None:
                raise self._unsaved

        persist(saved, passes=may_pass, together=partial(on_first_rank, self.ranks))

    @contextmanager
    def finish_save_on_error(self) -> Iterator[None]:
        """Give a save that is in flight a while to become whole where training ends in an error.

        The groups are left only after it: a thread that still talks would end in native code. Where
        a rank is gone there is nothing to wait for: a save takes all of them.
        """
        try:
            yield
        except (PeerLost, PeerSilent):
            raise
        except BaseException:
            if self._in_flight is not None:
                wait([self._in_flight], _LAST_SAVE_SECONDS)
            raise

    def _save(self, staged: Any, state: TrainerState, metrics: dict[str, float]) -> NotSaved | None:
        """Write a whole checkpoint, or come to one error on all ranks; in the thread."""
        began, step = time.perf_counter(), state.step
        try:
            on_first_rank(self.ranks, lambda: self.files.draft(step))
            on_every_rank(self.ranks, lambda: self.files.store.draft(self.files.name(step)))
            self._write(staged, step)
            put = on_every_rank(self.ranks, lambda: self.files.put(step, self._own(step)))
            files = tuple(file for mine in put for file in mine)
            metrics = {**metrics, "checkpoint_background_ms": milliseconds_since(began)}
            on_first_rank(self.ranks, lambda: self._seal(state, metrics, Written(files)))
        except (OSError, StorageError) as error:
            why, needed = error, whole_size(staged)
            return on_first_rank(self.ranks, lambda: self.files.not_saved(step, why, needed))
        finally:
            self._release(self.files.name(step))
        return None

    def _release(self, name: str) -> None:
        """Leave nothing of it on this machine: a long run would fill the disks of its nodes."""
        if self._first_here:
            self.files.store.release(name)

    @property
    def _first_here(self) -> bool:
        """True on the first rank of each machine."""
        return int(os.environ.get("LOCAL_RANK", "0")) == 0

    def _write(self, staged: Any, step: int) -> None:
        folder = self.files.store.draft(self.files.name(step))
        writer = FileSystemWriter(folder)
        writer.fs = _Files()
        try:
            save(staged, storage_writer=writer, process_group=self.ranks.side)
        except CheckpointException as error:  # raised on all ranks, whichever failed
            for failure, _ in error.failures.values():
                raise failure from error

    def _own(self, step: int) -> list[str]:
        """The files of a draft that this rank wrote."""
        folder = self.files.store.draft(self.files.name(step))
        named = [path.name for path in folder.glob(f"__{self.ranks.rank}_*")]
        return [*named, ".metadata"] if self.ranks.rank == 0 else named

    def _seal(self, state: TrainerState, metrics: dict[str, float], written: Written) -> None:
        """On the first rank: what belongs to it beside the shares, then the manifest."""
        name = self.files.name(state.step)
        if name in {best.name for best in state.best}:
            folder = self.files.store.collected(name, written.files)
            write_bf16(folder, folder / BF16_WEIGHTS)
            make_durable(folder / BF16_WEIGHTS)
            files = (*written.files, *self.files.put(state.step, [BF16_WEIGHTS]))
            written = replace(written, files=files, bf16_weights=BF16_WEIGHTS)
        self.files.seal(state, metrics, written)

    # --- loading --------------------------------------------------------------------------------

    def resume(self, network: Network, optimizer: Optimizer) -> TrainerState | None:
        """Claim the session, and go on from its newest whole checkpoint; any world size.

        Raises:
            Superseded: a newer attempt has the session.
            StoreAway: nobody can tell what is there.
        """
        found = on_first_rank(self.ranks, self.files.claim)
        with self._first_whole(found, "checkpoint before it") as held:
            if held is None:
                return None
            model, optim = get_state_dict(network, optimizer)
            world = held.found.manifest.world
            powersgd = self.powersgd if world > 1 else None  # a process alone leaves nothing unsent
            unsent = powersgd.of(world) if powersgd else {}
            states = {"model": model, "optimizer": optim, **unsent}
            read_into(states, held.folder, self.ranks.side)
            if powersgd:
                powersgd.take(states)
            set_state_dict(
                network,
                optimizer,
                model_state_dict=states["model"],
                optim_state_dict=states["optimizer"],
            )
            self.files.parent = held.found.name
            return read_state(held.folder)

    def load_bests(self, network: Network, optimizer: Optimizer, count: int) -> Iterator[Best]:
        """Load the weights of the best ones that are whole, one after the other, the best first.

        Of all that the session has; there may be fewer.

        Raises:
            Superseded: a newer attempt has the session.
            StorageError: none is whole.
        """
        found = on_first_rank(self.ranks, self.files.best_first)
        for number in range(count):
            with self._first_whole(found, "next best one") as held:
                if held is None and number == 0:
                    raise StorageError(f"{self.files.store.uri} has no whole checkpoint to choose.")
                if held is None:
                    return
                model, optim = get_state_dict(network, optimizer)
                read_into({"model": model}, held.folder, self.ranks.side)
                set_state_dict(network, optimizer, model_state_dict=model, optim_state_dict=optim)
            yield Best.of(held.found)
            step = held.found.manifest.step  # which another attempt may have saved, too
            found = [
                one for one in found[found.index(held.found) + 1 :] if one.manifest.step != step
            ]

    @contextmanager
    def _first_whole(
        self, found: Sequence[FoundCheckpoint], instead: str
    ) -> Iterator[HeldCheckpoint | None]:
        """The first one that is what its manifest says, on each machine; the others are told."""

        def fetched(one: FoundCheckpoint) -> Path:
            folder, *_ = on_every_rank(
                self.ranks, lambda: self.files.fetch(one) if self._first_here else Path()
            )
            return folder

        held = self.files.first_whole(found, instead, fetched)
        yield held
        if held is not None:
            on_every_rank(self.ranks, lambda: None)  # all have read it
            self._release(held.found.name)


class _Files(FileSystem):
    """Torch hides why it could not write a file behind an error of its own archive: not here."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        try:
            with super().create_stream(path, mode) as stream:
                yield stream
        except RuntimeError as error:
            raise _cause(error) from error


def _cause(error: BaseException) -> BaseException:
    """The system's own error below others; the error itself where there is none."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, OSError):
        below = below.__context__
    return below or error


def whole_size(state: object) -> int:
    """Bytes of a nested state over all ranks: a share counts as the tensor that it is of."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(state))


def _tensors(state: object) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, Mapping):
        for inner in state.values():
            yield from _tensors(inner)
    elif isinstance(state, list | tuple):
        for inner in state:
            yield from _tensors(inner)
