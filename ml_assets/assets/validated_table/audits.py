"""Reads how the audits of a training set's exact tables ended, from their records.

Only tables that met their contract are published, so a table's record is the evidence of its audit.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import Field, ValidationError

from ml_assets.assets.validated_table.contract.compiled import Audit
from ml_assets.errors import StorageError
from ml_assets.spec.base import Frozen
from ml_assets.spec.records import Audited, InputVersion, StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import PipelineState

TABLE = "validated_table"
BETWEEN = ("training_set", "feature_set", "derived_table")
"""Stages from a training set back to the tables that were audited."""


class AuditOutcome(Frozen):
    """Holds what the record of a published table says of its audit."""

    expectations: int
    failed: tuple[str, ...] = Field(default=(), strict=False)
    """Critical ones: a table with any of them is not published."""
    warned: tuple[str, ...] = Field(default=(), strict=False)


def audit_outcome(found: Audit) -> AuditOutcome:
    """The names of the expectations that were not met, by severity."""
    broken = [result for result in found.results if not result.passed]
    return AuditOutcome(
        expectations=len(found.results),
        failed=tuple(one.check_name for one in broken if one.severity == "critical"),
        warned=tuple(one.check_name for one in broken if one.severity != "critical"),
    )


def audits(state: PipelineState, training_set: StageRecord) -> tuple[Audited, ...]:
    """One for each audited table that the training set goes back to, by key and partition.

    Each record is read at the commit that its reader read it at and has to be of that version; of
    a commit that house-keeping took, the one of the state counts if it is of the same version.
    """
    found: dict[tuple[str, str, str], Audited] = {}
    seen: set[tuple[str, str | None, str]] = set()
    waiting = list(_upward(training_set.inputs))
    while waiting:
        version = waiting.pop()
        name = (version.key, version.partition, version.version)
        if name in seen:
            continue
        seen.add(name)
        record = _record(state, version)
        if record is None or _stage(version) == TABLE:
            place = (version.key, version.partition or "", version.version)
            found[place] = _audited(version, record)
        else:
            waiting += _upward(record.inputs)
    return tuple(found[place] for place in sorted(found))


def _upward(inputs: Iterable[InputVersion]) -> Iterable[InputVersion]:
    return (one for one in inputs if _stage(one) in (TABLE, *BETWEEN))


def _stage(version: InputVersion) -> str:
    return version.key.split("/")[1] if "/" in version.key else ""


def _record(state: PipelineState, version: InputVersion) -> StageRecord | None:
    """The record of exactly this version; None where it is not there, or cannot be read."""
    address = Address.of(version.key, version.partition)
    for commit in (version.commit, state.commit):
        try:
            record = state.at(commit).record(address) if commit else None
        except StorageError:
            continue
        if record is not None and record.data_version == version.version:
            return record
    return None


def _audited(version: InputVersion, record: StageRecord | None) -> Audited:
    failed: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    if record is not None:
        try:
            outcome = _outcome(record.attributes)
            failed, warned = outcome.failed, outcome.warned
        except ValidationError:
            failed = ("its contract: the record does not say how the audit ended",)
    return Audited(
        key=version.key,
        partition=version.partition,
        found=record is not None,
        failed=failed,
        warned=warned,
    )


def _outcome(attributes: dict[str, Any]) -> AuditOutcome:
    """Records from before have no ``audit``, but the sentences of the expectations not met.

    They were published, so no critical one was among them.
    """
    if "audit" not in attributes and isinstance(attributes.get("warnings"), list):
        return AuditOutcome(expectations=0, warned=tuple(attributes["warnings"]))
    return AuditOutcome.model_validate(attributes.get("audit"))
