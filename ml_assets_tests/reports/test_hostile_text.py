"""One hostile table through every place that shows it: names and values with markup, escape
sequences of terminals and marks that turn the direction of reading."""

import base64
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from jinja2 import UndefinedError

from ml_assets.actions import experiments
from ml_assets.actions.home_page import HomePageEntry, Tile, Verdict
from ml_assets.assets.drift_report.findings import DriftReport
from ml_assets.assets.drift_report.period_comparison import Comparison, NewPeriod
from ml_assets.assets.drift_report.pictures import drift_pictures
from ml_assets.assets.drift_report.verdict import conclude, raise_alarm
from ml_assets.assets.evaluation_report.drift_baseline import Baseline
from ml_assets.assets.evaluation_report.drift_profile import make_profile
from ml_assets.assets.evaluation_report.page import render
from ml_assets.assets.hyperparameter_search.page import study_page
from ml_assets.assets.released_model.gates.decide import decide
from ml_assets.cli.main import main
from ml_assets.errors import MlAssetsError, visible
from ml_assets.reports.card import Card, card_page, card_pictures
from ml_assets.reports.decisions import gates_table, ledger_table, override_picture
from ml_assets.reports.drawing import banner
from ml_assets.reports.page import page
from ml_assets.reports.picture import TEMPLATES, Picture, album
from ml_assets.reports.run_rows import ReleaseStep, RunStatus, short_table
from ml_assets.reports.tables import changes_table, lost_attempts
from ml_assets.spec.drift import DriftSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.records import Change, InputVersion, LedgerEntry, ReleaseChanges, SliceMetrics
from ml_assets.spec.training_program import CategoricalColumn, NumericColumn, Preprocessing, World
from ml_assets.spec.training_program.events import Lost
from ml_assets.store.table_files import preview_markdown
from ml_assets.store.table_survey import LabelColumns, survey
from ml_assets_tests.assets.evaluation_report.test_page import background, decision_on, week
from ml_assets_tests.assets.hyperparameter_search.curves import Curves, iris_spec, plan_of, studied
from ml_assets_tests.reports.test_experiments import ROW
from ml_assets_tests.worlds import irises

TITLE, RED, TURNED = "\x1b]0;mine\x07", "\x1b[31m", "\u202e"
HOSTILE = f"<script>alert(1)</script>{RED}{TURNED}`|![x](http://evil.example)"
"""A name and a value."""
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
PICTURE = re.compile(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)")
PAGES = {
    "api.html",
    "data_card.html",
    "experiments.html",
    "home.html",
    "report.html",
    "study.html",
}
CHANGE = Change(group="spec", name=HOSTILE, before=HOSTILE, after=HOSTILE)
OVERRIDE = LedgerEntry(
    seq=2,
    previous=None,
    kind="override",
    model="ab" * 32,
    overrides=1,
    gates=(HOSTILE,),
    author=HOSTILE,
    reason=HOSTILE,
    run="",
    time=datetime(2024, 1, 1, tzinfo=UTC),
)
ROWS = 400


def table(seed: int, moved: float = 0.0) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            HOSTILE: draw.normal(size=ROWS) + moved,
            "word": draw.choice([HOSTILE, "b", TITLE], ROWS),
            "late": draw.choice([True, False], ROWS),
        }
    )


def assert_seen_on_a_page(page: str, template: str) -> None:
    assert template in PAGES
    assert not re.search(r"<script|<img|href=.?http://evil", page)
    assert ACTS.search(page) is None
    assert "&lt;script&gt;" in page or "&lt;scri" in page
    assert r"\x1b" in page


def assert_seen_in_markdown(text: str) -> None:
    assert ACTS.search(text) is None
    assert re.search(r"(?<!\\)<", text) is None
    assert "![x]" not in text
    assert r"\\x1b" in text
    for found in PICTURE.findall(text):
        drawing = base64.b64decode(found).decode()
        assert ACTS.search(drawing) is None
        ElementTree.fromstring(drawing)


def test_the_data_card_shows_it() -> None:
    seen = survey(table(1), [HOSTILE], LabelColumns("late", by=("word",)))
    card = Card(HOSTILE, "t", HOSTILE, seen, LabelSpec(column="late", task="binary"))
    assert_seen_on_a_page(card_page(card, {HOSTILE: "http://reports"}), "data_card.html")
    assert_seen_in_markdown(album(card_pictures(card)))


