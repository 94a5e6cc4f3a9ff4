"""Decides whether a model may be released, as a pure function of the policy and the evidence.

It fails closed. What is missing, not finite or not understood fails its gate; no gate is no pass.
"""

from collections.abc import Sequence
from typing import assert_never

from ml_assets.assets.released_model.gates import champion as against_champion
from ml_assets.assets.released_model.gates import cost, data_and_holdout, quality
from ml_assets.errors import counted
from ml_assets.spec.base import digest_of
from ml_assets.spec.gates import (
    AgainstChampion,
    BeatsBaseline,
    Bound,
    Calibrated,
    DataEvidence,
    Gap,
    GateSpec,
    HoldoutBudget,
    Latency,
    LeakAlarm,
    Memory,
    ReleaseSpec,
    Robustness,
    Size,
    Slices,
    Throughput,
)
from ml_assets.spec.records import Audited, EvaluationReport, GateResult, Measured
from ml_assets.spec.split import HoldoutUse


def decide(
    gates: Sequence[GateSpec],
    report: EvaluationReport,
    measured: Measured,
    *,
    champion: str | None = None,
    recalled: str | None = None,
    audits: Sequence[Audited] | None = None,
    holdout_use: HoldoutUse | None = None,
) -> tuple[GateResult, ...]:
    """One result for each gate, in the order of the gates; what is not known fails the gate that
    needs it.

    Args:
        champion: digest of the model that holds the stage now, as the ledger has it. Where it is
            given, a report that compares with no model or with another one fails the champion
            gate; without it the report's word is taken.
        recalled: digest of the model that holds the stage now and may not be used, so that there is
            no other champion: a gate against it fails.
        audits: of the tables that the training set was made from.
    """

    def result(gate: GateSpec) -> GateResult:
        match gate:
            case AgainstChampion() | Slices(margin=float()) if recalled:
                return against_champion.while_recalled(gate, recalled)
            case Bound():
                return quality.bound(gate, report)
            case BeatsBaseline():
                return quality.baseline(gate, report)
            case LeakAlarm():
                return quality.leak_alarm(gate, report)
            case AgainstChampion():
                return against_champion.champion(gate, report, champion)
            case Slices():
                return quality.slices(gate, report, champion)
            case Gap():
                return quality.gap(gate, report)
            case Calibrated():
                return quality.calibration(gate, report)
            case Robustness():
                return quality.robustness(gate, report)
            case Size():
                return cost.size(gate, report)
            case Latency():
                return cost.latency(gate, measured)
            case Throughput():
                return cost.throughput(gate, measured)
            case Memory():
                return cost.memory(gate, measured)
            case DataEvidence():
                return data_and_holdout.data_evidence(gate, audits)
            case HoldoutBudget():
                return data_and_holdout.holdout_budget(gate, report, holdout_use)
            case _:
                assert_never(gate)

    return tuple(map(result, gates))


def passed(results: Sequence[GateResult]) -> bool:
    """True where there are gates and all of them passed."""
    return bool(results) and all(result.passed is True for result in results)


def summary(results: Sequence[GateResult]) -> str:
    """The decision in one line; it says why of what failed, and of a gate that is the only one."""
    if not results:
        return "refused: no gate was evaluated"
    failed = [result for result in results if not result.passed]
    if not failed and len(results) > 1:
        return f"all {counted(len(results), 'gate')} passed"
    if not failed:
        return f"the only gate passed: {results[0].name}: {results[0].reason}"
    reasons = "; ".join(f"{result.name}: {result.reason}" for result in failed)
    return f"refused by {len(failed)} of {counted(len(results), 'gate')}: {reasons}"


def policy_digest(gates: Sequence[GateSpec], release: ReleaseSpec) -> str:
    """Digest of everything a decision is made by; a decision under another policy is stale.

    How traffic is shared out decides nothing.
    """
    return digest_of(
        {
            "gates": [gate.model_dump(mode="json") for gate in gates],
            "release": release.model_dump(mode="json", exclude={"rollout"}),
        }
    )
