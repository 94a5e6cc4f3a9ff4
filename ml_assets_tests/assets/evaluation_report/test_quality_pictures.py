"""The pictures of each task are its own, and a champion is drawn by what its gate compares."""

import pytest

from ml_assets.assets.evaluation_report.pictures import champion_picture, evaluation_pictures
from ml_assets.assets.evaluation_report.quality_pictures import label_words, quality
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.records import (
    CalibrationBin,
    DayOfRanking,
    Difference,
    Interval,
    PositionGain,
    Ranking,
    ResidualBin,
    Residuals,
)
from ml_assets_tests.reports.test_pictures import files, titles, words

RESIDUALS = Residuals(
    label_mean=900.0,
    label_std=120.0,
    deciles=tuple(
        ResidualBin(predicted=float(p), low=-60.0, median=2.0, high=75.0, rows=100)
        for p in (700, 900, 1100)
    ),
)
RANKING = Ranking(
    at=10,
    queries=120,
    without_relevant=7,
    days=(
        DayOfRanking(day="2024-03-29", queries=60, ndcg=0.81),
        DayOfRanking(day="2024-03-30", queries=60, ndcg=0.83),
    ),
    positions=(
        PositionGain(position=1, gain=1.4, ideal=2.1),
        PositionGain(position=2, gain=0.9, ideal=1.2),
    ),
)


def of_task(spec, **label):
    return spec.model_copy(update={"label": LabelSpec(column="late", **label), "gates": ()})


@pytest.fixture
def rents(report):
    bins = tuple(CalibrationBin(predicted=p, observed=p + 5, rows=100) for p in (700.0, 1100.0))
    update = {"calibration": bins, "roc": None, "precision_recall": None, "residuals": RESIDUALS}
    return report.model_copy(update={**update, "label_rate": ()})


@pytest.fixture
def clicks(report):
    gap = Difference(
        absolute=Interval(value=0.012, low=0.006, high=0.018),
        relative=Interval(value=0.0145, low=0.0072, high=0.0218),
    )
    champion = report.champion.model_copy(
        update={"loss": "1 - NDCG", "differences": {"ndcg": gap}, "metrics": {"ndcg": 0.82}}
    )
    update = {"calibration": (), "roc": None, "precision_recall": None, "label_rate": ()}
    return report.model_copy(update={**update, "ranking": RANKING, "champion": champion})


def test_a_number_is_drawn_against_what_was_observed(rents, spec):
    shown = quality(rents, of_task(spec, task="regression"))
    assert titles(shown.pictures) == ["Predicted against observed", "Residuals"]
    assert all(words(file) for file in files(shown.pictures))
    assert label_words(rents, "regression") == "in the holdout 900 ± 120"


def test_a_ranking_is_drawn_by_day_and_by_position(clicks, spec):
    shown = quality(clicks, of_task(spec, task="ranking", query="search"))
    assert titles(shown.pictures) == ["NDCG by day", "Gain by position"]
    assert "120 queries" in shown.about and "7 without one are left out" in shown.about
    assert all(words(file) for file in files(shown.pictures))


def test_no_task_is_shown_the_curves_of_another(rents, clicks, spec):
    for report, label in ((rents, {"task": "regression"}), (clicks, {"task": "ranking"})):
        query = {"query": "search"} if label["task"] == "ranking" else {}
        shown = titles(evaluation_pictures(report, of_task(spec, **label, **query)))
        assert not {"Calibration", "ROC curve", "Precision and recall"} & set(shown)


def test_a_relative_gate_is_drawn_as_a_share_beside_its_margin(clicks, spec):
    gate = AgainstChampion(
        kind="champion", rule="superior", metric="ndcg", margin=0.005, relative=True
    )
    spec = of_task(spec, task="ranking", query="search").model_copy(update={"gates": (gate,)})
    loss, share = champion_picture(clicks, spec)
    assert loss.title == "Champion against challenger: 1 - NDCG"
    assert share.title == "Champion against challenger: NDCG, as a share of it"
    drawn = words(files([share])[0])
    assert "0.0145" in drawn and "0.0050" in drawn
    assert "margin" not in words(files([loss])[0]), "that gate does not compare the loss"
