"""Changes: every field that moved is named, with both sides; what is equal is not told."""

from datetime import UTC, datetime

import pytest

from ml_assets.records.model_changes import Candidate, changes, differences
from ml_assets.spec.records import FeatureImportance, InputVersion, Interval, StageRecord


def training_set(*weeks, version="11" * 32):
    return StageRecord(
        key="delays/training_set",
        partition=None,
        run_key="a" * 64,
        code_version="c",
        data_version=version,
        rows=10,
        inputs=tuple(
            InputVersion(key="delays/feature_set", partition=week, version="v", commit=None)
            for week in weeks
        ),
        attributes={"holdout": [weeks[-1], weeks[-1]], "rows": {"train": 1000}},
        run="r",
        time=datetime(2026, 1, 2, tzinfo=UTC),
    )


@pytest.fixture
def before(spec, report):
    return Candidate(spec.model_dump(mode="json"), training_set("w1", "w2"), report)


def told(before, after):
    return {(c.group, c.name): (c.before, c.after) for c in differences(before, after)}


def test_nothing_is_told_of_the_same_candidate(before):
    assert changes(before, before, before.report.model).changes == ()
    assert changes(before, before, before.report.model).since == before.report.model


def test_fields_of_the_spec_go_by_their_path_and_parts_by_their_names(before, spec):
    changed = spec.model_dump(mode="json")
    changed["training"]["epochs"] = 99
    changed["gates"][0]["at_least"] = 0.8
    changed["features"]["numeric"] = ["distance", "seats"]
    del changed["evaluation"]["baselines"][1]
    found = told(before, Candidate(changed, before.data, before.report))
    assert found[("spec", "training.epochs")] == ("10", "99")
    assert found[("spec", "gates.auc_floor.at_least")] == ("0.7", "0.8")
    assert found[("spec", "features.numeric")] == ('["distance"]', '["distance", "seats"]')
    assert found[("spec", "evaluation.baselines.carrier.kind")] == ("group_rate", "")


def test_the_window_the_metrics_and_the_importance_are_compared(before, report):
    def rise(value):
        interval = Interval(value=value, low=value, high=value)
        return (FeatureImportance(column="distance", loss_rise=interval),)

    old = report.model_copy(update={"importance": rise(0.1)})
    better = report.metrics["auc"].model_copy(update={"value": 0.75})
    new = report.model_copy(
        update={"importance": rise(0.2), "metrics": {**report.metrics, "auc": better}}
    )
    found = told(
        Candidate(before.spec, before.data, old),
        Candidate(before.spec, training_set("w2", "w3", "w4", version="22" * 32), new),
    )
    assert found == {
        ("data", "first partition"): ("w1", "w2"),
        ("data", "last partition"): ("w2", "w4"),
        ("data", "partitions"): ("2", "3"),
        ("data", "holdout"): ("w2 to w2", "w4 to w4"),
        ("data", "version"): ("1" * 12, "2" * 12),
        ("metrics", "auc"): ("0.7300", "0.7500"),
        ("importance", "distance"): ("0.1000", "0.2000"),
    }


def test_a_run_that_came_to_no_report_is_compared_as_far_as_it_came(before):
    failed = Candidate({**before.spec, "seed": 2}, training_set("w1", "w3"), None)
    groups = {group for group, _ in told(before, failed)}
    assert groups == {"spec", "data"}
    assert set(told(before, Candidate(before.spec, None, None))) == set()
