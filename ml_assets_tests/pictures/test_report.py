"""The page: whole, self-contained, escaped, small, and never kinder than the evidence."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from ml_assets.evaluation.gate import decide, passed, policy_digest, summary
from ml_assets.pictures.drawing import Axis, Bar, Series, bar_chart, line_chart
from ml_assets.pictures.report import render
from ml_assets.spec.records import Decision, Evidence, InputVersion, Measured

VOID = {"meta", "br"}
HISTORY = {
    "train_loss": [(step, 0.6 - step / 10_000) for step in range(2000)],
    "validation_loss": [(step, 0.6 - step / 11_000) for step in range(50, 2000, 50)],
    "learning_rate": [(step, 0.002 * (1 - step / 2000)) for step in range(2000)],
}
LINEAGE = [
    InputVersion(key="delays/trained_model", partition=None, version="ab" * 32, commit=None),
    *(
        InputVersion(
            key="delays/feature_set", partition=f"w{i:04d}", version=f"{i:064x}", commit="f" * 64
        )
        for i in range(3)
    ),
]


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
    return render(
        report, measured, results, decision_on(report, results, spec), HISTORY, LINEAGE, spec
    )


def test_the_page_is_well_formed_and_loads_nothing(page):
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert parser.loads == []
    assert not re.search(r"https?://|@import|url\(|<script", page)


def test_every_picture_is_well_formed_and_named(page):
    pictures = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert len(pictures) == 7
    for picture in pictures:
        assert ElementTree.fromstring(picture).attrib["aria-label"]
        assert "nan" not in picture and "inf" not in picture


def test_text_from_outside_is_escaped(page):
    assert "Late &lt;b&gt;or&lt;/b&gt; not?" in page
    assert "&lt;UA&gt;" in page and "<UA>" not in page


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
        "delays/feature_set",
        "3 versions",
        "2026-01-02 03:04 UTC",
    ):
        assert words in page, words


def test_equal_records_give_an_equal_page(page, spec, report, measured):
    results = decide(spec.gates, report, measured)
    again = render(
        report, measured, results, decision_on(report, results, spec), HISTORY, LINEAGE, spec
    )
    assert page == again


def test_a_failed_gate_is_the_headline_whatever_the_decision_says(spec, report):
    slow = Measured(latency_ms=99.0, rows_per_second=1.0)
    results = decide(spec.gates, report, slow)
    kind = decision_on(report, results, spec, passing=True)
    page = render(report, slow, results, kind, {}, [], spec)
    assert "✗ Refused" in page and "✓ Passed" not in page
    assert page.count("✗ fail") == 1
    assert "latency: median time for one row: 99 ms, above the limit of 10 ms" in page


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
    page = render(report, measured, shown, decision, {}, [], spec)
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
    parser.feed(render(bare, measured, decide(spec.gates, bare, measured), None, {}, [], spec))
    assert parser.open == []


def test_the_page_stays_small_however_long_the_history(spec, report, measured):
    history = {name: [(s, 0.5) for s in range(200_000)] for name in HISTORY}
    lineage = [
        InputVersion(key="k", partition=f"p{i}", version=f"{i:064x}", commit=f"{i:064x}")
        for i in range(9000)
    ]
    page = render(
        report, measured, decide(spec.gates, report, measured), None, history, lineage, spec
    )
    assert len(page.encode()) < 300_000
    assert "8400 more" in page


def test_flat_and_single_values_can_be_drawn():
    for points in ([(0.0, 0.5)], [(0.0, 0.0), (0.0, 0.0)], [(1.0, 3.0), (2.0, 3.0)], []):
        ElementTree.fromstring(line_chart("n", [Series("s", points)], Axis("x"), Axis("y")))
    ElementTree.fromstring(bar_chart("n", [Bar("a", 0.0), Bar("b", 0.0)], start=0.0))
    ElementTree.fromstring(bar_chart("n", [Bar("worse than guessing", 0.4)], start=0.5))
