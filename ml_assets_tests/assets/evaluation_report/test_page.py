"""The page: whole, self-contained, escaped, small, and never kinder than the evidence."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from ml_assets.assets.evaluation_report.page import Background, render
from ml_assets.assets.released_model.gates.decide import decide, passed, policy_digest, summary
from ml_assets.reports.drawing import Axis, Bar, Series, bar_chart, line_chart
from ml_assets.spec.gates import Calibrated
from ml_assets.spec.label import LabelSpec
from ml_assets.spec.records import (
    Change,
    Decision,
    Estimate,
    Evidence,
    InputVersion,
    Interval,
    LedgerEntry,
    Measured,
    Recommendation,
    ReleaseChanges,
    StageRecord,
)
from ml_assets.spec.training_program import CategoricalColumn, NumericColumn, Preprocessing
from ml_assets.spec.training_program.events import FirstRows, FixedBatch, Metrics
from ml_assets.spec.training_progress import TrainingStory

VOID = {"meta", "br"}
HEAD = {"session": "s", "attempt": 1, "seq": 0, "time": datetime(2026, 1, 2, tzinfo=UTC)}


def story(steps=2000, every=1):
    """What a session tells: metrics at each step, one fixed batch, the first rows."""
    told = TrainingStory()
    for step in range(0, steps, every):
        metrics = {"train_loss": 0.6 - step / 10_000, "learning_rate": 0.002 * (1 - step / steps)}
        if step % 50 == 0:
            metrics["validation_loss"] = 0.6 - step / 11_000
        told.take(Metrics(**HEAD, step=step, metrics=metrics))
    told.take(FixedBatch(**HEAD, step=50, labels=(0.0, 1.0), predictions=((0.3,), (0.4,))))
    told.take(FixedBatch(**HEAD, step=100, labels=(0.0, 1.0), predictions=((0.2,), (0.7,))))
    told.take(FirstRows(**HEAD, numeric=((1.0, 0.0),), categorical=((2,),), labels=(1.0,)))
    return told


PREPROCESSING = Preprocessing(
    numeric=(NumericColumn(name="distance", mean=1000.0, std=700.0),),
    null_flags=("distance",),
    categorical=(CategoricalColumn(name="carrier", vocabulary=("AA", "<UA>")),),
)


def week(number):
    return StageRecord(
        key="delays/feature_set",
        partition=f"w{number:04d}",
        run_key="a" * 64,
        code_version="c",
        data_version="d",
        rows=100 + number,
        inputs=(),
        attributes={"label_rate": {"label_rate": 0.2}, "missing": {"<seats>": number / 100}},
        run="r",
        time=datetime(2026, 1, 2, tzinfo=UTC),
    )


LINEAGE = [
    InputVersion(key="delays/trained_model", partition=None, version="ab" * 32, commit=None),
    *(
        InputVersion(
            key="delays/feature_set", partition=f"w{i:04d}", version=f"{i:064x}", commit="f" * 64
        )
        for i in range(3)
    ),
]


def background(**changed):
    given = {
        "story": story(),
        "preprocessing": PREPROCESSING,
        "features": [week(number) for number in range(4)],
        "changes": ReleaseChanges(
            since="c4" * 32,
            changes=(Change(group="spec", name="training.epochs", before="3", after="<4>"),),
        ),
        "ledger": [],
        "lineage": LINEAGE,
    }
    return Background(**{**given, **changed})


BARE = Background(TrainingStory(), PREPROCESSING, [], None, [], [])


class Balanced(HTMLParser):
    """Fails on a tag that is not closed, and collects what would be loaded from outside."""

    def __init__(self):
        super().__init__()
        self.open, self.loads = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        names = {"src", "href", "srcset", "action", "onclick", "onload"}
        self.loads += [(tag, n, v) for n, v in attrs if n in names]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag


def decision_on(report, results, spec, model=None, passing=None):
    return Decision(
        pipeline=spec.name,
        evidence=Evidence(
            model=model or report.model,
            report="1" * 64,
            data=report.data,
            code="c",
            policy=policy_digest(spec.gates, spec.release),
            champion=None,
        ),
        gates=results,
        passed=passed(results) if passing is None else passing,
        reason=summary(results),
        run="run-1",
        time=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    )


@pytest.fixture
def page(spec, report, measured):
    results = decide(spec.gates, report, measured)
    return render(report, measured, results, decision_on(report, results, spec), background(), spec)


def test_the_page_is_well_formed_and_loads_nothing(page):
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert parser.loads == []
    assert not re.search(r"https?://|@import|url\(|<script", page)


def test_every_picture_is_well_formed_and_named(page):
    pictures = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert len(pictures) == 14
    for picture in pictures:
        assert ElementTree.fromstring(picture).attrib["aria-label"]
        assert "nan" not in picture and "inf" not in picture


def test_it_reads_in_light_and_dark_and_without_colour(page):
    assert "prefers-color-scheme:dark" in page
    assert page.count("✓ pass") == 6


def test_every_part_is_on_it(page):
    for words in (
        "✓ Passed: this model may go to production",
        "0.7200 to 0.7400",
        "Against the baselines",
        "Calibration",
        "ROC curve",
        "Precision and recall",
        "Learning rate",
        "validation loss",
        "Predictions on a fixed batch",
        "Rows just before the model, decoded",
        "1700",
        "Label rate",
        "training.epochs",
        "delays/feature_set",
        "3 versions",
        "2026-01-02 03:04 UTC",
    ):
        assert words in page, words


@pytest.mark.parametrize(("columns", "folds"), [(15, 0), (65, 1)])
def test_a_long_table_is_folded_under_its_length_and_print_unfolds_it(
    spec, report, measured, columns, folds
):
    numeric = tuple(NumericColumn(name=f"pixel_{n}", mean=0.0, std=1.0) for n in range(columns - 1))
    told = TrainingStory()
    row = tuple(0.0 for _ in numeric)
    told.take(FirstRows(**HEAD, numeric=(row,), categorical=((),), labels=(1.0,)))
    encoded = Preprocessing(numeric=numeric, null_flags=(), categorical=())
    shown = background(story=told, preprocessing=encoded)
    page = render(report, measured, decide(spec.gates, report, measured), None, shown, spec)
    found = re.findall(r'<details class="fold"><summary>(.*?)</summary>(.*?)</details>', page, re.S)
    assert [said for said, _ in found] == [f"All {columns} rows"] * folds
    assert all("pixel_0" in table for _, table in found)
    assert f"pixel_{columns - 2}" in page
    assert re.search(
        r"@media print\{[^@]*\.fold::details-content\{content-visibility:visible", page
    )


def test_the_calibration_error_has_one_interval_on_the_page_the_gates(spec, report, measured):
    gate = Calibrated(kind="calibration", name="calibrated", measure="ece", at_most=0.08)
    spec = spec.model_copy(update={"gates": (*spec.gates, gate)})
    seen = Estimate(
        about="the whole holdout", rows=1000, interval=Interval(value=0.02, low=0.0087, high=0.0307)
    )
    told = report.model_copy(update={"estimates": {gate.name: (seen,)}})
    results = decide(spec.gates, told, measured)
    page = render(told, measured, results, None, BARE, spec)
    assert "95%: 0.0087 to 0.0307" in page and "95% interval 0.0087 to 0.0307" in page
    assert "0.0100 to 0.0300" not in page, "the percentiles of the same draws"
    assert "for the calibration error Student&#39;s t, as its gate takes it" in page
    bare = render(report, measured, decide(spec.gates, report, measured), None, BARE, spec)
    assert "95%: 0.0100 to 0.0300" in bare and "Student" not in bare, "no gate estimated another"


def test_the_confusion_of_several_classes_is_on_the_page_and_well_formed(spec, report, measured):
    label = LabelSpec(column="late", task="multiclass", classes=("cat", "<dog>"))
    of_classes = spec.model_copy(update={"label": label})
    found = {"cat": {"cat": 90, "<dog>": 10}, "<dog>": {"<dog>": 200}}
    told = report.model_copy(update={"confusion": found})
    gates = decide(spec.gates, told, measured)
    page = render(told, measured, gates, None, BARE, of_classes)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == [] and "<dog>" not in page
    assert "Confusion matrix" in page
    assert "<th>&lt;dog&gt;</th><td>200</td><td>1.000</td><td>0.952</td>" in page
    assert "Confusion matrix" not in render(report, measured, gates, None, BARE, spec)


def test_a_declared_baseline_is_told_from_those_that_were_scored(spec, report, measured):
    told = report.model_copy(
        update={"baselines": {"human": {"auc": 0.72}}, "sources": {"human": "two <b>planners</b>"}}
    )
    page = render(told, measured, decide(spec.gates, told, measured), None, BARE, spec)
    assert "human is declared, not scored: two &lt;b&gt;planners&lt;/b&gt;" in page


def test_equal_records_give_an_equal_page(page, spec, report, measured):
    results = decide(spec.gates, report, measured)
    again = render(
        report, measured, results, decision_on(report, results, spec), background(), spec
    )
    assert page == again


def test_a_failed_gate_is_the_headline_whatever_the_decision_says(spec, report):
    slow = Measured(latency_ms=99.0, rows_per_second=1.0)
    results = decide(spec.gates, report, slow)
    kind = decision_on(report, results, spec, passing=True)
    page = render(report, slow, results, kind, BARE, spec)
    assert "✗ Refused" in page and "✓ Passed" not in page
    assert page.count("✗ fail") == 1
    assert "latency: median time for one row: 99 ms, above the limit of 10 ms" in page


def test_the_model_in_production_is_told_to_stay_there_where_it_is_judged_again_and_refused(
    spec, report
):
    slow = Measured(latency_ms=99.0, rows_per_second=1.0)
    results = decide(spec.gates, report, slow)
    moved = LedgerEntry(
        seq=1,
        previous=None,
        kind="stage",
        model=report.model,
        stage=spec.release.to,
        author="run",
        reason="all gates passed",
        run="run-1",
        time=datetime(2026, 1, 2, tzinfo=UTC),
    )
    page = render(report, slow, results, None, background(ledger=[moved]), spec)
    assert f"✗ Judged again and refused, but it stays in {spec.release.to}" in page
    assert "may not be released" not in page


@pytest.mark.parametrize("case", ["no decision", "another model", "refused", "no gates"])
def test_the_page_never_says_passed_without_a_passing_decision_on_this_model(
    spec, report, measured, case
):
    results = decide(spec.gates, report, measured)
    decision = {
        "no decision": None,
        "another model": decision_on(report, results, spec, model="ee" * 32),
        "refused": decision_on(report, results, spec, passing=False),
        "no gates": decision_on(report, (), spec, passing=True),
    }[case]
    shown = () if case == "no gates" else results
    page = render(report, measured, shown, decision, BARE, spec)
    assert "✓ Passed" not in page
    assert ("○ Not decided" if decision is None else "✗ Refused") in page


def test_a_bare_report_still_gives_a_page(spec, report, measured):
    bare = report.model_copy(
        update={
            "metrics": {"log_loss": report.metrics["log_loss"]},
            "baselines": {},
            "champion": None,
            "slices": (),
            "calibration": (),
            "roc": None,
            "precision_recall": None,
            "holdout": ("", ""),
        }
    )
    parser = Balanced()
    parser.feed(render(bare, measured, decide(spec.gates, bare, measured), None, BARE, spec))
    assert parser.open == []


def test_the_page_stays_small_however_long_the_history(spec, report, measured):
    lineage = [
        InputVersion(key="k", partition=f"p{i}", version=f"{i:064x}", commit=f"{i:064x}")
        for i in range(9000)
    ]
    long = background(story=story(20_000), lineage=lineage, features=[week(n) for n in range(120)])
    page = render(report, measured, decide(spec.gates, report, measured), None, long, spec)
    assert len(page.encode()) < 300_000
    assert "8400 more" in page


def test_flat_and_single_values_can_be_drawn():
    for points in ([(0.0, 0.5)], [(0.0, 0.0), (0.0, 0.0)], [(1.0, 3.0), (2.0, 3.0)], []):
        ElementTree.fromstring(line_chart("n", [Series("s", points)], Axis("x"), Axis("y")))
    ElementTree.fromstring(bar_chart("n", [Bar("a", 0.0), Bar("b", 0.0)], start=0.0))
    ElementTree.fromstring(bar_chart("n", [Bar("worse than guessing", 0.4)], start=0.5))


def test_a_long_label_makes_a_wider_picture_of_bars() -> None:
    def left_and_width(label: str) -> tuple[float, float]:
        drawn = ElementTree.fromstring(bar_chart("n", [Bar(label, 1.0)], start=0.0))
        (text,) = [one for one in drawn.iter() if one.text == label]
        return float(text.attrib["x"]), float(drawn.attrib["viewBox"].split()[2])

    short, long = left_and_width("dest"), left_and_width("origin_scheduled_minutes: shape")
    assert long[0] >= 6.8 * len("origin_scheduled_minutes: shape"), "its first letter is drawn"
    assert long[1] - short[1] == long[0] - short[0], "the bars keep their room"


def test_a_recommendation_is_on_the_page_and_blocks_nothing(spec, report, measured):
    found = Recommendation(
        baseline="gradient_boosting",
        min_effect=0.005,
        difference=Interval(value=0.001, low=-0.001, high=0.003),
        keep=False,
        reason="Gradient boosting is as good: release it instead.",
    )
    told = report.model_copy(update={"recommendation": found})
    gates = decide(spec.gates, told, measured)
    page = render(told, measured, gates, None, BARE, spec)
    assert "Is it worth its cost?" in page and found.reason in page
    assert gates == decide(spec.gates, report, measured)
    assert "Is it worth its cost?" not in render(report, measured, gates, None, BARE, spec)


@pytest.mark.parametrize(
    ("cadence", "holdout", "few"),
    [
        ("hourly", ("2024-03-05-20:00", "2024-03-06-07:00"), True),
        ("daily", ("2024-03-01", "2024-03-09"), True),
        ("daily", ("2024-03-01", "2024-03-10"), False),
        ("weekly", ("2024-03-04", "2024-03-11"), False),
    ],
)
def test_intervals_from_a_few_days_are_said_to_be_too_narrow(
    spec, report, measured, cadence, holdout, few
):
    cut = spec.partitions.model_copy(update={"cadence": cadence})
    asked = spec.model_copy(update={"partitions": cut})
    told = report.model_copy(update={"holdout": holdout})
    results = decide(asked.gates, told, measured)
    shown = render(told, measured, results, decision_on(told, results, asked), BARE, asked)
    assert ("so the intervals are too narrow" in shown) is few
