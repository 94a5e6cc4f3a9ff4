"""Mirrors a session of pods into the folder that every reader of sessions knows.

Nothing is fetched twice, and files are written whole, or appended where they end: a killed
launcher, or a fresh home, continues from what it finds.
"""

import os
import shutil
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ml_assets.errors import StorageError, StoreAway
from ml_assets.launch.events import LAUNCHER_FILE
from ml_assets.launch.session_folder import SessionFolder, parsed, signature_of
from ml_assets.launch.staging.addresses import addressed
from ml_assets.spec.base import Frozen, canonical_json
from ml_assets.spec.training_program import Request, Result, ScoreResult, TrainResult
from ml_assets.spec.training_program.events import heartbeat_file
from ml_assets.spec.training_program.pod import (
    EVENTS,
    EXIT,
    HEARTBEATS,
    MODEL,
    PREDICTIONS,
    REQUEST,
    RESULT,
    RESULTS,
    PodHeartbeats,
    TerminationMessage,
    attempts_of,
    chunk_at,
    chunk_name,
    is_events_file,
    is_heartbeats,
    terminated_pod,
)
from ml_assets.store.objects import LocalObjects, verify, write_whole
from ml_assets.store.s3.client import Item, S3Place, side_by_side
from ml_assets.store.s3.content import MODELS, fetch_folder
from ml_assets.store.s3.handover import put_made, put_result
from ml_assets.store.s3.objects import S3Objects

ReadT = TypeVar("ReadT", bound=Frozen)
_BETWEEN_LOOKS = 5.0


class AttemptTaken(StorageError):
    """Another launcher began an attempt of this number, with another request."""


