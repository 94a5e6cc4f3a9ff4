"""One hostile table through every place that shows it: names and values with markup, escape
sequences of terminals and marks that turn the direction of reading."""

import base64
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl

from ml_assets.assets.drift_report.compare import Comparison, NewPeriod
from ml_assets.assets.drift_report.findings import DriftReport
from ml_assets.assets.drift_report.pictures import drift_pictures
from ml_assets.assets.drift_report.verdict import conclude, raise_alarm
from ml_assets.assets.evaluation_report.drift_baseline import Baseline
from ml_assets.assets.evaluation_report.drift_profile import make_profile
from ml_assets.assets.released_model.gates.decide import decide
from ml_assets.assets.released_model.report_page import render
from ml_assets.errors import MlAssetsError, visible
from ml_assets.reports.card import Card, card_page, card_pictures
from ml_assets.reports.picture import album
from ml_assets.spec.drift import DriftSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.program import CategoricalColumn, NumericColumn, Preprocessing
from ml_assets.store.table_files import preview_markdown
from ml_assets.store.table_survey import LabelColumns, survey
from ml_assets_tests.assets.released_model.test_report_page import background, decision_on, week
from ml_assets_tests.worlds import irises

TITLE, RED, TURNED = "\x1b]0;mine\x07", "\x1b[31m", "\u202e"
HOSTILE = f"<script>alert(1)</script>{RED}{TURNED}`|![x](http://evil.example)"
"""A name and a value."""
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
PICTURE = re.compile(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)")
ROWS = 400
PACKAGE = Path(__file__).parents[2] / "ml_assets"


def table(seed: int, moved: float = 0.0) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            HOSTILE: draw.normal(size=ROWS) + moved,
            "word": draw.choice([HOSTILE, "b", TITLE], ROWS),
            "late": draw.choice([True, False], ROWS),
        }
    )


def assert_seen_on_a_page(page: str) -> None:
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
    assert_seen_on_a_page(card_page(card, {HOSTILE: "http://reports"}))
    assert_seen_in_markdown(album(card_pictures(card)))


def test_the_report_shows_it(spec, report, measured) -> None:
    preprocessing = Preprocessing(
        numeric=(NumericColumn(name="distance", mean=1000.0, std=700.0),),
        null_flags=("distance",),
        categorical=(CategoricalColumn(name="carrier", vocabulary=(TITLE, HOSTILE)),),
    )
    holes = {"label_rate": {"label_rate": 0.2}, "missing": {HOSTILE: 0.1}}
    records = [week(number).model_copy(update={"attributes": holes}) for number in range(4)]
    told = background(preprocessing=preprocessing, features=records)
    spec = spec.model_copy(update={"description": HOSTILE})
    results = tuple(
        gate.model_copy(update={"reason": HOSTILE}) for gate in decide(spec.gates, report, measured)
    )
    decided = decision_on(report, results, spec)
    assert_seen_on_a_page(render(report, measured, results, decided, told, spec))


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
    assert_seen_on_a_page("".join(one.card() for one in shown))


def test_the_preview_of_a_table_in_dagster_shows_it() -> None:
    assert_seen_in_markdown(preview_markdown(table(1)))


def test_an_error_shows_it_wherever_it_is_told() -> None:
    assert str(MlAssetsError(f"the column {HOSTILE}{TITLE}")) == visible(
        f"the column {HOSTILE}{TITLE}"
    )
    assert visible("naïve — «日本»\tא\n") == "naïve — «日本»\tא\n"


def test_the_terminal_shows_it(tmp_path: Path) -> None:
    """What a spec calls its fields, as the real command tells it, to both of its streams."""
    irises.plant(tmp_path, tmp_path / "sources")
    file = tmp_path / "irises" / "defs.yaml"
    name = '"\\e[31m\\e]0;mine\\a\\u202ecolour"'
    file.write_text(file.read_text().replace("width: 32", f"width: 32, {name}: red"))
    told = ml_assets(tmp_path, "check", "irises")
    assert r"\x1b[31m\x1b]0;mine\x07\u202ecolour" in told
    assert ACTS.search(told) is None
    assert ACTS.search(ml_assets(tmp_path, "models", "report", f"{RED}{TITLE}{TURNED}")) is None
    assert ACTS.search(ml_assets(tmp_path, f"{RED}{TITLE}{TURNED}")) is None


def ml_assets(folder: Path, *arguments: str) -> str:
    import os

    own = {"ML_ASSETS_HOME": str(folder / "state"), "ML_ASSETS_PIPELINES": str(folder)}
    command = [sys.executable, "-m", "ml_assets.cli.main", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **own}, capture_output=True, check=False, timeout=120
    )
    assert done.returncode in (1, 2)
    return (done.stdout + done.stderr).decode()


def test_there_is_one_escape() -> None:
    """``wording.escape``: the standard library's lets a mark of direction through."""
    own = [file for file in PACKAGE.rglob("*.py") if "import escape" in file.read_text()]
    assert all(
        "from html import" not in file.read_text() and "markupsafe" not in file.read_text()
        for file in own
    )
    users = [file.name for file in PACKAGE.rglob("*.py") if "html.escape" in file.read_text()]
    assert users == ["wording.py"]
