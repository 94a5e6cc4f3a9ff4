"""The ledger: one append-only, hash-chained line for each event in the life of a model.

It became known, was decided on, was moved to a stage, a refusal was overridden, it was recalled.
The ledger lives in the snapshot store and is the source of truth; MLflow shows a projection.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import ValidationError

from ml_assets.errors import DecidedMeanwhile, StorageError, one_line
from ml_assets.records.ledger.certificate import certificate_path, seal
from ml_assets.records.ledger.stages import another_since, decision_line
from ml_assets.spec.base import canonical_json
from ml_assets.spec.certificate import Provenance
from ml_assets.spec.recalls import ACTIVE_FILE, ActiveRecalls, recall_file
from ml_assets.spec.records import Decision, LedgerEntry
from ml_assets.spec.registered import Registered
from ml_assets.store.snapshots import (
    MAIN,
    CommitId,
    Conflict,
    Entry,
    PublishResult,
    SnapshotStore,
    Workspace,
)

_LINE = re.compile(r"\d{6,}\.json")
_ATTEMPTS = 100
"""Every lost race means that somebody else's line or recall got in, so this many are no race."""

Refusal = TypeVar("Refusal")
Beside = Callable[[LedgerEntry, bytes], Mapping[str, bytes]]
"""A line and its bytes -> files (path -> content) that are published in the same commit."""


@dataclass(frozen=True)
class Head:
    """The ledger as a new line finds it."""

    entries: tuple[LedgerEntry, ...]
    previous: str | None
    """SHA-256 of the bytes of the newest line; None where there is none."""

    @property
    def seq(self) -> int:
        """The number of the next line."""
        return len(self.entries) + 1


@dataclass(frozen=True)
class Appended:
    """The line is in the ledger."""

    entry: LedgerEntry
    commit: CommitId


@dataclass(frozen=True)
class Declined(Generic[Refusal]):
    """Whoever was to write the line looked at the head and wrote none."""

    outcome: Refusal


def pipelines_with_ledger(store: SnapshotStore, commit: CommitId) -> list[str]:
    """The pipelines on whose models anything was ever decided."""
    return sorted({entry.path.split("/")[1] for entry in store.list(commit, "ledger/")})


def read(
    store: SnapshotStore, pipeline: str, commit: CommitId | None = None
) -> tuple[LedgerEntry, ...]:
    """All lines of a pipeline, oldest first, as of ``commit`` (default: the head of ``main``).

    Raises:
        StorageError: the chain or the numbering is broken; the message names the line.
    """
    return read_head(store, pipeline, commit or store.resolve(MAIN)).entries


def append(
    store: SnapshotStore,
    pipeline: str,
    make: Callable[[Head], LedgerEntry | Declined[Refusal]],
    beside: Beside = lambda _entry, _line: {},
) -> Appended | Declined[Refusal]:
    """Add one line to the head of the ledger, and what belongs beside it.

    ``make`` is asked again with the new head whenever somebody else's line came first: a decision
    takes the next number, a move is decided again or declined. So is a move that a recall came
    before.

    Raises:
        StorageError: the ledger is broken, or the line made does not continue the head.
    """
    for _ in range(_ATTEMPTS):
        base = store.resolve(MAIN)
        head = read_head(store, pipeline, base)
        entry = make(head)
        if isinstance(entry, Declined):
            return entry
        if head.entries and entry.time < (last := head.entries[-1].time):
            entry = entry.model_copy(update={"time": last})  # a clock may go back, a ledger not
        _check_continues(pipeline, head, entry)
        outcome = _publish(store, base, pipeline, entry, beside)
        if not isinstance(outcome, Conflict):
            return Appended(entry, outcome.commit)
    raise StorageError(
        f"No line could be added to the ledger of {pipeline} in {_ATTEMPTS} attempts: other "
        "writers were always first. Run again when fewer runs are active."
    )