def test_the_report_shows_it(spec, report, measured) -> None:
    preprocessing = Preprocessing(
        numeric=(NumericColumn(name="distance", mean=1000.0, std=700.0),),
        null_flags=("distance",),
        categorical=(CategoricalColumn(name="carrier", vocabulary=(TITLE, HOSTILE)),),
    )
    holes = {"label_rate": {"label_rate": 0.2}, "missing": {HOSTILE: 0.1}}
    records = [week(number).model_copy(update={"attributes": holes}) for number in range(4)]
    told = background(
        preprocessing=preprocessing,
        features=records,
        override=OVERRIDE,
        ledger=[OVERRIDE],
        lineage=[InputVersion(key=HOSTILE, partition=HOSTILE, version=HOSTILE, commit=HOSTILE)],
        suspects=table(1),
        changes=ReleaseChanges(since="c" * 64, changes=(CHANGE,)),
    )
    found = report.model_copy(
        update={
            "baselines": {HOSTILE: {"auc": 0.6}},
            "sources": {HOSTILE: HOSTILE},
            "slices": (SliceMetrics(column=HOSTILE, value=HOSTILE, rows=9, metrics={"auc": 0.7}),),
            "holdout": (HOSTILE, HOSTILE),
        }
    )
    spec = spec.model_copy(update={"description": HOSTILE, "owner": HOSTILE})
    results = tuple(
        gate.model_copy(update={"name": HOSTILE, "reason": HOSTILE})
        for gate in decide(spec.gates, report, measured)
    )
    decided = decision_on(report, results, spec)
    ways = {HOSTILE: HOSTILE}
    page = render(found, measured, results, decided, told, spec, ways)
    assert_seen_on_a_page(page, "report.html")
    assert page.count("&lt;script&gt;") > 20
    shown = [*override_picture(OVERRIDE), gates_table(results), ledger_table([OVERRIDE])]
    assert_seen_in_markdown(album(shown))


def test_the_page_of_runs_shows_it() -> None:
    row = replace(
        ROW,
        run=HOSTILE,
        model=HOSTILE,
        report=HOSTILE,
        outcome=RunStatus("bad", HOSTILE, HOSTILE),
        stage=HOSTILE,
        words=dict.fromkeys(("experiment", "hypothesis", "goal"), HOSTILE),
        verdict=HOSTILE,
        note=HOSTILE,
        author=HOSTILE,
        metrics={HOSTILE: ROW.metrics["auc"]},
        as_of=HOSTILE,
        data=HOSTILE,
    )
    step = ReleaseStep(row.time, HOSTILE, HOSTILE, [CHANGE])
    machines = [Picture(HOSTILE, HOSTILE, banner(HOSTILE, HOSTILE))]
    page = experiments.render(HOSTILE, [row], [step], {HOSTILE: HOSTILE}, machines)
    own = f"<script>{(TEMPLATES / 'sortable.js').read_text().rstrip()}</script>"
    assert page.count(own) == 1
    assert_seen_on_a_page(page.replace(own, ""), "experiments.html")
    assert_seen_in_markdown(album([short_table([row])]))


def test_the_first_page_shows_it() -> None:
    """The server lists no such name; the template would hold all the same."""
    state = HomePageEntry(
        HOSTILE,
        Verdict("good", HOSTILE, (HOSTILE,)),
        (Tile(HOSTILE, HOSTILE, HOSTILE),),
        {HOSTILE: "http://lineage"},
    )
    reports = [(HOSTILE, datetime(2024, 1, 1, tzinfo=UTC))]
    found = {HOSTILE: (state, reports), "unread": (None, reports)}
    shown = page("home.html", pipelines=found, below=HOSTILE, experiments=HOSTILE)
    assert_seen_on_a_page(shown, "home.html")


def test_the_page_of_a_study_shows_it(tmp_path: Path) -> None:
    spec = iris_spec(tmp_path)
    plan = plan_of(spec, {"trials": 4})
    study = studied(plan, Curves(lambda job, share: job.training.learning_rate), tmp_path)
    said = {"pipeline": HOSTILE, "name": HOSTILE, "ended": HOSTILE, "importances": {HOSTILE: 0.5}}
    shown = study_page(study.model_copy(update=said), plan.search, spec, (HOSTILE,))
    assert_seen_on_a_page(shown, "study.html")


