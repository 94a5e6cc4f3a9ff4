"""Pictures are safe whatever things are called, and can be drawn of anything, on any ground."""

import re
from xml.etree import ElementTree

import pytest

from ml_assets.assets.evaluation_report.pictures import evaluation_pictures
from ml_assets.assets.trained_model.pictures import training_pictures
from ml_assets.reports.data_pictures import contract_pictures, feature_pictures
from ml_assets.reports.decisions import gates_picture
from ml_assets.reports.drawing import Axis, Stack, column_chart
from ml_assets.reports.picture import Picture, Table, album
from ml_assets.reports.row_charts import Bullet, Spark, bullet_chart, spark_chart
from ml_assets.spec.records import FeatureImportance, GateResult, Interval, SliceMetrics
from ml_assets_tests.reports.drawn import HOSTILE, files, record, told, words


def hostile_pictures(report, spec):
    slices = (SliceMetrics(column=HOSTILE, value=HOSTILE, rows=9, metrics={"auc": 0.6}),)
    rise = Interval(value=0.1, low=0.0, high=0.2)
    named = report.model_copy(
        update={
            "slices": slices,
            "importance": (FeatureImportance(column=HOSTILE, loss_rise=rise),),
            "baselines": {HOSTILE: {"auc": 0.5}},
        }
    )
    gate = GateResult(name=HOSTILE, passed=True, value=1.0, bound=0.5, reason=HOSTILE)
    cut = [
        record(
            HOSTILE,
            missing={HOSTILE: 0.1},
            class_shares={HOSTILE: 1.0},
            quarantined=1,
            reasons={HOSTILE: 1},
        )
        for _ in range(3)
    ]
    return [
        *evaluation_pictures(named, spec),
        *gates_picture([gate], spec.gates),
        *feature_pictures(cut),
        *contract_pictures(cut),
        *contract_pictures([record(None, missing={HOSTILE: 0.1})]),
        *training_pictures(told(20, outputs=2), "multiclass", (HOSTILE, HOSTILE)),
        Table(HOSTILE, HOSTILE, [HOSTILE, HOSTILE], [[HOSTILE, HOSTILE]]),
    ]


def test_hostile_names_stay_names(report, spec):
    pictures = hostile_pictures(report, spec)
    for svg in files(pictures):
        assert "<script" not in svg and "\x00" not in svg
        words(svg)
    assert not re.search(r"(?<!\\)<script", album(pictures))


def test_a_picture_reads_on_any_ground_and_is_not_pointed_at():
    svg = column_chart("n", [Stack("s", [1.0, 2.0])], Axis("x"), Axis("y"))
    (file,) = files([Picture("t", "w", svg)])
    assert "--card:transparent" in file and "var(--one)" in file
    assert "<title>" not in file and "pointed" not in file


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0], [None, 1.0, None, 2.0, 3.0]])
def test_anything_can_be_drawn(values):
    ElementTree.fromstring(spark_chart("n", [Spark("s", values, "0")], ("a", "b")))
    known = [value or 0.0 for value in values]
    ElementTree.fromstring(column_chart("n", [Stack("s", known)], Axis("x"), Axis("y")))
    ElementTree.fromstring(bullet_chart("n", [Bullet("b", 0.0, 0.0, True, True)]))