def _publish(
    store: SnapshotStore, base: CommitId, pipeline: str, entry: LedgerEntry, beside: Beside
) -> PublishResult:
    line = canonical_json(entry)
    with store.open(base, run_key(pipeline, hashlib.sha256(line).hexdigest())) as workspace:
        workspace.put_bytes(path_of(pipeline, entry.seq), line, if_absent=True)
        if entry.kind == "stage":
            _hold_recalls(store, base, workspace)
        for path, content in beside(entry, line).items():
            workspace.put_bytes(path, content)
        metadata = {"run": entry.run, "model": entry.model}
        workspace.commit(f"ledger {pipeline} {entry.seq}: {entry.kind}", metadata)
        return workspace.publish()


def _hold_recalls(store: SnapshotStore, base: CommitId, workspace: Workspace) -> None:
    """The recalls that hold, and which do, stay as they are: one that came or grew since
    conflicts."""
    if not store.exists(base, ACTIVE_FILE):
        workspace.put_bytes(ACTIVE_FILE, canonical_json(ActiveRecalls(ids=())))
        return
    which = ActiveRecalls.model_validate_json(store.read_bytes(base, ACTIVE_FILE))
    for path in (ACTIVE_FILE, *map(recall_file, which.ids)):
        workspace.hold(path)


def register(
    store: SnapshotStore,
    pipeline: str,
    model: str,
    author: str,
    run: str,
    registered: Registered | None = None,
) -> LedgerEntry:
    """Write down that a model is known, once; else the first line about it.

    Args:
        registered: what is said of a model that was made elsewhere.

    Raises:
        StorageError: the ledger is broken.
    """

    def make(head: Head) -> LedgerEntry | Declined[LedgerEntry]:
        known = next((entry for entry in head.entries if entry.model == model), None)
        if known:
            return Declined(known)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="registration",
            model=model,
            author=author,
            reason=_made_elsewhere(registered) if registered else "its training ended",
            run=run,
            time=datetime.now(UTC),
            registered=registered,
        )

    outcome = append(store, pipeline, make)
    return outcome.entry if isinstance(outcome, Appended) else outcome.outcome


def _made_elsewhere(said: Registered) -> str:
    claims = ", ".join(f"{name} {value:.4g}" for name, value in said.claims.items())
    told = f"version {said.version} from {said.uri}, which claims {claims or 'nothing'}"
    return one_line(f"made elsewhere: {told}")


def record_decision(
    store: SnapshotStore,
    decision: Decision,
    author: str,
    provenance: Provenance | None = None,
    by: CommitId | None = None,
) -> LedgerEntry:
    """Write a decision and its certificate down, once: the newest one on this model is returned if
    it says the same and is certified.

    The same means: on the same evidence, the same gates with the same outcome. What differs from
    one measurement to the next (a latency, the time, the run) does not make it another decision.
    Where there is no champion, and another model has moved since, it is another decision.

    Args:
        provenance: what the model was made from, for the certificate.
        by: the state that it was decided by, if its gates count the decisions before it.

    Raises:
        DecidedMeanwhile: since that state, another model was decided on.
        StorageError: the ledger is broken.
    """
    model = decision.evidence.model
    seen = len([*store.list(by, _folder(decision.pipeline))]) if by else None

    def make(head: Head) -> LedgerEntry | Declined[LedgerEntry]:
        since = () if seen is None else head.entries[seen:]
        if other := next((e.model for e in since if e.decision and e.model != model), ""):
            raise DecidedMeanwhile(
                f"{decision.pipeline}: model {other[:12]} was decided on while the gates looked at"
                f" {model[:12]}, and they count the models before. Nothing was decided. Run again."
            )
        newest = decision_line(head.entries, model, canary=decision.canary is not None)
        if newest and _is_repeated(head.entries, newest, decision):
            certificate = certificate_path(decision.pipeline, newest.seq)
            if store.exists(store.resolve(MAIN), certificate):
                return Declined(newest)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="decision",
            model=model,
            decision=decision,
            author=author,
            reason=decision.reason,
            run=decision.run,
            time=decision.time,
        )

    def certify(entry: LedgerEntry, line: bytes) -> Mapping[str, bytes]:
        path = certificate_path(decision.pipeline, entry.seq)
        return {path: seal(store.keys, entry, line, provenance)}

    outcome = append(store, decision.pipeline, make, certify)
    return outcome.entry if isinstance(outcome, Appended) else outcome.outcome


