"""Writes the event stream: one JSON object a line, numbered within the attempt.

Rank 0 writes the story. Another rank writes only why it failed, into a file of its own beside it,
so that no two processes share a sequence.
"""

import errno
import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import Ref, Result
from ml_assets.spec.training_program.events import (
    Began,
    Checkpoint,
    DrawnRows,
    EpochEnded,
    Event,
    Failed,
    Finished,
    FirstRows,
    FixedBatch,
    Metrics,
    Progress,
    Trace,
    Warning,
)
from ml_assets.spec.training_program.identity import Node
from ml_assets.store.objects import write_whole
from ml_assets.training.peers import generation
from ml_assets.training.rows.arrays import Rows

FAILED_RANK_OFFSET = 10_000_000
"""Sequence numbers of rank r's own file begin at r times this."""


REFUSED_BY_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""The errors of a write where there is no room, or the disk is read-only for a while."""

FIRST_ROWS = 5
"""The number of rows that are shown before training: a person reads them one by one."""


class EventWriter:
    """Appends events, from whichever thread; each line is on disk before the call returns.

    The end of an epoch is there with the next event at the latest: a power cut may lose its line.
    """

    def __init__(self, file: Path, session: str, attempt: int, rank: int) -> None:
        self._file = file if rank == 0 else file.with_suffix(f".rank{rank}.jsonl")
        self._session = session
        self._attempt = attempt
        self._rank = rank
        self._seq = rank * FAILED_RANK_OFFSET + self._written()
        self._one_at_a_time = threading.Lock()
        self._waiting = bytearray()

    @property
    def folder(self) -> Path:
        """The folder of the attempt's own files."""
        return self._file.parent

    def _written(self) -> int:
        """Lines of the attempt's earlier processes; one that a kill has cut is closed."""
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return 0
        if text and not text.endswith(b"\n"):
            with self._file.open("ab") as handle:
                handle.write(b"\n")
        return len(text.splitlines())

    def began(self, index: int, node: Node) -> None:
        """Report a node, by its first rank."""
        self._write(Began(**self._head(), index=index, node=node), always=True)

    def progress(self, step: int, steps: int, message: str) -> None:
        self._write(Progress(**self._head(), step=step, steps=steps, message=message))

    def metrics(self, step: int, metrics: dict[str, float]) -> None:
        self._write(Metrics(**self._head(), step=step, metrics=metrics))

    def first_rows(self, rows: Rows) -> None:
        """Rows that are no numbers are not told: the first loss says so, with rank and step."""
        if not (np.isfinite(rows.numeric).all() and np.isfinite(rows.label).all()):
            return
        self._write(
            FirstRows(
                **self._head(),
                numeric=_rounded(rows.numeric),
                categorical=tuple(map(tuple, rows.categorical.tolist())),
                labels=tuple(float(label) for label in rows.label.tolist()),
            )
        )

    def epoch_ended(self, epoch: int, drawn: DrawnRows) -> None:
        ended = EpochEnded(**self._head(), epoch=epoch, drawn=drawn)
        self._write(ended, durable=False)  # all ranks wait meanwhile, each step of a small set

    def fixed_batch(
        self, step: int, labels: NDArray[np.generic], predictions: NDArray[np.generic]
    ) -> None:
        self._write(
            FixedBatch(
                **self._head(),
                step=step,
                labels=tuple(float(label) for label in labels.tolist()),
                predictions=_rounded(predictions),
            )
        )

    def checkpoint(
        self, step: int, ref: Ref, size: int, best: bool, metrics: dict[str, float]
    ) -> None:
        self._write(
            Checkpoint(
                **self._head(), step=step, checkpoint=ref, size=size, best=best, metrics=metrics
            )
        )

    def trace(self, step: int, steps: int, file: Path) -> None:
        self._write(Trace(**self._head(), step=step, steps=steps, uri=str(file)))

    def warning(self, message: str) -> None:
        self._write(Warning(**self._head(), message=message))

    def finished(self, result: Result, file: str) -> None:
        """Write the result, whole, then report it."""
        write_whole(Path(file), canonical_json(result))
        self._write(Finished(**self._head(), result=result))

    def failed(self, exit_code: int, reason: str, step: int | None, detail: str) -> None:
        event = Failed(
            **self._head(),
            exit_code=exit_code,
            reason=reason,
            rank=self._rank,
            generation=generation(),
            step=step,
            detail=detail,
        )
        self._write(event, always=True)

    def _head(self) -> dict[str, Any]:
        return {
            "session": self._session,
            "attempt": self._attempt,
            "seq": self._seq,
            "time": datetime.now(UTC),
        }

    def _write(self, event: Event, *, always: bool = False, durable: bool = True) -> None:
        if self._rank != 0 and not always:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._one_at_a_time:
            numbered = event.model_copy(update={"seq": self._seq})
            self._waiting += numbered.model_dump_json().encode() + b"\n"
            self._seq += 1
            self._append(durable)
        if always and self._waiting:
            sys.stderr.buffer.write(self._waiting)

    def _append(self, durable: bool) -> None:
        """A full disk ends no training: what it refuses is written with the next event, whole."""
        size = self._file.stat().st_size if self._file.exists() else 0
        try:
            with self._file.open("ab") as handle:
                handle.write(self._waiting)
                handle.flush()
                if durable:
                    os.fsync(handle.fileno())
        except OSError as error:
            if error.errno not in REFUSED_BY_DISK:
                raise
            if self._file.exists() and self._file.stat().st_size > size:
                os.truncate(self._file, size)
            return
        self._waiting.clear()


def _rounded(values: NDArray[np.generic]) -> tuple[tuple[float, ...], ...]:
    """[rows, columns] to five decimals: enough for a picture."""
    return tuple(tuple(round(value, 5) for value in row) for row in values.tolist())
