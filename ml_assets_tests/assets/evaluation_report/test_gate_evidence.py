"""Gates on the evidence itself, and on cost: what is not there fails, and it is said what."""

import pytest

from ml_assets.assets.released_model.gates.data_and_holdout import knows_holdout, may_know
from ml_assets.assets.released_model.gates.decide import decide
from ml_assets.spec.gates import (
    AgainstChampion,
    DataEvidence,
    HoldoutBudget,
    Latency,
    Memory,
    Throughput,
)
from ml_assets.spec.records import Ancestor, Audited, Interval, SeedSpread
from ml_assets.spec.split import HoldoutDraw, HoldoutRows, HoldoutUse

GOOD = Audited(key="delays/validated_table/flights", partition="2013-01-07", found=True)
WARNED = GOOD.model_copy(update={"partition": "2013-01-14", "warned": ("carrier_in_set",)})


def only(gate, report, measured, **more):
    (result,) = decide([gate], report, measured, **more)
    return result


def data(**more):
    return DataEvidence(kind="data_evidence", **more)


def test_met_contracts_pass_and_are_counted(report, measured):
    result = only(data(), report, measured, audits=[GOOD, WARNED])
    assert result.passed
    assert result.reason == (
        "2 partitions of 1 table: no contract was broken; 1 of them with warnings, which the policy"
        " allows"
    )


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"found": False}, "has no record of the version that was read"),
        ({"failed": ("id_not_null",)}, "did not meet id_not_null"),
    ],
)
def test_a_table_that_did_not_meet_its_contract_is_named(report, measured, fault, said):
    bad = GOOD.model_copy(update={"partition": "2013-01-21", **fault})
    result = only(data(), report, measured, audits=[GOOD, bad])
    assert not result.passed and result.value == 1
    assert f"delays/validated_table/flights [2013-01-21] {said}" in result.reason


def test_warnings_are_refused_where_the_policy_says_so(report, measured):
    result = only(data(warnings="refuse"), report, measured, audits=[GOOD, WARNED])
    assert not result.passed and "carrier_in_set" in result.reason


@pytest.mark.parametrize("audits", [None, ()])
def test_no_audits_are_no_evidence(report, measured, audits):
    assert not only(data(), report, measured, audits=audits).passed


def held(report):
    return report.model_copy(update={"holdout_rows": "7" * 64})


def budget(at_most):
    return HoldoutBudget(kind="holdout_budget", at_most=at_most)


@pytest.mark.parametrize(("before", "fine"), [(0, True), (2, True), (3, False)])
def test_a_holdout_judges_so_many_models_and_no_more(report, measured, before, fine):
    use = HoldoutUse(models=before, unknown=0)
    result = only(budget(3), held(report), measured, holdout_use=use)
    assert (result.passed, result.value, result.bound) == (fine, before + 1, 3)
    assert f"model number {before + 1} that is judged by rows of this holdout" in result.reason
    assert "2013-11-04 to 2013-11-11" in result.reason


def test_what_is_not_known_of_the_holdout_is_refused_and_of_older_models_said(report, measured):
    use = HoldoutUse(models=0, unknown=2)
    assert not only(budget(9), report, measured, holdout_use=use).passed
    assert not only(budget(9), held(report), measured).passed
    known = only(budget(9), held(report), measured, holdout_use=use)
    assert known.passed and "number 3 that" in known.reason, "as if they were"
    assert "of 2 earlier ones it is not known which rows judged them" in known.reason
    past = only(budget(2), held(report), measured, holdout_use=use)
    assert not past.passed and past.reason.endswith(". Raise the budget and say why")


