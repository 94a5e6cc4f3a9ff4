"""Gates on what a model costs where it runs: bytes, milliseconds, rows per second, memory.

Except for the size, these are measurements: they differ from run to run and are in no digest.
"""

from math import isfinite

from ml_assets.assets.released_model.gates.result import refused, result
from ml_assets.spec.gates import Latency, Memory, Size, Throughput
from ml_assets.spec.records import EvaluationReport, GateResult, Measured


def size(gate: Size, report: EvaluationReport) -> GateResult:
    return _held(gate.name, "size of the model", report.size_bytes / 1e6, "MB", gate.at_most_mb)


def latency(gate: Latency, measured: Measured) -> GateResult:
    """The median is held to its bound, then the slowest in a hundred to its own."""
    what = "median time for one row"
    if gate.at_most_p99_ms is None and gate.at_most_ms is None:
        took = f"{measured.latency_ms:.3g} ms for one row (median); recorded, no bound is declared"
        return result(gate.name, True, measured.latency_ms, None, took)
    found = [
        _held(gate.name, said, value, "ms", limit)
        for said, value, limit in (
            (what, measured.latency_ms, gate.at_most_ms),
            ("time for one row, of 99 in 100", measured.latency_p99_ms, gate.at_most_p99_ms),
        )
        if limit is not None
    ]
    return next((one for one in found if not one.passed), found[0])


def throughput(gate: Throughput, measured: Measured) -> GateResult:
    value, least = measured.rows_per_second, gate.at_least_rows_per_second
    if least is None:
        said = f"{value:,.0f} rows per second; recorded, no bound is declared"
        return result(gate.name, True, value, None, said)
    if not isfinite(value) or value <= 0:
        return refused(gate.name, least, "the rows per second were not measured")
    fine = value >= least
    side = "at least" if fine else "below"
    reason = f"{value:,.0f} rows per second, {side} the {least:,.0f} asked for"
    return result(gate.name, fine, value, least, reason)


def memory(gate: Memory, measured: Measured) -> GateResult:
    value = measured.memory_mb
    if gate.at_most_mb is not None:
        return _held(gate.name, "memory while scoring", value, "MB", gate.at_most_mb)
    said = "it was not measured" if value is None else f"{value:,.0f} MB while scoring"
    return result(gate.name, True, value, None, f"{said}; recorded, no bound is declared")


def _held(name: str, what: str, value: float | None, unit: str, limit: float) -> GateResult:
    if value is None or not isfinite(value) or value <= 0:
        return refused(name, limit, f"the {what} was not measured")
    fine = value <= limit
    side = "within" if fine else "above"
    reason = f"{what}: {value:.3g} {unit}, {side} the limit of {limit:g} {unit}"
    return result(name, fine, value, limit, reason)
