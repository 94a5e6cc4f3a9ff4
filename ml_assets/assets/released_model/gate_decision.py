"""Decides on a model by its gates: the evidence, the gates' other inputs, the line of the ledger.

The inputs are the champion, the audits, and the uses of the holdout.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count

from ml_assets.assets.evaluation_report.stored_report import read_report
from ml_assets.assets.released_model.gates.data_and_holdout import (
    knows_holdout,
    made_elsewhere,
    may_know,
)
from ml_assets.assets.released_model.gates.decide import decide, passed, policy_digest, summary
from ml_assets.assets.released_model.made_from import provenance_of, require_made_here
from ml_assets.assets.validated_table.audits import audits
from ml_assets.errors import DecidedMeanwhile, EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.records.ledger.chain import read, record_decision, register
from ml_assets.records.ledger.stages import decision_line, holdout_use, registration
from ml_assets.records.load_release import open_files
from ml_assets.records.recalls import recalled_champion, sound_champion
from ml_assets.spec.gates import DataEvidence
from ml_assets.spec.records import (
    Ancestor,
    Audited,
    Decision,
    EvaluationReport,
    Evidence,
    GateResult,
    LedgerEntry,
    Measured,
    StageRecord,
)
from ml_assets.spec.registered import MADE_ELSEWHERE
from ml_assets.spec.split import HoldoutRows
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.snapshots import MAIN


def decide_now(state: PipelineState, run: str) -> Decision:
    """Return what the gates decide on the stored report, by the evidence as it is; not yet written
    down.

    Raises:
        EvidenceError: the report is about another model than the one to release.
        StorageError: there is no report, or the ledger is broken.
    """
    entries = read(state.store, state.name, state.commit)
    evidence = current_evidence(state, entries)
    results = gate_results(state, evidence.champion)
    return Decision(
        pipeline=state.name,
        evidence=evidence,
        gates=results,
        passed=passed(results),
        reason=summary(results),
        run=run,
        time=datetime.now(UTC),
        holdout=held_out(read_report(state)),
        behind=ancestors(entries, require_record(state, state.address("trained_model"))),
    )


_ATTEMPTS = 5
"""Another model is decided on in the same second only by another home with the same store."""


def decide_and_record(pipeline: Pipeline, run: str) -> Decision:
    """Decide by the newest state, write the decision into the ledger, and return it.

    Raises:
        EvidenceError: see ``decide_now``; or other models were decided on at each attempt.
        StorageError: see ``decide_now``.
    """
    attempts = count(1)
    while True:
        state = pipeline.at(pipeline.store.resolve(MAIN))
        decision = decide_now(state, run)
        register(state.store, state.name, decision.evidence.model, state.spec.owner, run)
        made_from = provenance_of(state, decision.evidence)
        try:
            record_decision(state.store, decision, state.spec.owner, made_from, by=state.commit)
        except DecidedMeanwhile:
            if next(attempts) == _ATTEMPTS:
                raise
        else:
            return decision


def gate_results(state: PipelineState, champion: str | None) -> tuple[GateResult, ...]:
    """Return what the declared gates say of the stored report, and more of a model that was made
    elsewhere, or learned from another one.

    Args:
        champion: digest of the model that holds the stage now.

    Raises:
        StorageError: there is no report, or the ledger is broken.
    """
    entries = read(state.store, state.name, state.commit)
    stage = state.spec.release.to
    recalled = recalled_champion(state.store, state.commit, state.name, entries, stage)
    return results_after(entries, state, champion, recalled)


def results_after(
    entries: Sequence[LedgerEntry], state: PipelineState, champion: str | None, recalled: str | None
) -> tuple[GateResult, ...]:
    """Return what they say of the report of a state, where the ledger has these lines.

    Args:
        champion: digest of the model that holds the stage after them.
        recalled: that model, where it may not be used and so is no champion.

    Raises:
        StorageError: there is no report.
    """
    record = require_record(state, state.address("evaluation_report"))
    report = read_report(state)
    rows = held_out(report)
    model = require_record(state, state.address("trained_model"))
    declared = decide(
        state.spec.gates,
        report,
        Measured.model_validate(record.attributes["measured"]),
        champion=champion,
        recalled=recalled,
        audits=_audits(state, record),
        holdout_use=holdout_use(entries, report.model, rows) if rows else None,
    )
    behind = ancestors(entries, model)
    foreign = [one for one in behind if one.holdout is None]
    knowing = [one for one in behind if one.holdout and rows and may_know(one.holdout, rows)]
    more: list[GateResult] = []
    if foreign:
        itself = foreign[0].model == report.model
        more.append(made_elsewhere(foreign[0].model, itself, state.spec.release, champion))
    more += [knows_holdout(knowing[0], rows)] if knowing and rows else []
    return (*declared, *more)


def ancestors(entries: Sequence[LedgerEntry], model: StageRecord) -> tuple[Ancestor, ...]:
    """The models whose weights or answers a model began with, and all behind those; of one that was
    made elsewhere, itself.

    Of those that are asked the same, the one that may know most stands for all. A file of weights
    is none: whoever named it vouches for it.
    """
    found: list[Ancestor] = []
    if model.code_version == MADE_ELSEWHERE:
        there = model.attributes.get("there_to")
        found.append(Ancestor(model=model.data_version, holdout=None, there_to=there))
    for attribute in ("init", "teacher"):
        given = (model.attributes.get(attribute) or {}).get("digest", "")
        line = decision_line(entries, given)
        if line and line.decision:
            found += line.decision.behind
            if all(one.model != given for one in line.decision.behind):
                holdout = None if registration(entries, given) else line.decision.holdout
                found.append(Ancestor(model=given, holdout=holdout))
    found.sort(key=lambda one: (one.there_to or "", one.holdout.first if one.holdout else ""))
    return tuple({_asked_of(one): one for one in found}.values())


def _asked_of(one: Ancestor) -> str:
    """What two have in common that are held to the same question."""
    if one.holdout is None or one.holdout.first:
        return "cut in time" if one.holdout else "made elsewhere"
    return one.holdout.draw.split if one.holdout.draw else one.model


def held_out(report: EvaluationReport) -> HoldoutRows | None:
    """The rows that a report rests on; None where an older version did not write them down."""
    if report.holdout_rows is None:
        return None
    first, last = report.holdout
    draw = report.holdout_draw
    return HoldoutRows(digest=report.holdout_rows, first=first, last=last, draw=draw)


def _audits(state: PipelineState, report: StageRecord) -> tuple[Audited, ...]:
    """The audits of the tables that the report's own training set goes back to, if a gate asks."""
    if not any(isinstance(gate, DataEvidence) for gate in state.spec.gates):
        return ()
    address = Address(state.name, "training_set")
    used = [one.version for one in report.inputs if one.key == address.key]
    data = read_record(state.store, state.commit, address)
    if data is None or used != [data.data_version]:
        return ()
    return audits(state, data)