class SessionMirror:
    """One session, here and on S3. Every method may raise ``StoreAway``; each is safe to repeat.

    Args:
        folder: of the session, in the cache of ``objects``.
        objects: the store that the pods read and write.
        hasty: a client for all but what is large, for who cannot wait; None: that of the store.
    """

    def __init__(self, folder: SessionFolder, objects: S3Objects, hasty: Any = None) -> None:
        self.folder = folder
        self._objects = objects
        self._large = objects.place.at(attempts_of(folder.session))
        self._place = S3Place(self._large.uri, hasty, self._large.moved) if hasty else self._large
        self._known: dict[tuple[int, str], int] = {}
        """(attempt, events file) -> up to which byte it is here."""
        self._beaten: dict[tuple[int, str], str] = {}
        """(attempt, name) -> the tag of the heartbeats that are here."""
        self._words: dict[tuple[int, str], tuple[str, TerminationMessage | None]] = {}
        """(attempt, name) -> a termination message and its tag; a resumed Job leaves another."""
        self._looked: dict[int, float] = {}

    # --- from here to the pods ------------------------------------------------------------------

    def send(self, request: Request) -> str:
        """Begin an attempt: publish what it reads, then its request, which makes it exist.

        Args:
            request: with the paths of this machine.

        Returns:
            The request's address, for the pods.

        Raises:
            AttemptTaken: another launcher began this attempt otherwise.
        """
        number = request.attempt
        if not self.folder.attempt(number).is_dir():
            self.folder.begin(request)
        if number > 1:
            self._share_words(number - 1)
        data = canonical_json(addressed(request, self._objects, self.folder.checkpoints))
        place = self._at(number)
        if not place.write_new(REQUEST, data):
            raise AttemptTaken(
                f"Attempt {number} of session {self.folder.session} was begun by another launcher."
                " Follow that one, or begin the next."
            )
        return f"{place.uri}/{REQUEST}"

    def publish(self, request: Request) -> None:
        """Put an attempt that ran here where pods put theirs; its result last.

        Raises:
            StorageError: its model or predictions are not what its result says.
        """
        number = request.attempt
        place, folder = self._at(number), self.folder.attempt(number)
        self.send(request)
        for file in sorted(folder.glob("events*.jsonl")):
            begin = f"{EVENTS}{file.name}/"
            ends = [chunk_at(i.name) and int(i.name[-12:]) + i.size for i in place.items(begin)]
            _put_lines(place, file, max((end for end in ends if end), default=0))
        result = self.folder.result(number)
        if result.is_file() and number == max(self.attempts()):
            put_result(put_made(RESULTS.validate_json(result.read_bytes()), place), place)

    def attempts(self) -> tuple[int, ...]:
        """Numbers of the attempts that were begun by anybody, oldest first."""
        return tuple(sorted(int(name) for name in self._place.folders() if name.isdigit()))

    # --- from the pods to here ------------------------------------------------------------------

    def adopt(self, known: Collection[int] = ()) -> tuple[int, ...]:
        """Bring all that other homes and their pods left of this session; its attempts.

        The newest attempt's result is collected, if it has one.

        Args:
            known: attempts that are over and here; to ask for them again is some requests each.
        """
        numbers = self.attempts()
        for number in numbers:
            if number not in known:
                self.pull(number)
        if numbers and self.collect(numbers[-1]):
            self._take_signature(numbers[-1])
        return numbers

    def pull(self, attempt: int) -> int:
        """Append what an attempt's pods told since; the number of bytes that came."""
        if not self.folder.attempt(attempt).is_dir():
            self.take_up(attempt)
        place = self._at(attempt)
        files = [name for name in place.folders(EVENTS) if is_events_file(name)]
        news = list(side_by_side(partial(self._news, attempt), files))
        contents = side_by_side(place.read, [item.name for found in news for item in found])
        came = 0
        for name, found in zip(files, news, strict=True):  # each takes as many contents as chunks
            came += self._append(attempt, name, zip(found, contents, strict=False))
        self._beats(attempt)
        return came

    def exits(self, attempt: int) -> Sequence[TerminationMessage]:
        """The termination messages of the pods that left one, by their index."""
        items = list(self._at(attempt).items(EXIT))
        new = [i for i in items if self._words.get((attempt, i.name), ("", None))[0] != i.tag]
        for item, data in self._read(attempt, new):
            self._words[attempt, item.name] = (item.tag, parsed(TerminationMessage, data))
        found = dict[int, TerminationMessage]()
        for item in items:
            index, (_, word) = terminated_pod(item.name), self._words[attempt, item.name]
            if index is not None and word is not None and word.index == index:
                found[index] = word
        return [found[index] for index in sorted(found)]

    def has_result(self, attempt: int) -> bool:
        """Whether an attempt left a result; ``collect`` tells whether it counts."""
        return self._at(attempt).read(RESULT) is not None

    def collect(self, attempt: int) -> bool:
        """Bring the result of an attempt, what it names first; False: none that counts.

        Of an attempt that a newer one followed nothing counts: its pods may be orphans. What is
        damaged is told in the attempt's events, and does not count either.
        """
        data = self._at(attempt).read(RESULT)
        if data is None or max(self.attempts()) > attempt:
            return False
        if not self.folder.attempt(attempt).is_dir():
            self.take_up(attempt)
        try:
            result = RESULTS.validate_json(data)
            if (result.session, result.attempt) != (self.folder.session, attempt):
                raise StorageError(f"it belongs to attempt {result.attempt} of {result.session}")
            self._fetch(result, self._large.at(str(attempt)))
        except StoreAway:
            raise
        except (StorageError, ValidationError) as error:
            self.folder.warn(attempt, f"The result of attempt {attempt} does not count: {error}")
            return False
        write_whole(self.folder.result(attempt), data)
        return True

    def vouch(self, attempt: int) -> None:
        """Give our signature of an attempt's result to the homes that trust our key."""
        file = signature_of(self.folder.result(attempt))
        if file.is_file():
            self._at(attempt).write(file.name, file.read_bytes())

    def _take_signature(self, attempt: int) -> None:
        """Take the signature of the home that saw it end; a forged one is worth nothing."""
        file = signature_of(self.folder.result(attempt))
        data = None if file.exists() else self._at(attempt).read(file.name)
        if data is not None:
            write_whole(file, data)

    def _at(self, attempt: int) -> S3Place:
        return self._place.at(str(attempt))

    def take_up(self, attempt: int, *, instead: bool = False) -> None:
        """Make the folder of an attempt that another home began.

        Args:
            instead: in the place of ours, which came too late.
        """
        data = self._at(attempt).read(REQUEST)
        if data is None:
            raise StorageError(f"{self._place.uri}/{attempt}/{REQUEST} is lost or damaged.")
        draft = self.folder.attempt(attempt).with_name(f".{attempt}.{uuid.uuid4().hex}")
        draft.mkdir(parents=True)
        write_whole(draft / REQUEST, data)
        if instead:
            shutil.rmtree(self.folder.attempt(attempt))
        try:
            draft.rename(self.folder.attempt(attempt))
        except OSError:  # another process of this home was first
            shutil.rmtree(draft)

    def _news(self, attempt: int, name: str) -> list[Item]:
        """Chunks of one events file that are not here, in order, up to one that is missing."""
        size, found = _size(self.folder.attempt(attempt) / name), list[Item]()
        # once in this process they are all looked through: a kill may have cut the last one
        known = self._known.get((attempt, name), 0)
        behind = chunk_name(name, known - 1) if known else ""
        for item in self._at(attempt).items(f"{EVENTS}{name}/", behind):
            offset = _offset(item)
            if offset is None or offset > size:
                break
            if offset + item.size > size:
                found.append(item)
                size = offset + item.size
        return found

    def _append(self, attempt: int, name: str, chunks: Iterable[tuple[Item, bytes | None]]) -> int:
        """New chunks of one events file, in order; what a kill has cut is made whole."""
        file = self.folder.attempt(attempt) / name
        size = began = _size(file)
        with file.open("ab") as handle:
            for item, data in chunks:
                offset = _offset(item)
                if data and offset is not None and offset <= size:  # else one before it is damaged
                    handle.write(data[size - offset :])
                    size = max(size, offset + len(data))
            if size > began:
                handle.flush()
                os.fsync(handle.fileno())
        self._known[attempt, name] = size
        return size - began

    def _beats(self, attempt: int) -> None:
        """Signs of life are looked at now and then: each is a request."""
        if time.monotonic() - self._looked.get(attempt, float("-inf")) < _BETWEEN_LOOKS:
            return
        self._looked[attempt] = time.monotonic()
        folder, items = self.folder.attempt(attempt), self._at(attempt).items(HEARTBEATS)
        beaten = [i for i in items if is_heartbeats(i.name)]
        new = [i for i in beaten if self._beaten.get((attempt, i.name)) != i.tag]
        for item, data in self._read(attempt, new):
            beats = parsed(PodHeartbeats, data)
            for beat in beats.beats if beats else ():
                write_whole(heartbeat_file(folder, beat.rank), canonical_json(beat), durable=False)
            self._beaten[attempt, item.name] = item.tag

    def _read(self, attempt: int, items: list[Item]) -> Iterator[tuple[Item, bytes | None]]:
        """Objects with their content."""
        contents = side_by_side(self._at(attempt).read, [item.name for item in items])
        return zip(items, contents, strict=True)

    def _fetch(self, result: Result, place: S3Place) -> None:
        """What a result names, held to it, in the place of what an older attempt left."""
        if isinstance(result, TrainResult):
            here = self.folder.finished_training()
            if here is not None and here.model.digest == result.model.digest:
                return
            draft = self.folder.root / f".{MODEL}.{uuid.uuid4().hex}"
            try:
                fetch_folder(place.at(MODEL), result.model.digest, MODELS, draft)
                shutil.rmtree(self.folder.model, ignore_errors=True)
                draft.rename(self.folder.model)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        if isinstance(result, ScoreResult):
            draft = self.folder.root / f".{PREDICTIONS}.{uuid.uuid4().hex}"
            try:
                place.download(PREDICTIONS, draft)
                made = result.predictions
                verify(draft.parent, [made.model_copy(update={"path": draft.name})])
                os.replace(draft, self.folder.predictions)
            finally:
                draft.unlink(missing_ok=True)

    def _share_words(self, attempt: int) -> None:
        """What this launcher said of an attempt that is over; another launcher's words stay."""
        file = self.folder.attempt(attempt) / LAUNCHER_FILE
        if file.is_file():
            self._at(attempt).write_new(chunk_name(LAUNCHER_FILE, 0), file.read_bytes())


def session_here(objects: LocalObjects, session: str) -> Path:
    """The folder of a session, with all that its pods, or other homes, told of it meanwhile.

    Raises:
        StoreAway: nobody can tell what they did.
    """
    folder = SessionFolder.of(objects, session)
    if isinstance(objects, S3Objects):
        with folder.idle() as idle:
            if idle:  # else who works on it brings what there is
                SessionMirror(folder, objects).adopt()
    return folder.root


def _put_lines(place: S3Place, file: Path, first: int) -> None:
    """Whole lines of an events file from a byte on."""
    with file.open("rb") as handle:
        handle.seek(first)
        lines = handle.read()
    lines = lines[: lines.rfind(b"\n") + 1]
    if lines:
        place.write_new(chunk_name(file.name, first), lines)


def _offset(chunk: Item) -> int | None:
    """The first byte of an events file that is in it; None: it is no chunk."""
    found = chunk_at(chunk.name)
    return found[1] if found else None


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
