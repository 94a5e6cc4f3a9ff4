"""Moving a model to a stage: refused unless the newest decision on it is about what is true now.

``verify`` is pure and fails closed; ``release`` writes the line, or decides again when another line
came first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ml_assets.errors import CertificateRefused
from ml_assets.registry.ledger import (
    Appended,
    Declined,
    Head,
    append,
    champion,
    decision_line,
    stage_line,
)
from ml_assets.registry.loading import certificate_of, why_not
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.records import Decision, Evidence, LedgerEntry
from ml_assets.storage.snapshots import SnapshotStore


@dataclass(frozen=True)
class Verified:
    """The newest decision on the model passed, and is about exactly this evidence."""

    decision: Decision
    seq: int
    """The decision's line in the ledger."""


@dataclass(frozen=True)
class Refused:
    """The model goes nowhere, for these reasons."""

    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Released:
    """The model is in the stage now, by this line."""

    entry: LedgerEntry


@dataclass(frozen=True)
class AlreadyReleased:
    """The model was in the stage already, by this line, and its evidence still holds."""

    entry: LedgerEntry


EvidenceNow = Callable[[Sequence[LedgerEntry]], Evidence]


def verify(entries: Sequence[LedgerEntry], evidence: Evidence) -> Verified | Refused:
    """Hold the newest decision on a model to the evidence as it is now.

    Args:
        entries: the ledger of the pipeline, oldest first.
        evidence: what is true now, the champion included.
    """
    line = decision_line(entries, evidence.model)
    if line is None or line.decision is None:
        return Refused(
            (
                f"There is no decision on model {_short(evidence.model)} in the ledger:"
                " run the gates (asset checks of evaluation_report) first.",
            )
        )
    refused = why_not(line)
    stale = _stale(line.decision.evidence, evidence, line.seq)
    reasons = (*stale, refused) if refused else stale
    return Refused(reasons) if reasons else Verified(line.decision, line.seq)


def release(
    store: SnapshotStore,
    pipeline: str,
    evidence_now: EvidenceNow | Evidence,
    release: ReleaseSpec,
    author: str,
    run: str,
) -> Released | AlreadyReleased | Refused:
    """Move a model to ``release.to`` if its evidence holds at the head of the ledger.

    Of two releases at once one gets in; the other is decided again from the new head, where the
    champion has moved. The champion of the evidence is always taken from that head.

    Args:
        evidence_now: the evidence, or how to put it together for the lines of a head.
        author: who answers for it.
        run: the Dagster run id.

    Raises:
        StorageError: the ledger is broken.
    """

    def make(head: Head) -> LedgerEntry | Declined[AlreadyReleased | Refused]:
        found = evidence_now(head.entries) if callable(evidence_now) else evidence_now
        there = champion(head.entries, release.to)
        evidence = found.model_copy(update={"champion": there})
        if there == evidence.model:
            return Declined(_again(store, pipeline, head, evidence, release))
        verified = _certified(store, pipeline, head, verify(head.entries, evidence))
        if isinstance(verified, Refused):
            return Declined(verified)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="stage",
            model=evidence.model,
            stage=release.to,
            replaced=there,
            canary=release.canary,
            author=author,
            reason=f"decision in line {verified.seq}: {verified.decision.reason}",
            run=run,
            time=datetime.now(UTC),
        )

    outcome = append(store, pipeline, make)
    return Released(outcome.entry) if isinstance(outcome, Appended) else outcome.outcome


def _certified(
    store: SnapshotStore, pipeline: str, head: Head, verified: Verified | Refused
) -> Verified | Refused:
    """What is verified needs a certificate of its own, signed by a trusted key."""
    if isinstance(verified, Refused):
        return verified
    try:
        certificate_of(store, pipeline, head.entries[verified.seq - 1])
    except CertificateRefused as error:
        return Refused((str(error),))
    return verified


def _again(
    store: SnapshotStore, pipeline: str, head: Head, evidence: Evidence, release: ReleaseSpec
) -> AlreadyReleased | Refused:
    """The model is in the stage: the champion it was compared with is history, all else counts."""
    decided = decision_line(head.entries, evidence.model)
    if decided and decided.decision:
        was = decided.decision.evidence.champion
        evidence = evidence.model_copy(update={"champion": was})
    verified = _certified(store, pipeline, head, verify(head.entries, evidence))
    line = stage_line(head.entries, release.to)
    if isinstance(verified, Refused) or line is None:
        where = f"(It is in {release.to} already and stays there: nothing was moved.)"
        reasons = verified.reasons if isinstance(verified, Refused) else ()
        return Refused((*reasons, where))
    return AlreadyReleased(line)


_ABOUT = (
    ("model", "the model", "Run the gates again."),
    ("report", "the evaluation report", "Run the gates again."),
    ("data", "the training set", "Evaluate again and run the gates."),
    ("code", "the training code version", "Evaluate again and run the gates."),
    ("policy", "the gate policy", "Run the gates again."),
    (
        "champion",
        "the champion it was compared with",
        "Evaluate again against the champion of now, and run the gates.",
    ),
)
"""Field of the evidence -> what to call it, and what to do where it moved."""


def _stale(was: Evidence, now: Evidence, seq: int) -> tuple[str, ...]:
    return tuple(
        f"The decision (ledger line {seq}) is stale: {what} was"
        f" {_short(getattr(was, field))}, it is {_short(getattr(now, field))} now. {remedy}"
        for field, what, remedy in _ABOUT
        if getattr(was, field) != getattr(now, field)
    )


def _short(value: str | None) -> str:
    return value[:12] if value else "none"