def current_evidence(state: PipelineState, entries: Sequence[LedgerEntry]) -> Evidence:
    """The evidence as it is now: what a decision must be about to count.

    Raises:
        EvidenceError: the report is about another model than the one to release.
    """
    model = require_record(state, state.address("trained_model"))
    report = require_record(state, state.address("evaluation_report"))
    judged = [i.version for i in report.inputs if i.key == model.key]
    if judged != [model.data_version]:
        raise EvidenceError(
            f"{report.key} is about model {', '.join(v[:12] for v in judged) or 'none'}, but"
            f" {model.key} is {model.data_version[:12]}. Materialize {report.key} and its gates."
        )
    return Evidence(
        model=model.data_version,
        report=report.data_version,
        data=model.attributes["data"]["digest"],
        code=model.code_version,
        policy=policy_digest(state.spec.gates, state.spec.release),
        champion=sound_champion(
            state.store, state.commit, state.name, entries, state.spec.release.to
        ),
    )


def evidence_to_release(
    state: PipelineState,
    entries: Sequence[LedgerEntry],
) -> Evidence:
    """The evidence as it is now, about files that are what was judged.

    Raises:
        StorageError: a file of the model was changed or lost since.
        EvidenceError: see ``current_evidence``; or what is behind it was read elsewhere, or made by
            other code, than spec, code and settings of here say; or the gates changed meanwhile.
    """
    evidence = current_evidence(state, entries)
    provenance_of(state, evidence)
    open_files(state.objects, state.name, evidence.model)
    require_made_here(state)
    return evidence
