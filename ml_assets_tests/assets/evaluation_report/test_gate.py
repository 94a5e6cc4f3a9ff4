"""The decision fails closed: nothing that is missing, odd or unknown ever passes a gate."""

import pytest

from ml_assets.assets.released_model.gates.champion import NO_CHAMPION
from ml_assets.assets.released_model.gates.decide import decide, passed, policy_digest, summary
from ml_assets.spec.gates import (
    AgainstChampion,
    BeatsBaseline,
    Bound,
    Latency,
    LeakAlarm,
    ReleaseSpec,
    Size,
    Slices,
)
from ml_assets.spec.records import ChampionComparison, Difference, Interval

CHAMPION = "c4" * 32


def only(gate, report, measured, **options):
    (result,) = decide([gate], report, measured, **options)
    assert result.name == gate.name
    assert result.reason
    return result


def with_metric(report, name, value):
    found = Interval.model_construct(value=value, low=value, high=value)
    return report.model_copy(update={"metrics": {**report.metrics, name: found}})


def comparison(high, *, comparable=True, champion=CHAMPION, difference=True):
    return ChampionComparison.model_construct(
        champion=champion,
        comparable=comparable,
        reason="" if comparable else "column 'wind' is gone",
        loss="log-loss",
        loss_difference=Interval.model_construct(value=high - 0.001, low=high - 0.002, high=high)
        if difference
        else None,
        metrics={},
        differences={},
    )


def test_a_good_report_passes_every_gate_and_says_so_in_order(spec, report, measured):
    results = decide(spec.gates, report, measured)
    assert [r.name for r in results] == [g.name for g in spec.gates]
    assert passed(results)
    assert summary(results) == "all 6 gates passed"


def test_one_failed_gate_refuses_and_is_named_with_its_numbers(spec, report, measured):
    results = decide(spec.gates, with_metric(report, "auc", 0.65), measured)
    assert not passed(results)
    assert summary(results).startswith("refused by 1 of 6 gates: auc_floor: auc is 0.6500")


def test_one_gate_is_not_gates(spec, report, measured):
    floor = [gate for gate in spec.gates if gate.name == "auc_floor"]
    said = summary(decide(floor, report, measured))
    assert said.startswith("the only gate passed: auc_floor: auc is ")
    refused = summary(decide(floor, with_metric(report, "auc", 0.65), measured))
    assert refused.startswith("refused by 1 of 1 gate: auc_floor")


def test_no_gate_is_no_pass(report, measured):
    assert not passed(decide([], report, measured))
    assert "no gate" in summary([])


@pytest.mark.parametrize(
    ("low", "high", "value", "fine", "bound"),
    [
        (0.7, None, 0.7, True, 0.7),
        (0.7, None, 0.69999, False, 0.7),
        (None, 0.5, 0.5, True, 0.5),
        (None, 0.5, 0.50001, False, 0.5),
        (0.4, 0.5, 0.45, True, 0.4),
        (0.4, 0.5, 0.6, False, 0.5),
        (None, None, 0.6, False, None),
    ],
)
def test_a_bound_holds_at_its_edge(report, measured, low, high, value, fine, bound):
    gate = Bound(kind="bound", name="b", metric="auc", at_least=low, at_most=high)
    result = only(gate, with_metric(report, "auc", value), measured)
    assert (result.passed, result.value, result.bound) == (fine, value, bound)


@pytest.mark.parametrize(
    ("metric", "value", "base", "margin", "fine"),
    [
        ("auc", 0.70, 0.62, 0.07, True),
        ("auc", 0.68, 0.62, 0.07, False),
        ("auc", 0.725, 0.73, -0.01, True),
        ("auc", 0.715, 0.73, -0.01, False),
        ("log_loss", 0.50, 0.55, 0.0, True),
        ("log_loss", 0.55, 0.55, 0.0, False),
        ("log_loss", 0.52, 0.55, 0.05, False),
        ("log_loss", 0.56, 0.55, -0.02, True),
    ],
)
def test_a_margin_is_in_the_better_direction_of_the_metric(
    report, measured, metric, value, base, margin, fine
):
    gate = BeatsBaseline(kind="baseline", name="g", metric=metric, baseline="b", margin=margin)
    report = with_metric(report, metric, value).model_copy(
        update={"baselines": {"b": {metric: base}}}
    )
    assert only(gate, report, measured).passed is fine


def test_a_baseline_that_was_not_scored_fails(report, measured):
    gate = BeatsBaseline(kind="baseline", name="g", metric="auc", baseline="gone")
    result = only(gate, report, measured)
    assert not result.passed
    assert "no auc of baseline gone" in result.reason


