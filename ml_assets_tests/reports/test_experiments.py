"""The page of runs: whole, self-contained, escaped in every cell, honest about the unknown."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime

from ml_assets.actions.experiments import render
from ml_assets.reports.page import script_policy
from ml_assets.reports.run_rows import ReleaseStep, Row, RunStatus, span
from ml_assets.spec.records import Change, Interval
from ml_assets_tests.assets.evaluation_report.test_page import Balanced

TIME = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
EVIL = "<script>alert(1)</script>\"'&"
ROW = Row(
    run="run-1",
    time=TIME,
    model="ab" * 32,
    report="abababababababab.html",
    mlflow="http://127.0.0.1:5000/#/runs/1",
    outcome=RunStatus("good", "passed", "all gates passed"),
    stage="production",
    words={"experiment": "width"},
    verdict="confirmed",
    note="wider is better",
    author="ada",
    metrics={"auc": Interval(value=0.74, low=0.71, high=0.77)},
    validation_loss=0.5,
    seconds=120.0,
    cost=1.25,
    rows=200_000,
    as_of="2013-12-16",
    data="cd" * 32,
)
FAILED = replace(
    ROW,
    run="run-2",
    model=None,
    report=None,
    mlflow=None,
    outcome=RunStatus("bad", "failed at trained_model", "memory ran out"),
    stage=None,
    words={},
    verdict=None,
    note=None,
    metrics={},
    cost=None,
    seconds=60.0,
)
STEP = ReleaseStep(
    TIME, "aa" * 32, "bb" * 32, [Change(group="spec", name=EVIL, before=EVIL, after=EVIL)]
)


def page(*rows, releases=(), ways=None):
    return render("delays", rows, releases, ways or {})


def cells(text):
    return re.findall(r"<t[dh][^>]*data-sort=[^>]*>(.*?)</t[dh]>", text)


def test_the_page_is_whole_and_loads_nothing():
    text = page(ROW, FAILED, releases=[STEP], ways={"Lineage": "http://127.0.0.1:3000/x"})
    seen = Balanced()
    seen.feed(text)
    assert seen.open == []
    addresses = {value for _, _, value in seen.loads}
    ways = {"http://127.0.0.1:3000/x", "abababababababab.html", "http://127.0.0.1:5000/#/runs/1"}
    assert addresses == ways
    assert not re.search(r"<(link|img|iframe|object)|@import|url\(", text)


def test_the_only_script_is_the_one_that_the_policy_names():
    text = page(ROW)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert html.unescape(policy) == script_policy()
    assert f"; script-src 'sha256-{digest}'" in script_policy()
    assert script_policy().startswith("default-src 'none'; ")


def test_failed_and_refused_runs_are_there_with_their_reason():
    text = page(ROW, FAILED)
    assert "failed at trained_model" in text
    assert "memory ran out" in text
    assert text.count("<tr>") == 3


def test_what_is_not_known_is_a_dash_and_the_missing_price_is_said():
    (*_, cost, _rows, _data) = cells(page(ROW, FAILED))
    assert cost == "–"
    assert "Cost" not in page(FAILED), "no column of dashes"
    assert "ML_ASSETS_PRICES" in page(FAILED)
    assert "ML_ASSETS_PRICES" not in page(ROW)
    assert "1.25" in page(ROW)


def test_numbers_sort_as_numbers_and_the_unknown_has_no_place():
    text = page(ROW, FAILED)
    assert 'data-sort="200000"' in text
    assert 'data-sort="0.74"' in text
    assert 'data-sort=""' in text


def test_the_changes_of_a_release_are_told_and_no_change_is_said():
    assert "bbbbbbbbbbbb after aaaaaaaaaaaa" in page(ROW, releases=[STEP])
    assert "Nothing changed: the same" in page(ROW, releases=[replace(STEP, changes=[])])
    assert "no second release" in page(ROW)


def test_a_page_without_runs_says_so():
    assert "No run is recorded yet" in page()


def test_times_are_told_as_a_person_tells_them():
    told = [span(s) for s in (None, 0, 12.34, 120, 7200)]
    assert told == ["–", "reused", "12.3 s", "2 min", "2 h"]


def test_a_row_is_json_with_numbers_as_numbers():
    plain = json.loads(json.dumps(ROW.plain()))
    assert plain["metrics"]["auc"] == {"value": 0.74, "low": 0.71, "high": 0.77}
    assert plain["cost"] == 1.25
