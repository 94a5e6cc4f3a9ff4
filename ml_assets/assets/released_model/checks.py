"""The promotion gates: asset checks on evaluation_report, in a step of their own.

The decision is in the ledger before any result is yielded: a blocked release never starts, so it
could not write it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from ml_assets.assets.evaluation_report.last_release import read_report
from ml_assets.assets.released_model.asset import current_evidence
from ml_assets.assets.released_model.gate_evidence import gate_results, held_out
from ml_assets.assets.released_model.gates.decide import passed, summary
from ml_assets.assets.released_model.report import publish_report
from ml_assets.graph.metadata import report_link
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.graph.step_failure import reported
from ml_assets.records.ledger.chain import read, record_decision, register
from ml_assets.records.provenance import provenance_of
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.resources.tracking import TrackingResource
from ml_assets.spec.gates import GateSpec, Latency, Memory, Throughput
from ml_assets.spec.records import Decision, GateResult


def gates(graph: PipelineGraph) -> dg.AssetChecksDefinition:
    """One blocking check per declared gate."""
    report_key = graph.key("evaluation_report")

    @dg.multi_asset_check(
        name=f"{graph.name}__gates",
        specs=[
            dg.AssetCheckSpec(
                gate.name, asset=report_key, blocking=True, description=_describe(gate)
            )
            for gate in graph.spec.gates
        ],
        can_subset=False,
        pool=graph.pool(),
    )
    @reported
    def check(
        context: dg.AssetCheckExecutionContext,
        snapshots: SnapshotsResource,
        objects: ObjectsResource,
        tracking: TrackingResource,
    ) -> Iterator[dg.AssetCheckResult]:
        store = snapshots.store()
        base = store.resolve("main")
        evidence = current_evidence(graph, store, base, read(store, graph.name, base))
        results = gate_results(graph, store, base, evidence.champion)
        decision = Decision(
            pipeline=graph.name,
            evidence=evidence,
            gates=results,
            passed=passed(results),
            reason=summary(results),
            run=context.run.run_id,
            time=datetime.now(UTC),
            holdout=held_out(read_report(store, base, graph.name)),
        )
        register(store, graph.name, evidence.model, graph.spec.owner, context.run.run_id)
        provenance = provenance_of(store, base, graph.name, evidence)
        record_decision(store, decision, graph.spec.owner, provenance)
        publish_report(graph, store, objects.store(), tracking.tracking(), decision)
        for result in results:
            yield _check_result(report_key, result, report_link(graph.name, evidence.model))

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


def gate_numbers(result: GateResult) -> dict[str, float]:
    """What was held to what, and the interval of the estimate, as far as a gate has them."""
    found = {"value": result.value, "bound": result.bound}
    if result.interval is not None:
        seen = result.interval
        found |= {"estimate": seen.value, "low": seen.low, "high": seen.high}
    return {name: value for name, value in found.items() if value is not None}


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