def test_the_page_of_the_api_shows_it() -> None:
    told = {"description": HOSTILE, "required": []}
    document = {
        "info": {"title": HOSTILE, "description": HOSTILE, "version": HOSTILE},
        "paths": {HOSTILE: {"get": {"description": HOSTILE}}},
        "components": {"schemas": {HOSTILE: {"properties": {HOSTILE: told}}}},
    }
    shown = page("api.html", document=document, bodies=(HOSTILE,))
    assert_seen_on_a_page(shown, "api.html")


def test_every_page_is_among_these() -> None:
    pages = {file.name for file in TEMPLATES.glob("*.html")} - {"page.html", "parts.html"}
    assert pages == PAGES


def test_a_template_that_asks_for_what_is_not_shown_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="pipelines"):
        page("home.html")


def test_the_lost_attempts_and_the_changes_show_it() -> None:
    world = World()
    said = {"cause": HOSTILE, "what": HOSTILE, "pod": HOSTILE, "node": HOSTILE}
    gone = Lost(**said, world=world, goes_on=world, avoid=(HOSTILE,))
    assert_seen_in_markdown(album([lost_attempts([gone])]))
    changes = changes_table(ReleaseChanges(since="c" * 64, changes=(CHANGE,)))
    assert_seen_in_markdown(album([changes]))


def test_the_drift_page_shows_it() -> None:
    train: dict[str | None, pl.DataFrame] = {str(n): table(n) for n in range(12)}
    draw = np.random.default_rng(5)
    beside: dict[str | None, pl.DataFrame] = {
        str(n): pl.DataFrame({"prediction": draw.beta(2, 5, ROWS)}) for n in range(6)
    }
    spec = DriftSpec()
    base = Baseline(
        pipeline="p",
        model="a" * 64,
        data="b" * 64,
        features=make_profile(train, [HOSTILE], ["word"]),
        labels=make_profile(train, [], ["late"]),
        unlabelled=0.0,
        predictions=make_profile(beside, ["prediction"], []),
        losses=(),
    )
    judging = Comparison(base, train, spec)
    rows = table(20, moved=3.0)
    window = judging.judge(NewPeriod("20", rows, predictions=beside["0"]))
    outcomes = conclude([window], spec, {})
    report = DriftReport(
        pipeline="p",
        model="a" * 64,
        trained_on=("0", "11"),
        training_rows=12 * ROWS,
        back_tested=12,
        windows=(window,),
        outcomes=outcomes,
        notes=(HOSTILE,),
        alarm=raise_alarm(outcomes, "20", None),
        shapes=judging.shapes(rows, window),
        time=datetime(2024, 1, 1, tzinfo=UTC),
    )
    shown = drift_pictures(report)
    assert len(shown) > 2
    assert_seen_in_markdown(album(shown))


def test_the_preview_of_a_table_in_dagster_shows_it() -> None:
    assert_seen_in_markdown(preview_markdown(table(1)))


def test_an_error_shows_it_wherever_it_is_told() -> None:
    assert str(MlAssetsError(f"the column {HOSTILE}{TITLE}")) == visible(
        f"the column {HOSTILE}{TITLE}"
    )
    assert visible("naïve — «日本»\tא\n") == "naïve — «日本»\tא\n"


def test_the_terminal_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a spec calls its fields, as the command tells it, to both of its streams."""
    irises.plant(tmp_path, tmp_path / "sources")
    file = tmp_path / "irises" / "defs.yaml"
    name = '"\\e[31m\\e]0;mine\\a\\u202ecolour"'
    file.write_text(file.read_text().replace("width: 32", f"width: 32, {name}: red"))
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "")

    def told(*arguments: str) -> str:
        assert main(arguments) in (1, 2)
        said = capsys.readouterr()
        return said.out + said.err

    checked = told("check", "irises")
    assert r"\x1b[31m\x1b]0;mine\x07\u202ecolour" in checked
    assert ACTS.search(checked) is None
    assert ACTS.search(told("models", "report", f"{RED}{TITLE}{TURNED}")) is None
    assert ACTS.search(told(f"{RED}{TITLE}{TURNED}")) is None
