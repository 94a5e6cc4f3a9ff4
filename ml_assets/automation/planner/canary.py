"""Whether the model in canary can be judged now: its rows are there, and nobody has yet."""

from dataclasses import dataclass

import dagster as dg

from ml_assets.adapters.declared import asset_key
from ml_assets.adapters.runs import Selection
from ml_assets.assets.canary_report.evidence import CANARY_REPORT
from ml_assets.assets.canary_report.rows import Waiting, canary_rows
from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion, decision_line, override_line
from ml_assets.records.recalls import sound_champion
from ml_assets.spec.canonical import digest_of
from ml_assets.spec.stages import CANARY_STAGES
from ml_assets.store.pipeline_context import Pipeline


@dataclass(frozen=True)
class CanaryStep:
    """The canary is to be judged, and moved on if it passes."""

    selection: Selection
    partition: str
    """The last one of its rows."""
    reason: str
    wanted: str
    """Digest of what would be judged: the same until the rows, the policy or the champion move."""


def canary_step(pipeline: Pipeline) -> CanaryStep | str:
    """The step, where it is due; else why not, empty where the pipeline asks for no canary.

    Raises:
        EvidenceError: nobody can tell where the holdout of the model in canary ended.
    """
    if pipeline.spec.release.canary == "none":
        return ""
    base = pipeline.store.resolve("main")
    entries = read(pipeline.store, pipeline.name, base)
    model = champion(entries, "canary")
    if model is None:
        return "no model is in canary"
    rows = canary_rows(pipeline.at(base), model)
    if isinstance(rows, Waiting):
        return rows.reason
    rival = sound_champion(pipeline.store, base, pipeline.name, entries, pipeline.spec.release.to)
    policy = policy_digest(pipeline.spec.gates, pipeline.spec.release)
    line = decision_line(entries, model, canary=True)
    if line and line.decision and not line.decision.passed and not override_line(entries, line):
        was = line.decision.evidence
        if (was.data, was.policy, was.champion) == (rows.digest, policy, rival):
            return f"the model in canary stands refused: {line.decision.reason}"
    return CanaryStep(
        selection=canary_selection(pipeline),
        partition=rows.span[1],
        reason=f"model {model[:12]} is in canary, and its rows are there",
        wanted=digest_of([model, rows.digest, policy, rival, line.seq if line else None]),
    )


def canary_selection(pipeline: Pipeline) -> Selection:
    """The report, its check and the move."""
    assets = tuple(asset_key(pipeline, stage) for stage in CANARY_STAGES)
    return Selection(assets, (dg.AssetCheckKey(asset_key(pipeline, CANARY_REPORT), "canary"),))
