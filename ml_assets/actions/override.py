"""Records an override: a person answers, by name and reason, for a model that the gates refused.

It applies to one decision line; another decision makes it void.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ml_assets.assets.released_model.promote import Refused
from ml_assets.assets.released_model.report_file import write_report
from ml_assets.errors import EvidenceError, MlAssetsError, answered, one_line
from ml_assets.graph.inputs import require_record
from ml_assets.records.ledger.certificate import certificate_path, seal
from ml_assets.records.ledger.chain import Appended, Declined, Head, append, read
from ml_assets.records.ledger.stages import find_model, override_line
from ml_assets.records.load_release import certificate_of
from ml_assets.records.recalls import require_sound_model
from ml_assets.settings import Settings
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets.store.snapshots import MAIN, SnapshotStore


def override_refusal(
    pipeline: str,
    model: str | None,
    author: str,
    reason: str,
    settings: Settings,
    tell: Callable[[str], object],
) -> LedgerEntry:
    """Set a person's word against the newest decision on a model; the report's page turns red.

    Nothing is moved yet.

    Args:
        model: the beginning of its digest; None: the model that was decided on last.
        tell: is told that the line is written, and its page is not.

    Raises:
        EvidenceError: no decision refused it.
        Recalled: the model, or its report, may not be used.
        UnknownModel: the ledger tells of no such model.
        SpecError: there is no such pipeline, or its spec is wrong.
    """
    opened = open_pipeline(pipeline, settings)
    report = require_record(opened.now(), opened.address("evaluation_report"))
    said = override(opened.store, opened.name, model, author, reason)
    if isinstance(said, Refused):
        raise EvidenceError("\n".join(said.reasons))
    if any(i.version == said.entry.model for i in report.inputs):  # else its page is of the past
        try:
            write_report(opened)
        except MlAssetsError as error:
            tell(f"note: line {said.entry.seq} is written; the report's page is not: {error}")
    return said.entry


@dataclass(frozen=True)
class OverrideMade:
    """The refusal counts no more, by this line."""

    entry: LedgerEntry


def override(
    store: SnapshotStore, pipeline: str, model: str | None, author: str, reason: str
) -> OverrideMade | Refused:
    """Set a line against the newest decision on a model; saying it again writes nothing.

    Args:
        model: the beginning of its digest; None: the model that was decided on last.
        author: who answers for it.

    Raises:
        UnknownModel: the ledger tells of no such model.
        CertificateRefused: the decision's certificate does not hold: there is nothing to sign.
        Recalled: the model may not be used.
        StorageError: the ledger is broken.
    """
    if unanswered := answered("An override", author, reason):
        return Refused((unanswered,))
    author, reason = one_line(author), one_line(reason)

    def make(head: Head) -> LedgerEntry | Declined[OverrideMade | Refused]:
        line = _refusal(head, model)
        if isinstance(line, Refused):
            return Declined(line)
        require_sound_model(store, store.resolve(MAIN), pipeline, line.model)
        before = override_line(head.entries, line)
        if before and (before.author, before.reason) == (author, reason):
            return Declined(OverrideMade(before))
        failed = line.decision.gates if line.decision else ()
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="override",
            model=line.model,
            overrides=line.seq,
            gates=tuple(gate.name for gate in failed if not gate.passed),
            author=author,
            reason=reason,
            run="",
            time=datetime.now(UTC),
        )

    def certify(entry: LedgerEntry, line: bytes) -> Mapping[str, bytes]:
        decision = read(store, pipeline)[(entry.overrides or 0) - 1]
        provenance = certificate_of(store, pipeline, decision).provenance
        sealed = seal(store.keys, entry, line, provenance, overridden=decision)
        return {certificate_path(pipeline, entry.seq): sealed}

    outcome = append(store, pipeline, make, certify)
    return OverrideMade(outcome.entry) if isinstance(outcome, Appended) else outcome.outcome


def _refusal(head: Head, model: str | None) -> LedgerEntry | Refused:
    """The newest decision on a model, where it refused it."""
    asked = find_model(head.entries, model) if model is not None else None
    decisions = [e for e in head.entries if e.decision and asked in (None, e.model)]
    if not decisions:
        about = f"model {asked[:12]}" if asked else "any model"
        return Refused((f"There is no decision on {about} in the ledger: nothing to override.",))
    newest = decisions[-1]
    if newest.decision and newest.decision.passed:
        said = f"The newest decision on model {newest.model[:12]} (ledger line {newest.seq})"
        return Refused((f"{said} let it pass: there is nothing to override.",))
    return newest
