"""Moves a model to a stage, unless the newest decision on it no longer matches the evidence.

``verify`` is pure and fails closed; ``release`` and ``promote`` write the line, or decide again if
another line came first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ml_assets.assets.released_model.tags import append_move
from ml_assets.errors import CertificateRefused, Recalled
from ml_assets.records.ledger.chain import Appended, Declined, Head
from ml_assets.records.ledger.stages import (
    another_since,
    decision_line,
    override_line,
    put_out_line,
    stage_line,
    stages,
)
from ml_assets.records.load_release import certificate_of, why_not
from ml_assets.records.recalls import require_sound_model, sound_champion
from ml_assets.spec.gates import ReleaseSpec, Target
from ml_assets.spec.records import Decision, Evidence, LedgerEntry
from ml_assets.store.snapshots import MAIN, SnapshotStore


@dataclass(frozen=True)
class Verified:
    """The newest decision on the model is about exactly this evidence, and it passed or a person
    overrides exactly this one."""

    decision: Decision
    seq: int
    """The decision's line in the ledger."""
    override: LedgerEntry | None = None

    @property
    def line(self) -> int:
        """The line that lets the model through."""
        return self.override.seq if self.override else self.seq

    @property
    def reason(self) -> str:
        if self.override:
            return (
                f"override by {self.override.author} in line {self.override.seq}:"
                f" {self.override.reason}"
            )
        return f"decision in line {self.seq}: {self.decision.reason}"


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


def verify(
    entries: Sequence[LedgerEntry],
    evidence: Evidence,
    to: Target | None = None,
    *,
    canary: bool = False,
) -> Verified | Refused:
    """Hold the newest decision on a model to the evidence as it is now.

    Args:
        entries: the ledger of the pipeline, oldest first.
        evidence: what is true now, the champion included.
        to: the stage of the champion, where the model is about to move.
        canary: the decision on it as a canary, not that of its gates.
    """
    line = decision_line(entries, evidence.model, canary=canary)
    if line is None or line.decision is None:
        what, where = ("decision on", "the gates (asset checks of evaluation_report)")
        if canary:
            what, where = (
                "canary decision on",
                "the check of canary_report (ml-assets release promote)",
            )
        said = (
            f"There is no {what} model {_short(evidence.model)} in the ledger: run {where} first."
        )
        return Refused((said,))
    override = override_line(entries, line)
    refused = why_not(line)
    reasons = (
        *_put_out(entries, evidence.model),
        *_stale(line.decision.evidence, evidence, line.seq),
        *(_champion_since(entries, line, to) if to else ()),
        *((refused,) if refused and not override else ()),
    )
    if reasons:
        return Refused(reasons)
    return Verified(line.decision, line.seq, override if refused else None)


def release(
    store: SnapshotStore,
    pipeline: str,
    evidence_now: EvidenceNow | Evidence,
    release: ReleaseSpec,
    author: str,
    run: str,
) -> Released | AlreadyReleased | Refused:
    """Move a model to ``release.entrance`` if its evidence holds at the head of the ledger.

    Of two releases at once one gets in; the other is decided again from the new head, where the
    champion has moved. The champion of the evidence is always taken from that head. ``append_move``
    writes the line, and calls ``make`` for it at each head.

    Args:
        evidence_now: the evidence, or how to put it together for the lines of a head.
        author: who answers for it.
        run: the Dagster run id.

    Raises:
        StorageError: the ledger is broken.
    """

    def make(head: Head) -> LedgerEntry | Declined[AlreadyReleased | Refused]:
        found = evidence_now(head.entries) if callable(evidence_now) else evidence_now
        there = stages(head.entries)
        rival = sound_champion(store, store.resolve(MAIN), pipeline, head.entries, release.to)
        evidence = found.model_copy(update={"champion": rival})
        for stage in (release.to, release.entrance):
            if there.get(stage) == evidence.model:
                return Declined(_again(store, pipeline, head, evidence, stage))
        verified = verify(head.entries, evidence, release.to)
        if release.canary == "none":
            verified = _refused_as_canary(pipeline, head.entries, evidence.model) or verified
        verified = certified(store, pipeline, head, verified)
        if isinstance(verified, Refused):
            return Declined(verified)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="stage",
            model=evidence.model,
            stage=release.entrance,
            replaced=there.get(release.entrance),
            canary="none" if release.canary == "none" else None,
            decided_by=verified.line,
            author=author,
            reason=verified.reason,
            run=run,
            time=datetime.now(UTC),
        )

    outcome = append_move(store, pipeline, make)
    return Released(outcome.entry) if isinstance(outcome, Appended) else outcome.outcome