def run_key(pipeline: str, digest: str) -> str:
    """The key of the work that publishes a line, from the SHA-256 of its bytes."""
    return f"ledger-{pipeline}-{digest}"


def path_of(pipeline: str, seq: int) -> str:
    """Return where a line lies in the snapshot store."""
    return f"{_folder(pipeline)}{seq:06d}.json"


def read_head(store: SnapshotStore, pipeline: str, commit: CommitId) -> Head:
    """The lines as of a commit, verified, and what the next one continues.

    Raises:
        StorageError: the chain or the numbering is broken; the message names the line.
    """
    head = Head((), None)
    for found in _in_order(store.list(commit, _folder(pipeline))):
        if found.path != path_of(pipeline, head.seq):
            raise StorageError(
                f"The ledger of {pipeline} is broken at commit {commit[:12]}: line {head.seq}"
                f" ({path_of(pipeline, head.seq)}) is expected, {found.path} is found. {_REMEDY}"
            )
        data = store.read_bytes(commit, found.path)
        entry = _parse(data, found.path, commit)
        _check_continues(pipeline, head, entry, f"{found.path} at commit {commit[:12]}")
        head = Head((*head.entries, entry), hashlib.sha256(data).hexdigest())
    return head


_REMEDY = (
    "Lines are only ever added, never changed or removed: look at the log of the snapshot store"
    " for the commit that touched it, and revert that commit."
)


def _folder(pipeline: str) -> str:
    return f"ledger/{pipeline}/"


def _in_order(entries: Sequence[Entry]) -> list[Entry]:
    def number(entry: Entry) -> int:
        name = entry.path.rsplit("/", 1)[1]
        if not _LINE.fullmatch(name):
            raise StorageError(f"{entry.path} is not a line of a ledger. {_REMEDY}")
        return int(name.removesuffix(".json"))

    return sorted(entries, key=number)


def _parse(data: bytes, path: str, commit: CommitId) -> LedgerEntry:
    try:
        return LedgerEntry.model_validate_json(data)
    except ValidationError as error:
        raise StorageError(
            f"The ledger line {path} at commit {commit[:12]} cannot be read: {error}. {_REMEDY}"
        ) from error


def _check_continues(pipeline: str, head: Head, entry: LedgerEntry, where: str = "") -> None:
    decision = entry.decision
    faults = (
        (entry.seq != head.seq, f"it has the number {entry.seq}, {head.seq} is next"),
        (
            entry.previous != head.previous,
            f"it follows {_short(entry.previous)}, the line before is {_short(head.previous)}",
        ),
        ((entry.kind == "decision") != (decision is not None), "a decision line has a decision"),
        ((entry.kind == "stage") != (entry.stage is not None), "a stage line has a stage"),
        (
            (entry.kind == "override") != (entry.overrides is not None),
            "an override line names the decision line that it overrides",
        ),
        (entry.because is not None and entry.kind != "stage", "only a move is a rollback"),
        (
            decision is not None and decision.evidence.model != entry.model,
            "its decision is about another model",
        ),
        (
            decision is not None and decision.pipeline != pipeline,
            "its decision is about another pipeline",
        ),
    )
    broken = [said for wrong, said in faults if wrong]
    if broken:
        raise StorageError(
            f"The ledger of {pipeline} is broken at {where or f'the new line {head.seq}'}:"
            f" {'; '.join(broken)}. {_REMEDY}"
        )


def _is_repeated(entries: Sequence[LedgerEntry], line: LedgerEntry, decision: Decision) -> bool:
    if line.decision is None or not _says_the_same(line.decision, decision):
        return False
    return decision.evidence.champion is not None or another_since(entries, line) is None


def _says_the_same(old: Decision, new: Decision) -> bool:
    def outcome(decision: Decision) -> tuple[object, ...]:
        gates = [(gate.name, gate.passed, gate.bound) for gate in decision.gates]
        return decision.evidence, decision.canary, gates, decision.passed

    return outcome(old) == outcome(new)


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "nothing"
