"""A spec, a report and its measurements that pass every gate; tests spoil them one at a time."""

import pytest

from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import (
    CalibrationBin,
    ChampionComparison,
    Curve,
    EvaluationReport,
    Interval,
    Measured,
    SliceMetrics,
)

MODEL, CHAMPION = "ab" * 32, "c4" * 32


def near(value):
    return Interval(value=value, low=value - 0.01, high=value + 0.01)


@pytest.fixture
def spec():
    source = {
        "kind": "files",
        "path": "landing/{partition}.csv",
        "format": "csv",
        "columns": {"id": "int64"},
        "key": ["id"],
        "contract": "contract.json",
    }
    return PipelineSpec.model_validate(
        {
            "schema": 1,
            "name": "delays",
            "description": "Late <b>or</b> not?",
            "owner": "team:flights",
            "partitions": {
                "cadence": "weekly",
                "start": "2012-12-31",
                "timezone": "America/New_York",
            },
            "sources": {"flights": source},
            "features": {
                "function": "features.py:build",
                "key": ["id"],
                "decision_at": "decision_at",
                "numeric": ["distance"],
                "categorical": ["carrier"],
            },
            "label": {"column": "late", "task": "binary"},
            "split": {"kind": "time", "train": 4, "validation": 1, "holdout": 2},
            "model": {"family": "tabm"},
            "evaluation": {
                "baselines": [
                    {"kind": "constant"},
                    {"kind": "group_rate", "by": ["carrier"], "name": "carrier"},
                ],
                "slices": ["carrier"],
                "bootstrap_samples": 100,
            },
            "gates": [
                {"kind": "bound", "name": "auc_floor", "metric": "auc", "at_least": 0.7},
                {"kind": "baseline", "name": "beats", "metric": "log_loss", "baseline": "constant"},
                {"kind": "champion", "margin": 0.005},
                {"kind": "leak_alarm", "bound": 0.8},
                {"kind": "size", "at_most_mb": 5.0},
                {"kind": "latency", "at_most_ms": 10.0},
            ],
        }
    )


@pytest.fixture
def report():
    return EvaluationReport(
        pipeline="delays",
        model=MODEL,
        data="d0" * 32,
        rows=1000,
        holdout=("2013-11-04", "2013-11-11"),
        label_rate=(0.24,),
        metrics={
            "auc": near(0.73),
            "average_precision": near(0.47),
            "log_loss": near(0.49),
            "brier": near(0.16),
            "accuracy": near(0.77),
            "ece": near(0.02),
        },
        baselines={"constant": {"auc": 0.5, "log_loss": 0.55}, "carrier": {"auc": 0.6}},
        champion=ChampionComparison(
            champion=CHAMPION,
            comparable=True,
            reason="",
            loss="log-loss",
            loss_difference=Interval(value=-0.002, low=-0.006, high=0.002),
            metrics={"auc": 0.72, "log_loss": 0.495},
        ),
        slices=(
            SliceMetrics(column="carrier", value="AA", rows=600, metrics={"auc": 0.7}),
            SliceMetrics(column="carrier", value="<UA>", rows=400, metrics={"log_loss": 0.5}),
        ),
        calibration=(
            CalibrationBin(predicted=0.1, observed=0.12, rows=500),
            CalibrationBin(predicted=0.4, observed=0.36, rows=500),
        ),
        roc=Curve(x=(0.0, 0.3, 1.0), y=(0.0, 0.6, 1.0)),
        precision_recall=Curve(x=(0.0, 0.5, 1.0), y=(0.9, 0.5, 0.24)),
        size_bytes=400_000,
    )


@pytest.fixture
def measured():
    return Measured(latency_ms=0.4, rows_per_second=200_000.0)
