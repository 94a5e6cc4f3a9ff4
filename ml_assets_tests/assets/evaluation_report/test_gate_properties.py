"""Properties of the decision, over gates and reports of every kind: it never fails open."""

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from ml_assets.assets.released_model.gates.decide import decide, passed
from ml_assets.spec.gates import (
    HIGHER_IS_BETTER,
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
    MetricName,
    Robustness,
    Size,
    Slices,
    Throughput,
)
from ml_assets.spec.records import Difference, Estimate, Interval, Measured
from ml_assets_tests.assets.evaluation_report.test_gate import comparison, only, with_metric

METRICS = MetricName.__args__

numbers = st.floats(-2, 2) | st.sampled_from([math.nan, math.inf, -math.inf])
metric_names = st.sampled_from(METRICS)
gate_specs = st.one_of(
    st.builds(
        Bound,
        kind=st.just("bound"),
        name=st.just("g"),
        metric=metric_names,
        at_least=st.none() | st.floats(-1, 1),
        at_most=st.none() | st.floats(-1, 1),
    ),
    st.builds(
        BeatsBaseline,
        kind=st.just("baseline"),
        name=st.just("g"),
        metric=metric_names,
        baseline=st.sampled_from(["constant", "gone"]),
        margin=st.floats(-1, 1),
    ),
    st.builds(
        AgainstChampion,
        kind=st.just("champion"),
        rule=st.sampled_from(["non_inferior", "superior"]),
        margin=st.floats(0, 1),
        if_not_comparable=st.sampled_from(["refuse", "accept"]),
    ),
    st.builds(
        AgainstChampion,
        kind=st.just("champion"),
        rule=st.sampled_from(["non_inferior", "superior"]),
        metric=metric_names,
        relative=st.booleans(),
    ),
    st.builds(LeakAlarm, kind=st.just("leak_alarm"), metric=metric_names, bound=st.floats(-1, 1)),
    st.builds(Size, kind=st.just("size"), at_most_mb=st.floats(0.01, 10)),
    st.builds(
        Latency,
        kind=st.just("latency"),
        at_most_ms=st.floats(0.01, 10),
        at_most_p99_ms=st.none() | st.floats(0.01, 10),
    ),
    st.builds(Throughput, kind=st.just("throughput"), at_least_rows_per_second=st.floats(0.01, 10)),
    st.builds(Memory, kind=st.just("memory"), at_most_mb=st.floats(0.01, 10)),
    st.builds(
        Slices, kind=st.just("slices"), columns=st.just(("carrier",)), margin=st.floats(0, 1)
    ),
    st.builds(
        Slices,
        kind=st.just("slices"),
        columns=st.just(("carrier",)),
        metric=metric_names,
        at_least=st.floats(-1, 1),
    ),
    st.builds(Gap, kind=st.just("gap"), column=st.just("carrier"), at_most=st.floats(0.01, 1)),
    st.builds(
        Calibrated,
        kind=st.just("calibration"),
        measure=st.sampled_from(["ece", "slope", "intercept"]),
        at_most=st.floats(0.01, 1),
    ),
    st.builds(Robustness, kind=st.just("robustness"), at_most=st.floats(0.01, 1)),
    st.builds(
        DataEvidence, kind=st.just("data_evidence"), warnings=st.sampled_from(["allow", "refuse"])
    ),
    st.builds(HoldoutBudget, kind=st.just("holdout_budget"), at_most=st.integers(1, 5)),
)
PARTS = (Slices, Gap, Calibrated, Robustness)
once = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@once
@given(st.lists(gate_specs, max_size=6), st.data())
def test_whatever_is_taken_away_no_gate_that_needs_it_passes(report, measured, gates, data):
    """A metric absent or not finite, a baseline absent: every gate that reads it fails."""
    spoiled = data.draw(metric_names)
    how = data.draw(st.sampled_from(["absent", math.nan, math.inf, -math.inf]))
    metrics = {name: value for name, value in report.metrics.items() if name != spoiled}
    report = report.model_copy(update={"metrics": metrics})
    if how != "absent":
        report = with_metric(report, spoiled, how)
    results = decide(gates, report, measured)
    assert len(results) == len(gates)
    for gate, result in zip(gates, results, strict=True):
        about_report = not isinstance(gate, AgainstChampion)
        unknown = isinstance(gate, (*PARTS, Memory, DataEvidence, HoldoutBudget))
        if isinstance(gate, Slices) and gate.margin is not None:
            unknown = report.champion is not None  # and nothing was estimated of the slices
        if (
            unknown
            or (about_report and getattr(gate, "metric", None) == spoiled)
            or getattr(gate, "baseline", "") == "gone"
        ):
            assert not result.passed
            assert not passed(results)


@once
@given(gate_specs, numbers, numbers, numbers, numbers)
def test_a_pass_always_has_a_finite_value_on_the_right_side_of_its_bound(
    report, gate, metric, base, latency, high
):
    report = report.model_copy(
        update={
            "metrics": {
                m: Interval.model_construct(value=metric, low=metric, high=metric) for m in METRICS
            },
            "baselines": {"constant": dict.fromkeys(METRICS, base)},
            "champion": comparison(high).model_copy(update={"differences": differences(high)}),
            "estimates": {gate.name: estimated(high)},
        }
    )
    measured = Measured.model_construct(
        latency_ms=latency, rows_per_second=latency, latency_p99_ms=base, memory_mb=latency
    )
    result = only(gate, report, measured)
    if not result.passed:
        return
    assert result.value is not None and math.isfinite(result.value)
    assert result.bound is not None and math.isfinite(result.bound)
    if isinstance(gate, AgainstChampion) and (gate.metric is None or not better_up(gate)):
        assert high < (gate.margin if gate.rule == "non_inferior" else -gate.margin)
    elif isinstance(gate, AgainstChampion):
        assert high > (gate.margin if gate.rule == "superior" else -gate.margin)


def estimated(end):
    """Of two parts, one of them with an interval of no width."""
    flat = Interval.model_construct(value=end, low=end, high=end)
    near = Interval.model_construct(value=0.0, low=0.0, high=0.0)
    return tuple(
        Estimate.model_construct(about="carrier AA", rows=900, interval=one) for one in (flat, near)
    )


def better_up(gate):
    return HIGHER_IS_BETTER[gate.metric]


def differences(end):
    """Of every metric, with intervals of no width."""
    gap = Interval.model_construct(value=end, low=end, high=end)
    difference = Difference.model_construct(absolute=gap, relative=gap)
    return dict.fromkeys(METRICS, difference)


@once
@given(gate_specs, st.floats(0, 1), st.floats(0, 1))
def test_results_are_valid_records_and_the_same_twice(report, measured, gate, value, base):
    report = with_metric(report, "auc", value).model_copy(
        update={"baselines": {"constant": {"auc": base}}}
    )
    first = decide([gate], report, measured)
    assert first == decide([gate], report, measured)
    assert [type(r).model_validate_json(r.model_dump_json()) for r in first] == list(first)


def test_every_kind_of_gate_is_drawn_above():
    """A new kind of gate must join the properties."""
    kinds = {
        ref["properties"]["kind"]["const"]
        for ref in TypeAdapter(GateSpec).json_schema()["$defs"].values()
    }
    assert kinds == {
        "bound",
        "baseline",
        "champion",
        "leak_alarm",
        "size",
        "latency",
        "throughput",
        "memory",
        "slices",
        "gap",
        "calibration",
        "robustness",
        "data_evidence",
        "holdout_budget",
    }