@pytest.mark.parametrize(("value", "fine"), [(0.73, True), (0.72, False), (0.71, False)])
def test_a_declared_number_is_a_bound_and_its_source_is_told(report, measured, value, fine):
    report = with_metric(report, "auc", value).model_copy(
        update={"baselines": {"human": {"auc": 0.72}}, "sources": {"human": "two planners, May"}}
    )
    gate = BeatsBaseline(kind="baseline", name="g", metric="auc", baseline="human")
    result = only(gate, report, measured)
    assert (result.passed, result.bound) == (fine, 0.72)
    assert result.reason.endswith("0.7200 of human, declared: two planners, May")


def test_without_a_champion_the_gate_passes_and_says_why(report, measured):
    result = only(
        AgainstChampion(kind="champion"), report.model_copy(update={"champion": None}), measured
    )
    assert (result.passed, result.reason) == (True, NO_CHAMPION)


@pytest.mark.parametrize("seen", [None, comparison(-1.0)])
def test_while_the_champion_is_recalled_nothing_is_shown_against_it(report, measured, seen):
    """Whatever the report says: before, it was "no champion yet", and whatever came next passed."""
    gates = (
        AgainstChampion(kind="champion"),
        Slices(kind="slices", columns=("origin",), margin=0.1),
        AgainstChampion(kind="champion", name="other", if_not_comparable="accept"),
    )
    told = report.model_copy(update={"champion": seen})
    for found in decide(gates, told, measured, recalled="c4" * 32):
        assert not found.passed
        assert "c4c4c4c4c4c4 is recalled, so no model is compared with it" in found.reason


@pytest.mark.parametrize(
    ("rule", "high", "fine"),
    [
        ("non_inferior", 0.0049, True),
        ("non_inferior", 0.005, False),
        ("superior", -0.0051, True),
        ("superior", -0.005, False),
        ("superior", 0.001, False),
    ],
)
def test_the_end_of_the_interval_decides_against_the_champion(report, measured, rule, high, fine):
    gate = AgainstChampion(kind="champion", rule=rule, margin=0.005)
    result = only(gate, report.model_copy(update={"champion": comparison(high)}), measured)
    assert (result.passed, result.value) == (fine, high)


def differing(metric, low, high, *, share=True):
    """A champion comparison with one metric; absolute differences are a tenth of the relative."""

    def gap(scale):
        middle = (low + high) / 2
        return Interval(value=middle * scale, low=low * scale, high=high * scale)

    difference = Difference(absolute=gap(0.1), relative=gap(1.0) if share else None)
    return comparison(9.0).model_copy(update={"differences": {metric: difference}})


@pytest.mark.parametrize(
    ("metric", "rule", "low", "high", "fine"),
    [
        ("ndcg", "superior", 0.0051, 0.02, True),
        ("ndcg", "superior", 0.005, 0.02, False),
        ("ndcg", "superior", -0.03, 0.02, False),
        ("ndcg", "non_inferior", -0.0049, 0.02, True),
        ("ndcg", "non_inferior", -0.005, 0.02, False),
        ("rmse", "superior", -0.02, -0.0051, True),
        ("rmse", "superior", -0.02, -0.005, False),
        ("rmse", "non_inferior", -0.02, 0.0049, True),
        ("rmse", "non_inferior", -0.02, 0.005, False),
    ],
)
def test_a_metric_against_the_champion_is_held_to_the_worse_end_of_its_share(
    report, measured, metric, rule, low, high, fine
):
    gate = AgainstChampion(kind="champion", rule=rule, metric=metric, margin=0.005, relative=True)
    seen = report.model_copy(update={"champion": differing(metric, low, high)})
    result = only(gate, seen, measured)
    assert result.passed is fine
    assert result.value == (low if metric == "ndcg" else high)
    absolute = gate.model_copy(update={"relative": False, "margin": 0.0005})
    assert only(absolute, seen, measured).passed is fine


def test_the_reason_gives_the_share_its_interval_and_the_claim(report, measured):
    gate = AgainstChampion(
        kind="champion", rule="superior", metric="ndcg", margin=0.005, relative=True
    )
    seen = report.model_copy(update={"champion": differing("ndcg", 0.0061, 0.0181)})
    assert only(gate, seen, measured).reason == (
        "ndcg minus that of champion c4c4c4c4c4c4 is +1.21% of it, its 95% interval begins at"
        " +0.61%, above +0.50%: the new model is better than the champion by 0.5%"
    )
    seen = report.model_copy(update={"champion": differing("ndcg", 0.0041, 0.0181)})
    assert only(gate, seen, measured).reason.endswith(
        "begins at +0.41%, not above +0.50%: could not show that the new model is better than the"
        " champion by 0.5%"
    )


@pytest.mark.parametrize(
    ("rule", "low", "high", "said"),
    [
        ("non_inferior", 0.0335, 0.0486, "is worse than the champion by more than 3.3%"),
        (
            "non_inferior",
            0.0235,
            0.0486,
            "could not show that the new model is within 3.3% of the champion",
        ),
        ("superior", 0.0335, 0.0486, "the new model is worse than the champion"),
        ("superior", -0.0200, -0.0100, "the new model is not better than the champion by 3.3%"),
    ],
)
def test_a_whole_interval_beyond_the_bound_is_called_what_it_shows(
    report, measured, rule, low, high, said
):
    gate = AgainstChampion(kind="champion", rule=rule, metric="rmse", margin=0.033, relative=True)
    seen = report.model_copy(update={"champion": differing("rmse", low, high)})
    result = only(gate, seen, measured)
    assert not result.passed
    assert result.reason.endswith(said)


