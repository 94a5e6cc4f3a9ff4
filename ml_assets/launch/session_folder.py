"""One session on disk: its lock, its attempts, whole checkpoints and finished result."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ml_assets.launch.events import append_warning, attempt_numbers
from ml_assets.spec.base import Frozen, canonical_json
from ml_assets.spec.training_program import (
    MeasureResult,
    ModelManifest,
    Ref,
    Request,
    SanityResult,
    ScoreResult,
    TrainResult,
)
from ml_assets.spec.training_program.events import Lost
from ml_assets.spec.training_program.pod import EVENTS_FILE, REQUEST, RESULT, SESSIONS
from ml_assets.store.checkpoint_store import (
    CheckpointStore,
    is_checkpoint,
    last_claim,
    whole_checkpoints,
)
from ml_assets.store.local_checkpoints import open_checkpoints
from ml_assets.store.objects import LocalObjects, file_digest, is_whole, write_whole
from ml_assets.store.signing import Keys, Signature

SESSION = "{session}"
ReadT = TypeVar("ReadT", bound=Frozen)
ResultT = TypeVar("ResultT", TrainResult, ScoreResult, MeasureResult, SanityResult)


@dataclass(frozen=True)
class SessionFolder:
    """``sessions/<session>/``: the session's record, lock, attempts, checkpoints and model."""

    root: Path
    kept_at: str | None = None
    """The place that holds the checkpoints of every session; None: each beside its session.
    With ``{session}`` in it, the place of each."""

    @classmethod
    def of(cls, objects: LocalObjects, session: str, kept_at: str | None = None) -> "SessionFolder":
        """The folder of a session, in an object store."""
        return cls(objects.path(SESSIONS, session), kept_at)

    @property
    def session(self) -> str:
        return self.root.name

    @property
    def checkpoints(self) -> str:
        """Return where they lie: a folder, or an address on S3."""
        if not self.kept_at:
            return f"{self.root}/checkpoints"
        if SESSION in self.kept_at:
            return self.kept_at.replace(SESSION, self.session)
        return f"{self.kept_at}/{self.session}"

    @property
    def model(self) -> Path:
        return self.root / "model"

    @property
    def predictions(self) -> Path:
        return self.root / "predictions.npy"

    def attempt(self, number: int) -> Path:
        return self.root / "attempts" / str(number)

    def events(self, number: int) -> Path:
        return self.attempt(number) / EVENTS_FILE

    def result(self, number: int) -> Path:
        return self.attempt(number) / RESULT

    def request(self, number: int) -> Path:
        return self.attempt(number) / REQUEST

    def log(self, number: int) -> Path:
        return self.attempt(number) / "log.txt"

    def next_attempt(self) -> int:
        """Above those begun here, and above who claimed the checkpoints from another machine."""
        begun = max(attempt_numbers(self.root), default=0)
        claim = last_claim(self._kept) if self.kept_at else None
        return max(begun, claim.attempt if claim else 0) + 1

    def begin(self, request: Request) -> Path:
        """Make the attempt's folder, which is never used twice, and write the request into it."""
        file = self.request(request.attempt)
        file.parent.mkdir(parents=True)
        write_whole(file, canonical_json(request))
        return file

    def warn(self, attempt: int, message: str, lost: Lost | None = None) -> None:
        """Append the launcher's warning to the attempt's events."""
        append_warning(self.attempt(attempt), self.session, attempt, message, lost)

    def write_session_file(self, pipeline: str, verb: str) -> None:
        """Write ``session.json`` for people who look at the folder. Nothing reads it."""
        record = {
            "session": self.session,
            "pipeline": pipeline,
            "verb": verb,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "pid": os.getpid(),
        }
        write_whole(self.root / "session.json", canonical_json(record))

    @contextmanager
    def held(self, while_waiting: Callable[[], None]) -> Iterator[None]:
        """One process works on a session. Others call ``while_waiting`` until they may.

        An OS lock on a descriptor that no child inherits: the death of the holder frees it.
        """
        with self._lock() as descriptor:
            while not _locked(descriptor):
                while_waiting()
            if self._is_mine(descriptor):
                yield
                return
        with self.held(while_waiting):  # the session was collected while this process waited
            yield

    @contextmanager
    def idle(self) -> Iterator[bool]:
        """Hold the session if nobody works on it; False where somebody does."""
        with self._lock() as descriptor:
            yield _locked(descriptor)

    @contextmanager
    def _lock(self) -> Iterator[int]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("a") as handle:
            yield handle.fileno()

    def _is_mine(self, descriptor: int) -> bool:
        """Whether the lock held is that of the folder which is there now."""
        try:
            return os.path.samestat(os.fstat(descriptor), (self.root / "lock").stat())
        except FileNotFoundError:
            return False

    def newest_checkpoint(self) -> Ref | None:
        """The newest whole checkpoint that counts: the program holds its files to their checksums.

        Raises:
            StoreAway: nobody can tell what is there.
        """
        found = whole_checkpoints(self._kept, self.session)
        if not found:
            return None
        return Ref(uri=f"{self._kept.uri}/{found[-1].name}", digest=found[-1].digest)

    @cached_property
    def _kept(self) -> CheckpointStore:
        """Opened once: to make a client of S3 takes a tenth of a second."""
        return open_checkpoints(self.checkpoints)

    def begin_anew(self) -> None:
        """Take away every checkpoint: nobody saw what they were made of.

        Raises:
            StoreAway: nobody can tell what is there.
        """
        for name in filter(is_checkpoint, self._kept.names()):
            self._kept.discard(name)

    def finished_training(self, keys: Keys | None = None) -> TrainResult | None:
        """The result of a session whose model is still what it says, its weights included.

        Args:
            keys: the result has to be signed by one of them; None: no signature is required,
                because the gates judge the model anyway.
        """
        for result in self._results(TrainResult, keys):
            manifest = self.model / "model.json"
            model = _read(ModelManifest, manifest)
            if model is None or file_digest(manifest) != result.model.digest:
                continue
            if is_whole(self.model, model.weights):
                own = Ref(uri=str(self.model), digest=result.model.digest)
                return result.model_copy(update={"model": own})
        return None

    def finished_scoring(self, keys: Keys) -> ScoreResult | None:
        """The signed result of a session whose predictions are still what it says."""
        for result in self._results(ScoreResult, keys):
            # an absolute path is itself, whatever folder it is joined to; a pod's is of its own
            if is_whole(self.root, result.predictions):
                here = {"path": str(self.root / result.predictions.path)}
                made = result.predictions.model_copy(update=here)
                return result.model_copy(update={"predictions": made})
        return None

    def finished_measuring(self) -> MeasureResult | None:
        """Return what a session measured."""
        return next(self._results(MeasureResult), None)

    def finished_sanity(self, keys: Keys) -> SanityResult | None:
        """The newest signed result of a sanity check."""
        return next(self._results(SanityResult, keys), None)

    def _results(self, kind: type[ResultT], keys: Keys | None = None) -> Iterator[ResultT]:
        """Whole results of this session, newest attempt first; with keys, only signed ones."""
        for number in reversed(attempt_numbers(self.root)):
            file = self.result(number)
            result = _read(kind, file) if keys is None else parsed(kind, signed_result(file, keys))
            if result is not None and result.session == self.session:
                yield result


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(kind: type[ReadT], file: Path) -> ReadT | None:
    try:
        return parsed(kind, file.read_bytes())
    except OSError:
        return None


