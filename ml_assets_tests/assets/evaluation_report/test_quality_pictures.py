"""The pictures of each task are its own, and a champion is drawn by what its gate compares."""

import pytest

from ml_assets.assets.evaluation_report.pictures import champion_picture, evaluation_pictures
from ml_assets.assets.evaluation_report.quality_pictures import CONFUSED, label_words, quality
from ml_assets.reports.picture import svg_file
from ml_assets.reports.row_charts import matrix_chart
from ml_assets.spec.base import canonical_json
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
from ml_assets_tests.reports.drawn import files, titles, words

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


# --- several classes ------------------------------------------------------------------------------


def confused(report, spec, classes, confusion):
    """What is shown of a report of several classes."""
    spec = of_task(spec, task="multiclass", classes=classes)
    update = {"confusion": confusion, "roc": None, "precision_recall": None}
    return quality(report.model_copy(update=update), spec)


def test_a_matrix_has_counts_and_their_shares_and_a_table_recall_and_precision(report, spec):
    found = {"cat": {"cat": 90, "dog": 10}, "dog": {"dog": 199, "cat": 1}}
    shown = confused(report, spec, ("cat", "dog", "<emu>"), found)
    (file,) = files([shown.confusion])
    drawn = words(file).split(" | ")
    assert drawn[:3] == ["cat", "dog", "<emu>"], "the columns, in the order of the classes"
    assert drawn[3:10] == ["cat", "9010", "90%10%", "dog", "1199", "0.5%99.5%", "<emu>"]
    assert {"true class", "predicted class"} <= set(drawn)
    assert shown.classes.head == ["class", "rows", "recall", "precision"]
    assert shown.classes.rows == [
        ["cat", "100", "0.900", "0.989"],
        ["dog", "200", "0.995", "0.952"],
        ["<emu>", "0", "–", "–"],
    ]


def test_of_many_classes_the_most_confused_are_drawn_and_all_are_in_the_table(report, spec):
    classes = tuple(f"c{place:02}" for place in range(60))
    found = {name: {name: 100} for name in classes}
    found["c41"] = {"c41": 50, "c07": 40, "c55": 10}
    shown = confused(report, spec, classes, found)
    drawn = words(svg_file(shown.confusion.svg)).split(" | ")
    columns = drawn[: CONFUSED + 1]
    assert {"c07", "c41", "c55"} <= set(columns) and columns[-1] == "(others)"
    assert columns[:-1] == sorted(columns[:-1])
    assert "Of 60 classes the 20 that are confused most" in shown.confusion.words
    assert len(shown.classes.rows) == 60
    found["c41"] = {**{f"c{place:02}": 1 for place in range(5, 41)}, "c41": 45, "c07": 20}
    rest = confused(report, spec, classes, found).confusion
    assert "45%" in words(svg_file(rest.svg)), (
        "shares are of the whole class, also of what is not drawn"
    )


def test_a_matrix_fits_the_event_log_or_is_on_the_page_alone(report, spec):
    for count, shown in ((10, True), (CONFUSED, False)):
        classes = tuple(f"a class called {place}" for place in range(count))
        found = {t: {p: 1000 if t == p else 1 for p in classes} for t in classes}
        of_classes = of_task(spec, task="multiclass", classes=classes)
        told = evaluation_pictures(report.model_copy(update={"confusion": found}), of_classes)
        assert ("Confusion matrix" in titles(told)) == shown
        assert files(told)


def test_shares_that_round_to_all_or_nothing_are_told_apart_and_large_counts_are_short():
    counts = [[12_345, 1], [0, 2_000_000]]
    drawn = words(svg_file(matrix_chart("m", ("a", "b"), ("a", "b"), counts, ("is", "said"))))
    assert "12k1" in drawn and "99.9%0.1%" in drawn
    assert "2.0M" in drawn and "100%" in drawn


def test_a_report_without_a_confusion_has_no_matrix(report, spec):
    shown = confused(report, spec, ("cat", "dog"), {})
    assert shown.confusion is None and shown.classes is None
    binary = quality(report, of_task(spec, task="binary"))
    assert binary.confusion is None and binary.classes is None
    assert b"confusion" not in canonical_json(report), "other tasks keep the digest of their report"
