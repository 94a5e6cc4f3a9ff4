"""Gates on the basis of the judgement: the data's audits, and how fresh the holdout is."""

from collections.abc import Sequence

from ml_assets.assets.released_model.gates.result import refused, result
from ml_assets.errors import counted
from ml_assets.spec.gates import DataEvidence, HoldoutBudget, ReleaseSpec
from ml_assets.spec.records import Ancestor, Audited, EvaluationReport, GateResult
from ml_assets.spec.split import HoldoutRows, HoldoutUse

_NAMED = 3
"""Most tables that a sentence names."""


def data_evidence(gate: DataEvidence, audits: Sequence[Audited] | None) -> GateResult:
    """Every table that the training set was made from met its contract."""
    if not audits:
        return refused(gate.name, 0, "no audit of the tables that it was trained on was found")
    faults = [_fault(one, gate.warnings == "refuse") for one in audits]
    broken = [fault for fault in faults if fault]
    if not broken:
        warned = sum(bool(one.warned) for one in audits)
        beside = f"; {warned} of them with warnings, which the policy allows" if warned else ""
        tables = counted(len({one.key for one in audits}), "table")
        said = f"{counted(len(audits), 'partition')} of {tables}: no contract was broken{beside}"
        return result(gate.name, True, 0, 0, said)
    more = f"; and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
    reason = f"{len(broken)} of {counted(len(audits), 'partition')}: {'; '.join(broken[:_NAMED])}"
    reason += more
    return result(gate.name, False, len(broken), 0, reason)


def _fault(one: Audited, refuse_warnings: bool) -> str:
    table = f"{one.key} [{one.partition}]" if one.partition else one.key
    if not one.found:
        return f"{table} has no record of the version that was read"
    if one.failed:
        return f"{table} did not meet {', '.join(one.failed)}"
    if refuse_warnings and one.warned:
        return f"{table} was published with warnings: {', '.join(one.warned)}"
    return ""


def holdout_budget(
    gate: HoldoutBudget, report: EvaluationReport, use: HoldoutUse | None
) -> GateResult:
    """Refuse a model where too many were judged by the rows of one holdout before."""
    if report.holdout_rows is None:
        return refused(gate.name, gate.at_most, "the report does not say which rows it held out")
    if use is None:
        return refused(gate.name, gate.at_most, "the uses of this holdout were not counted")
    number = use.models + use.unknown + 1
    fine = number <= gate.at_most
    first, last = report.holdout
    span = f" ({first} to {last})" if first else ""
    unknown = f"; of {use.unknown} earlier ones it is not known which rows judged them"
    said = "within" if fine else "past"
    reason = (
        f"this is model number {number} that is judged by rows of this holdout{span}, {said} the"
        f" budget of {gate.at_most}{unknown if use.unknown else ''}"
    )
    if not fine:
        fresh = "Hold out rows that came since, or raise" if first and not use.unknown else "Raise"
        reason += f". {fresh} the budget and say why"
    return result(gate.name, fine, number, gate.at_most, reason)


def made_elsewhere(
    model: str, itself: bool, release: ReleaseSpec, champion: str | None
) -> GateResult:
    """Return what is asked of a model that was made elsewhere, or learned from such a one: it may
    know the holdout, so rows that come later have to speak for it, or a person.

    Args:
        model: the one that was made elsewhere.
        itself: it is the judged one, which otherwise learned from it.
        champion: the model in production: without one, later rows compare with nothing.
    """
    fine = release.canary != "none" and champion is not None
    remedy = (
        "release a model that was trained here first"
        if release.canary != "none"
        else "ask for evidence from later rows (release.canary)"
    )
    if not itself:
        remedy = f"train without training.init_from and distill, {remedy}"
    learned = "" if itself else "it learned from a model that was made elsewhere, and "
    reason = f"{learned}it is not known which rows model {model[:12]} was trained on: " + (
        "it goes to canary, and rows that arrived after its training decide there"
        if fine
        else f"the holdout may be among them. Either {remedy}, or take responsibility: ml-assets"
        " release override"
    )
    return result("made_elsewhere", fine, None, None, reason)


def may_know(theirs: HoldoutRows, rows: HoldoutRows) -> bool:
    """Return whether a model that was judged by its own holdout may be trained on rows of another.

    Of two that are cut in time, the earlier one may be. Of two that were drawn, it may be unless
    their split is the same. One of each kind says nothing of the other.
    """
    if theirs.digest == rows.digest:
        return False
    if theirs.first and rows.first:
        return rows.first < theirs.first
    return theirs.draw is None or rows.draw is None or theirs.draw.split != rows.draw.split


def knows_holdout(ancestor: Ancestor, rows: HoldoutRows) -> GateResult:
    """Refuse a model that learned from one which may have been trained on rows of its holdout.

    Args:
        rows: the holdout of the refused model.
    """
    theirs = ancestor.holdout
    told = (
        f"trained on rows up to {theirs.first}: the holdout begins at {rows.first}, so rows of it"
        " are among them. Train as of a later partition,"
        if theirs and theirs.first and rows.first
        else "judged by another holdout, and may know rows of this one: only a random split and one"
        " by time keep rows apart while data grows. Train by the split that it had,"
    )
    reason = (
        f"it learned from model {ancestor.model[:12]}, which was {told} or without"
        " training.init_from and distill"
    )
    return result("learned_from", False, None, None, reason)