def parsed(kind: type[ReadT], content: bytes | None) -> ReadT | None:
    """What a file says; None where there is no file, or it says something else."""
    try:
        return None if content is None else kind.model_validate_json(content)
    except ValidationError:
        return None


_RESULT = "application/vnd.ml_assets.session-result+json"


def sign_result(result: Path, keys: Keys) -> None:
    """Vouch for a result that was written under our eyes; nothing where there is none."""
    if not result.is_file():
        return
    signature = keys.sign(_RESULT, result.read_bytes())
    if signature is None:
        return
    signed = {"key": signature.key, "value": signature.value}
    write_whole(signature_of(result), canonical_json(signed))


def signed_result(result: Path, keys: Keys) -> bytes | None:
    """A result that counts: with a key, one whose launcher saw it end and signed it; else None.

    Predictions decide over a release. A folder that only looks like a finished session, whoever put
    it there, is no result. Without a key nobody can tell.
    """
    try:
        content, signature = result.read_bytes(), None
        if signature_of(result).exists():
            signed = json.loads(signature_of(result).read_bytes())
            signature = Signature(str(signed["key"]), str(signed["value"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if keys.refusal(_RESULT, content, signature) else content


def signature_of(result: Path) -> Path:
    """Return where the signature of a result lies."""
    return result.with_suffix(".signature.json")
