"""Adds canary evidence to a pipeline: two assets, a check, and when they are due."""

from collections.abc import Sequence

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.runs import Selection
from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.automation.jobs import AssetJob
from ml_assets.automation.planner.candidate_runs import CANARY, CandidateRun, candidate_up_to
from ml_assets.errors import EvidenceError, StorageError
from ml_assets.extras.canary.canary_report.asset import canary_report
from ml_assets.extras.canary.canary_report.checks import CHECK, canary
from ml_assets.extras.canary.canary_report.evidence import (
    CANARY_REPORT,
    Waiting,
    canary_rows,
    decided_again,
    require_rows_to_judge_by,
)
from ml_assets.extras.canary.promoted_model.asset import promoted_model
from ml_assets.load_extras import load_extra
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion, decision_line, override_line, stage_line
from ml_assets.records.recalls import sound_champion
from ml_assets.spec.base import digest_of
from ml_assets.spec.records import Decision, GateResult, LedgerEntry
from ml_assets.spec.stages import CANARY_STAGES
from ml_assets.store.pipeline_context import Pipeline, PipelineState


def assets(pipeline: Pipeline) -> Sequence[dg.AssetsDefinition]:
    """The report on the model in canary, and the model that it lets into production."""
    return [canary_report(pipeline), promoted_model(pipeline)]


def checks(pipeline: Pipeline) -> Sequence[dg.AssetChecksDefinition]:
    """The gate that decides on the report."""
    return [canary(pipeline)]


def jobs(_pipeline: Pipeline) -> Sequence[AssetJob]:
    """None of their own: ``automation/jobs.py`` has it."""
    return ()


def sensors(_pipeline: Pipeline) -> Sequence[dg.SensorDefinition]:
    """None of their own: landing and code change ask for it."""
    return ()


def gate_again(
    state: PipelineState, decision: Decision, entries: Sequence[LedgerEntry]
) -> Sequence[GateResult]:
    """What the gate says now of the report behind a decision on a canary; see ``decided_again``."""
    return decided_again(state, decision, entries)


def _served_otherwise(
    state: PipelineState, decision: Decision, model: str, rival: str | None
) -> bool:
    """Whether traffic says something else of a model now than when it was decided on."""
    if state.spec.release.rollout is None:
        return False
    now = load_extra("release.rollout").canary_gate(state, model, rival)
    then = next((one for one in decision.gates if one.name == now.name), None)
    return now.passed != (then is None or then.passed)


def canary_candidate(pipeline: Pipeline) -> CandidateRun | str:
    """The step from canary to production, where the rows to judge it by are there and nobody has;
    else why not, in words.

    ``wanted`` stays the same until the rows, the policy or the champion move.

    Raises:
        EvidenceError: nobody can tell where the holdout of the model in canary ended.
    """
    state, release = pipeline.now(), pipeline.spec.release
    entries = read(pipeline.store, pipeline.name, state.commit)
    model = champion(entries, "canary")
    if model is None:
        there = stage_line(entries, release.to)
        has = f"; {release.to} has model {there.model[:12]}, by line {there.seq}" if there else ""
        return f"no model is in canary{has}"
    rows = canary_rows(state, model)
    if isinstance(rows, Waiting):
        return rows.reason
    rival = sound_champion(pipeline.store, state.commit, pipeline.name, entries, release.to)
    policy = policy_digest(pipeline.spec.gates, release)
    line = decision_line(entries, model, canary=True)
    if line and line.decision and not line.decision.passed and not override_line(entries, line):
        was = line.decision.evidence
        same = (was.data, was.policy, was.champion) == (rows.digest, policy, rival)
        if same and not _served_otherwise(state, line.decision, model, rival):
            return f"the model in canary remains refused: {line.decision.reason}"
    try:
        require_rows_to_judge_by(state, rows)
    except (EvidenceError, StorageError) as error:  # what is recalled is a StorageError, too
        return f"model {model[:12]} stays in canary: {error}"
    check = dg.AssetCheckKey(asset_key(pipeline, CANARY_REPORT), CHECK)
    selection = Selection(tuple(asset_key(pipeline, stage) for stage in CANARY_STAGES), (check,))
    reason = f"model {model[:12]} is in canary, and the rows to judge it have arrived"
    wanted = digest_of([model, rows.digest, policy, rival, line.seq if line else None])
    return candidate_up_to(CANARY, selection, rows.span[1], reason, wanted)
