"""The promotion gates: asset checks on evaluation_report, in a step of their own.

The decision is in the ledger before any result is yielded: a blocked release never starts, so it
could not write it.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, pool
from ml_assets.adapters.metadata import numbers, report_link
from ml_assets.adapters.resources import StoresResource
from ml_assets.adapters.step import reported
from ml_assets.spec.gates import GateSpec, Latency, Memory, Throughput
from ml_assets.spec.records import GateResult
from ml_assets.store.pipeline_context import Pipeline


def gates(declared: Pipeline) -> dg.AssetChecksDefinition:
    """One blocking check per declared gate."""
    report_key = asset_key(declared, "evaluation_report")

    @dg.multi_asset_check(
        name=f"{declared.name}__gates",
        specs=[
            dg.AssetCheckSpec(
                gate.name, asset=report_key, blocking=True, description=_describe(gate)
            )
            for gate in declared.spec.gates
        ],
        can_subset=False,
        pool=pool(declared),
    )
    @reported
    def check(
        context: dg.AssetCheckExecutionContext,
        stores: StoresResource,
    ) -> Iterator[dg.AssetCheckResult]:
        from ml_assets.assets.released_model.gate_decision import decide_and_record
        from ml_assets.assets.released_model.report_file import publish_report
        from ml_assets.records.ledger.chain import read
        from ml_assets.records.ledger.replay import what_now
        from ml_assets.records.tracking.mlflow import Tracking

        pipeline = stores.open(declared, keeps_objects=True)
        decision = decide_and_record(pipeline, context.run.run_id)
        model, results = decision.evidence.model, decision.gates
        publish_report(pipeline, Tracking.of(pipeline.settings), decision)
        entries, asked = read(pipeline.store, pipeline.name), pipeline.spec
        advice = what_now(entries, asked.release.to, asked.gates, results, pipeline.name)
        for result in results:
            told = result
            if advice is not None and result.name == advice.gate:
                told = result.model_copy(update={"reason": f"{result.reason}; {advice.said}"})
            if any(gate.name == told.name for gate in declared.spec.gates):
                yield _check_result(report_key, told, report_link(pipeline, model))
            else:  # of what was made elsewhere or learned from; the ledger holds a release to it
                log = context.log.info if told.passed else context.log.warning
                log(f"{told.name}: {told.reason}")

    return check


def _check_result(
    key: dg.AssetKey, result: GateResult, links: dict[str, Any]
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=result.name,
        passed=result.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=result.reason,
        metadata={**links, **gate_numbers(result)},
    )


def gate_numbers(result: GateResult) -> dict[str, Any]:
    """Return what was held to what, and the interval of the estimate, as far as a gate has them."""
    found = {"value": result.value, "bound": result.bound}
    if result.interval is not None:
        seen = result.interval
        found |= {"estimate": seen.value, "low": seen.low, "high": seen.high}
    return numbers(found)


def _describe(gate: GateSpec) -> str:
    match gate:
        case (
            Latency(at_most_ms=None, at_most_p99_ms=None)
            | Throughput(at_least_rows_per_second=None)
            | Memory(at_most_mb=None)
        ):
            return "Recorded only: no bound is declared."
        case _:
            return (type(gate).__doc__ or gate.kind).strip().split("\n")[0]