def test_speed_and_memory_are_recorded_without_a_bound_and_block_with_one(report, measured):
    assert only(Throughput(kind="throughput"), report, measured).passed
    for least, fine in ((100_000.0, True), (300_000.0, False)):
        gate = Throughput(kind="throughput", at_least_rows_per_second=least)
        assert only(gate, report, measured).passed is fine
    full = measured.model_copy(update={"memory_mb": 500.0, "latency_p99_ms": 3.0})
    assert only(Memory(kind="memory"), report, measured).passed
    for most, fine in ((600.0, True), (400.0, False)):
        assert only(Memory(kind="memory", at_most_mb=most), report, full).passed is fine
    for most, fine in ((5.0, True), (2.0, False)):
        gate = Latency(kind="latency", at_most_ms=1.0, at_most_p99_ms=most)
        assert only(gate, report, full).passed is fine
    assert not only(
        Latency(kind="latency", at_most_ms=0.1, at_most_p99_ms=9.0), report, full
    ).passed


@pytest.mark.parametrize(
    "gate", [Memory(kind="memory", at_most_mb=5.0), Latency(kind="latency", at_most_p99_ms=5.0)]
)
def test_what_was_not_measured_does_not_pass_a_bound(report, measured, gate):
    result = only(gate, report, measured)
    assert not result.passed and "was not measured: refused" in result.reason


def spread(models):
    return SeedSpread(
        spec="5" * 64, data="d" * 64, seeds=tuple(range(models)), loss=0.001, metrics={}
    )


def test_a_spread_that_was_asked_for_and_not_measured_is_refused(report, measured):
    gate = AgainstChampion(kind="champion", seeds=3)
    seen = report.champion
    for known, fine in ((None, False), (spread(2), False), (spread(3), True)):
        told = report.model_copy(update={"champion": seen.model_copy(update={"seeds": known})})
        assert only(gate, told, measured).passed is fine


@pytest.mark.parametrize(
    ("low", "high", "fine", "said"),
    [
        (-0.030, -0.001, True, "the 0.01 that is worth a release is within the interval"),
        (-0.008, -0.001, False, "but by less than the 0.01 that is worth a release"),
        (-0.012, 0.001, False, "could not show that the new model is better"),
        (-0.030, 0.002, False, "these rows show 0.023 four times out of five, 0.01 less often"),
    ],
)
def test_superior_shows_an_improvement_that_may_be_the_declared_one(
    report, measured, low, high, fine, said
):
    gate = AgainstChampion(kind="champion", rule="superior", min_effect=0.01)
    gap = Interval(value=(low + high) / 2, low=low, high=high)
    seen = report.champion.model_copy(update={"loss_difference": gap})
    result = only(gate, report.model_copy(update={"champion": seen}), measured)
    assert result.passed is fine
    assert said in result.reason
    assert result.interval == gap


@pytest.mark.parametrize(
    ("theirs", "own", "known"),
    [
        ("2024-02-05", "2024-02-05", False),
        ("2024-02-05", "2024-02-12", False),
        ("2024-02-12", "2024-02-05", True),
        ("", "2024-02-05", True),
        ("2024-02-05", "", True),
        ("", "", False),
    ],
)
def test_whom_a_model_learned_from_may_know_its_holdout(theirs: str, own: str, known: bool) -> None:
    one, other = rows_of(theirs, "0"), rows_of(own, "1")
    assert may_know(one, other) is known
    found = knows_holdout(Ancestor(model="1" * 64, holdout=one), other)
    assert not found.passed and "it learned from model 111111111111, which was" in found.reason


def rows_of(day: str, digest: str, split: str = "5") -> HoldoutRows:
    draw = None if day else HoldoutDraw(split=split * 64, sample=())
    return HoldoutRows(digest=digest * 64, first=day, last=day, draw=draw)


def test_of_two_draws_only_the_same_split_keeps_rows_apart() -> None:
    assert may_know(rows_of("", "0", "5"), rows_of("", "1", "6"))
    assert not may_know(rows_of("", "0", "5"), rows_of("", "0", "6")), "the same rows are held out"
    assert may_know(rows_of("", "0").model_copy(update={"draw": None}), rows_of("", "1"))