def promote(
    store: SnapshotStore,
    pipeline: str,
    evidence_now: EvidenceNow,
    release: ReleaseSpec,
    author: str,
    run: str,
) -> Released | Refused:
    """Move the model in canary to ``release.to`` if its canary evidence holds at the head.

    Its gates have led it to canary; that decision has to stand, too, under the policy of now.

    Raises:
        StorageError: the ledger is broken.
    """

    def make(head: Head) -> LedgerEntry | Declined[Refused]:
        there = stages(head.entries)
        evidence = evidence_now(head.entries)
        rival = sound_champion(store, store.resolve(MAIN), pipeline, head.entries, release.to)
        evidence = evidence.model_copy(update={"champion": rival})
        if there.get("canary") != evidence.model:
            said = f"Model {_short(evidence.model)} is not in canary: {_short(there.get('canary'))}"
            return Declined(Refused((f"{said} is. Ask again.",)))
        by_gates = certified(store, pipeline, head, _gates_stand(head.entries, evidence))
        if isinstance(by_gates, Refused):
            return Declined(by_gates)
        verified = verify(head.entries, evidence, release.to, canary=True)
        verified = certified(store, pipeline, head, verified)
        if isinstance(verified, Refused):
            return Declined(verified)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="stage",
            model=evidence.model,
            stage=release.to,
            replaced=there.get(release.to),
            decided_by=verified.line,
            author=author,
            reason=f"as canary: {verified.reason}",
            run=run,
            time=datetime.now(UTC),
        )

    outcome = append_move(store, pipeline, make)
    return Released(outcome.entry) if isinstance(outcome, Appended) else outcome.outcome


def certified(
    store: SnapshotStore, pipeline: str, head: Head, verified: Verified | Refused
) -> Verified | Refused:
    """Refuse what is verified unless its decision, and an override of it, have certificates signed
    by trusted keys, and no recall reached the model."""
    if isinstance(verified, Refused):
        return verified
    try:
        model = verified.decision.evidence.model
        require_sound_model(store, store.resolve(MAIN), pipeline, model)
        certificate_of(store, pipeline, head.entries[verified.seq - 1])
        if verified.override:
            certificate_of(store, pipeline, verified.override)
    except (CertificateRefused, Recalled) as error:
        return Refused((str(error),))
    return verified


def _refused_as_canary(pipeline: str, entries: Sequence[LedgerEntry], model: str) -> Refused | None:
    """A model that later rows refused is let in by no spec that asks for no canary any more."""
    line = decision_line(entries, model, canary=True)
    if line is None or not why_not(line) or override_line(entries, line):
        return None
    return Refused(
        (
            f"Model {_short(model)} was refused as canary (ledger line {line.seq}: {line.reason})."
            " That the spec asks for no canary now lets it through no gate. A person may answer for"
            f" it: ml-assets release override {pipeline} {_short(model)} --author NAME"
            " --reason WHY",
        )
    )


def _gates_stand(entries: Sequence[LedgerEntry], canary: Evidence) -> Verified | Refused:
    """Whether the gates' own decision lets a canary pass still; the champion of then is past.

    Its report, data and code are those of then as well: they are in the decision.
    """
    line = decision_line(entries, canary.model)
    if line is None or line.decision is None:
        return Refused(
            (f"No gates decided on model {_short(canary.model)}: there is no evidence for it.",)
        )
    now = line.decision.evidence.model_copy(update={"policy": canary.policy})
    return verify(entries, now)


def _again(
    store: SnapshotStore, pipeline: str, head: Head, evidence: Evidence, stage: Target
) -> AlreadyReleased | Refused:
    """The model is in the stage: the champion it was compared with is history, all else counts."""
    decided = decision_line(head.entries, evidence.model)
    if decided and decided.decision:
        was = decided.decision.evidence.champion
        evidence = evidence.model_copy(update={"champion": was})
    verified = certified(store, pipeline, head, verify(head.entries, evidence))
    line = stage_line(head.entries, stage)
    if isinstance(verified, Refused) or line is None:
        where = f"(It is in {stage} already and stays there: nothing was moved.)"
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
        "Evaluate again against the current champion, and run the gates.",
    ),
)
"""Field of the evidence -> what to call it, and what to do where it moved."""


def _put_out(entries: Sequence[LedgerEntry], model: str) -> tuple[str, ...]:
    line = put_out_line(entries, model)
    if line is None:
        return ()
    if line.kind == "abort":
        return (
            f"This model was taken out of its stage (ledger line {line.seq}: {line.reason}). It "
            "cannot come back: another model has to take its place.",
        )
    return (
        f"{line.author} rolled back from this model to {_short(line.model)} (ledger line"
        f" {line.seq}: {line.reason}). Only a person puts it back: ml-assets release rollback --to"
        f" {_short(model)}",
    )


def _stale(was: Evidence, now: Evidence, seq: int) -> tuple[str, ...]:
    return tuple(
        f"The decision (ledger line {seq}) is stale: {what} was"
        f" {_short(getattr(was, field))}, it is {_short(getattr(now, field))} now. {remedy}"
        for field, what, remedy in _ABOUT
        if getattr(was, field) != getattr(now, field)
    )


def _champion_since(
    entries: Sequence[LedgerEntry], line: LedgerEntry, to: Target
) -> tuple[str, ...]:
    """Why a decision by no champion is old: another model became champion since, and is recalled
    now."""
    move = another_since(entries, line, to)
    if line.decision is None or line.decision.evidence.champion is not None or move is None:
        return ()
    return (
        f"The decision (ledger line {line.seq}) is stale: it compared the model with no champion, "
        f"and line {move.seq} has moved {_short(move.model)} to {to} since. Run the gates again.",
    )


def _short(value: str | None) -> str:
    return value[:12] if value else "none"
