"""The check of canary_report: one champion gate on the rows that came after the holdout.

As with the gates, the decision is in the ledger before the result is yielded.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, pool
from ml_assets.adapters.resources import StoresResource
from ml_assets.adapters.step import reported
from ml_assets.assets.released_model.checks import gate_numbers
from ml_assets.assets.released_model.gates.decide import decide, passed, summary
from ml_assets.assets.released_model.made_from import require_made_here
from ml_assets.errors import EvidenceError
from ml_assets.extras.canary.canary_report.evidence import (
    CANARY_REPORT,
    canary_evidence,
    canary_gate,
    require_rows,
)
from ml_assets.graph.inputs import require_record
from ml_assets.load_extras import load_extra
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.load_release import provenance_in_force
from ml_assets.records.recalls import recalled_champion
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.records import (
    REPORT_FILE,
    CanaryPeriod,
    Decision,
    EvaluationReport,
    GateResult,
    Measured,
)
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

CHECK = "canary"


def canary(declared: Pipeline) -> dg.AssetChecksDefinition:
    """Return whether the model in canary may go on to production."""
    gate = canary_gate(declared.spec)
    key = asset_key(declared, CANARY_REPORT)

    @dg.multi_asset_check(
        name=f"{declared.name}__canary",
        specs=[
            dg.AssetCheckSpec(
                CHECK,
                asset=key,
                blocking=True,
                description=f"The gate `{gate.name}` on exactly the rows after the holdout.",
            )
        ],
        pool=pool(declared),
    )
    @reported
    def check(
        context: dg.AssetCheckExecutionContext, stores: StoresResource
    ) -> Iterator[dg.AssetCheckResult]:
        report, results = _decided(stores.open(declared), gate, context.run.run_id)
        result = next((one for one in results if not one.passed), results[0])
        yield dg.AssetCheckResult(
            asset_key=key,
            check_name=CHECK,
            passed=result.passed,
            severity=dg.AssetCheckSeverity.ERROR,
            description="; ".join(one.reason for one in results),
            metadata={
                "rows": report.rows,
                "period": " to ".join(report.holdout),
                **gate_numbers(result),
            },
        )

    return check


def _decided(
    pipeline: Pipeline, gate: AgainstChampion, run: str
) -> tuple[EvaluationReport, Sequence[GateResult]]:
    """What the gate says of the canary's report, and what its traffic says of it where it meets
    some, once the ledger has it."""
    base = pipeline.store.resolve("main")
    address = Address(pipeline.name, CANARY_REPORT)
    record = require_record(pipeline.at(base), address)
    report = EvaluationReport.model_validate_json(
        pipeline.store.read_bytes(base, address.file(REPORT_FILE))
    )
    entries = read(pipeline.store, pipeline.name, base)
    evidence = canary_evidence(pipeline.at(base), entries)
    compared = report.champion.champion if report.champion else None
    if evidence.champion not in (None, compared):
        raise EvidenceError(
            f"{pipeline.name}: model {evidence.champion[:12]} came to {pipeline.spec.release.to}"
            " while the canary was compared with another one. Nothing was decided. Ask again:"
            f" ml-assets release promote {pipeline.name}"
        )
    measured = Measured.model_validate(record.attributes["measured"])
    to = pipeline.spec.release.to
    recalled = recalled_champion(pipeline.store, base, pipeline.name, entries, to)
    results = decide([gate], report, measured, champion=evidence.champion, recalled=recalled)
    if pipeline.spec.release.rollout is not None:
        served = load_extra("release.rollout").canary_gate(
            pipeline.at(base), evidence.model, evidence.champion
        )
        results = (*results, served)
    if passed(results):  # what the promotion asks, too: else a pass would lead nowhere
        require_made_here(pipeline.at(require_rows(pipeline.at(base)).model.commit))
    decision = Decision(
        pipeline=pipeline.name,
        evidence=evidence,
        gates=tuple(results),
        passed=passed(results),
        reason=summary(results),
        canary=CanaryPeriod.model_validate(record.attributes["period"]),
        run=run,
        time=datetime.now(UTC),
    )
    made_from = provenance_in_force(pipeline.store, pipeline.name, evidence.model)
    record_decision(pipeline.store, decision, pipeline.spec.owner, made_from)
    return report, results