def test_a_first_release_passes_whatever_metric_is_asked_for(report, measured):
    gate = AgainstChampion(kind="champion", metric="ndcg", rule="superior", relative=True)
    first = report.model_copy(update={"champion": None})
    assert only(gate, first, measured).reason == NO_CHAMPION
    assert only(gate, first, measured).passed


def test_a_difference_that_the_report_lacks_is_refused(report, measured):
    gate = AgainstChampion(kind="champion", metric="ndcg", relative=True)
    for seen in (
        comparison(-1.0),
        differing("auc", 0.1, 0.2),
        differing("ndcg", 1, 2, share=False),
    ):
        result = only(gate, report.model_copy(update={"champion": seen}), measured)
        assert not result.passed
        assert "no relative ndcg difference" in result.reason


@pytest.mark.parametrize(("policy", "fine"), [("refuse", False), ("accept", True)])
def test_the_policy_decides_where_the_champion_cannot_be_scored(report, measured, policy, fine):
    gate = AgainstChampion(kind="champion", if_not_comparable=policy)
    seen = report.model_copy(update={"champion": comparison(-1.0, comparable=False)})
    result = only(gate, seen, measured)
    assert result.passed is fine
    assert "column 'wind' is gone" in result.reason
    remedy = "set if_not_comparable: accept in gate 'champion' of defs.yaml for this release"
    assert (remedy in result.reason) is not fine


def test_a_missing_difference_is_refused_even_where_the_incomparable_is_accepted(report, measured):
    gate = AgainstChampion(kind="champion", if_not_comparable="accept")
    seen = report.model_copy(update={"champion": comparison(0.0, difference=False)})
    assert not only(gate, seen, measured).passed


def test_a_report_against_no_champion_or_another_one_fails_where_there_is_one(report, measured):
    gate = AgainstChampion(kind="champion", if_not_comparable="accept")
    none = report.model_copy(update={"champion": None})
    assert not only(gate, none, measured, champion=CHAMPION).passed
    result = only(gate, report, measured, champion="ee" * 32)
    assert not result.passed
    assert "c4c4c4c4c4c4" in result.reason and "eeeeeeeeeeee" in result.reason
    assert only(gate, report, measured, champion=CHAMPION).passed


def test_the_champion_itself_is_not_held_against_itself(report, measured):
    none = report.model_copy(update={"champion": None})
    assert only(AgainstChampion(kind="champion"), none, measured, champion=report.model).passed


@pytest.mark.parametrize(
    ("metric", "value", "bound", "fine"),
    [
        ("auc", 0.79, 0.8, True),
        ("auc", 0.8, 0.8, False),
        ("auc", 0.99, 0.8, False),
        ("log_loss", 0.3, 0.2, True),
        ("log_loss", 0.1, 0.2, False),
    ],
)
def test_too_good_to_be_true_is_refused(report, measured, metric, value, bound, fine):
    gate = LeakAlarm(kind="leak_alarm", metric=metric, bound=bound)
    result = only(gate, with_metric(report, metric, value), measured)
    assert result.passed is fine
    assert fine or "too good to be true" in result.reason
    assert fine or "move the gate's bound in defs.yaml, or remove the gate" in result.reason


def test_size_counts_in_millions_of_bytes(report, measured):
    gate = Size(kind="size", at_most_mb=0.4)
    assert only(gate, report, measured).passed
    bigger = report.model_copy(update={"size_bytes": 400_001})
    assert not only(gate, bigger, measured).passed
    assert not only(gate, report.model_copy(update={"size_bytes": 0}), measured).passed


def test_latency_is_recorded_without_a_bound_and_blocks_with_one(report, measured):
    free = only(Latency(kind="latency"), report, measured)
    assert (free.passed, free.value, free.bound) == (True, 0.4, None)
    assert not only(Latency(kind="latency", at_most_ms=0.3), report, measured).passed
    assert only(Latency(kind="latency", at_most_ms=0.5), report, measured).passed


def test_the_policy_digest_moves_with_every_part_of_the_policy(spec):
    base = policy_digest(spec.gates, spec.release)
    assert base == policy_digest(spec.gates, spec.release)
    looser = (spec.gates[0].model_copy(update={"at_least": 0.6}), *spec.gates[1:])
    others = {
        policy_digest(looser, spec.release),
        policy_digest(spec.gates[:-1], spec.release),
        policy_digest(spec.gates, ReleaseSpec(to="staging")),
    }
    assert len(others | {base}) == 4
