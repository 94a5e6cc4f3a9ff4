"""Pictures: well-formed, small, true to the records, and safe whatever things are called."""

import re
from base64 import b64decode
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from ml_assets.assets.evaluation_report.pictures import evaluation_pictures
from ml_assets.assets.trained_model.pictures import (
    LIVE_POINTS,
    decoded_rows,
    pace_numbers,
    scaling,
    training_pictures,
)
from ml_assets.reports.data_pictures import contract_pictures, feature_pictures, table_pictures
from ml_assets.reports.decisions import (
    decisions_picture,
    gates_picture,
    gates_table,
    ledger_table,
    override_picture,
    released_table,
)
from ml_assets.reports.drawing import Axis, Series, Stack, column_chart, line_chart
from ml_assets.reports.page import page
from ml_assets.reports.picture import IMAGE_BYTES, Picture, Table, album
from ml_assets.reports.row_charts import Bullet, Spark, bullet_chart, spark_chart
from ml_assets.reports.tables import changes_table
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.records import (
    Change,
    Decision,
    Evidence,
    FeatureImportance,
    GateResult,
    Interval,
    LedgerEntry,
    ReleaseChanges,
    SliceMetrics,
    StageRecord,
)
from ml_assets.spec.sanity import Alone
from ml_assets.spec.training import LightGbm, Task, TrainingSpec
from ml_assets.spec.training_program import CategoricalColumn, NumericColumn, Preprocessing, Ref
from ml_assets.spec.training_program.events import Checkpoint, FirstRows, FixedBatch, Metrics
from ml_assets.spec.training_progress import TrainingStory

HOSTILE = "<script>alert(1)</script>\x00](x)"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
HEAD = {"session": "s", "attempt": 1, "seq": 0, "time": NOW}


def record(partition, rows=100, **attributes):
    return StageRecord(
        key="p/stage",
        partition=partition,
        run_key="a" * 64,
        code_version="c",
        data_version="d",
        rows=rows,
        inputs=(),
        attributes=attributes,
        run="r",
        time=NOW,
    )


def files(pictures):
    """The SVG file of each picture as an asset page holds it."""
    found = re.findall(r"!\[.*?\]\(data:image/svg\+xml;base64,([^)]*)\)", album(pictures))
    assert len(found) == sum(isinstance(one, Picture) for one in pictures)
    assert all(len(file) < IMAGE_BYTES for file in found)
    return [b64decode(file).decode() for file in found]


def words(svg):
    """All that is written in a picture."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.attrib["width"] and root.attrib["height"]
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "nan" not in svg and "inf" not in svg
    return " | ".join(texts)


def titles(pictures):
    return [picture.title for picture in pictures]


# --- data -----------------------------------------------------------------------------------------


def test_a_year_of_partitions_is_drawn_from_its_records():
    year = [
        record(
            f"2013-{number:03d}",
            rows=1000 + number,
            quarantined=number % 3,
            warned=number % 5,
            missing={f"column_{c:02d}": number / 1000 for c in range(20)},
            label_rate={"label_rate": 0.2, "unlabelled_share": 0.01},
        )
        for number in range(104)
    ]
    raw, contract, features = (
        draw(year) for draw in (table_pictures, contract_pictures, feature_pictures)
    )
    assert titles(raw) == ["Rows", "Missing values"]
    assert titles(contract)[:2] == ["Rows against the contract", "Rows that broke the contract"]
    assert titles(features)[:2] == ["Label rate", "Rows without a label"]
    for pictures in (raw, contract, features):
        for svg in files(pictures):
            words(svg)
        assert len(album(pictures)) < 60_000
    assert "2013-000" in words(files(raw)[0]) and "2013-103" in words(files(raw)[0])
    kept = sum(number % 3 for number in range(104))
    assert f"{kept} are in quarantine" in contract[0].words
    assert "10 % (≤ 10 %)" in words(files(raw)[1])
    assert "The first 8 of 20 columns" in raw[1].words


def test_a_table_that_is_read_whole_has_bars_in_place_of_a_history():
    whole = [record(None, missing={"seats": 0.25}, class_shares={"a": 0.75, "b": 0.25}, warned=3)]
    assert titles(table_pictures(whole)) == ["Missing values"]
    assert "25.0" in words(files(table_pictures(whole))[0])
    assert "75.0" in words(files(feature_pictures(whole))[0])
    assert "97" in words(files(contract_pictures(whole))[0])


def test_the_reasons_of_the_quarantine_are_drawn_over_its_partitions():
    weeks = [
        record(
            f"w{n}",
            quarantined=n + 1,
            reasons={"gusts": n + 1} | ({"late": 2000} if n == 2 else {}),
        )
        for n in range(3)
    ]
    (picture,) = [one for one in contract_pictures(weeks) if "quarantine" in one.title]
    told = words(files([picture])[0])
    assert told.index("late") < told.index("gusts"), "those with the most rows first"
    assert "2,000 (Σ 2,000)" in told and "3 (Σ 6)" in told
    assert "w0" in told and "w2" in told
    whole = [record(None, quarantined=12, reasons={f"check_{n}": n for n in range(1, 13)})]
    (picture,) = [one for one in contract_pictures(whole) if "quarantine" in one.title]
    assert "check_12" in words(files([picture])[0])
    assert "The first 8 of 12 reasons" in picture.words
    assert "Why rows" not in " ".join(titles(contract_pictures([record("w1"), record("w2")])))


def test_records_without_statistics_still_have_their_rows():
    assert titles(table_pictures([record("w1"), record("w2")])) == ["Rows"]
    assert titles(feature_pictures([record("w1"), record("w2")])) == ["Rows"]
    assert table_pictures([]) == []


# --- training -------------------------------------------------------------------------------------


def told(steps, rows=32, outputs=1, label=lambda row: float(row % 2)):
    story = TrainingStory()
    for step in range(10, steps + 1, 10):
        metrics = {"train_loss": 0.7, "validation_loss": 1 / step, "learning_rate": 1e-3}
        story.take(Metrics(**HEAD, step=step, metrics=metrics))
        predictions = tuple((row / rows,) * outputs for row in range(rows))
        labels = tuple(label(row) for row in range(rows))
        story.take(FixedBatch(**HEAD, step=step, labels=labels, predictions=predictions))
    return story


def test_curves_and_a_fixed_batch_are_small_however_long_the_training():
    pictures = training_pictures(told(50_000), "binary", (), points=LIVE_POINTS)
    assert titles(pictures) == ["Loss", "Learning rate", "Predictions on a fixed batch"]
    assert "at step 50000" in pictures[0].words
    loss, _, batch = files(pictures)
    assert "train loss" in words(loss) and "validation loss" in words(loss)
    assert "label 0 | label 1" in words(batch)
    assert batch.count('class="thin one"') == batch.count('class="thin two"') == 16


def test_trees_are_grown_in_rounds_at_a_rate_that_is_constant():
    loss, rate, *_ = training_pictures(told(40), "binary", (), LightGbm(family="lightgbm"))
    assert loss.words.endswith("at round 40.") and "round" in loss.svg
    assert rate.words == "It is constant: 0.001."
    story = TrainingStory()
    for step, learning_rate in enumerate((0.001, 0.002, 0.001)):
        story.take(Metrics(**HEAD, step=step, metrics={"learning_rate": learning_rate}))
    (rate,) = training_pictures(story, "binary", ())
    assert rate.words == "It warms up to 0.002, then decays."


def test_the_pace_of_a_training_is_drawn_with_where_the_time_of_a_step_went():
    story = TrainingStory()
    for step in range(1, 501):
        shares = {"data_wait_share": 0.1, "communication_share": 0.3, "step_time_ms": 50.0}
        metrics = {"training_throughput_samples_per_sec": 30_000.0 + step, **shares}
        story.take(Metrics(**HEAD, step=step, metrics=metrics))
    throughput, parts = training_pictures(story, "binary", ())
    assert "Usually 30,2" in throughput.words
    assert "A step takes 50 ms: 10.0% of it is waiting for data, 30.0% waiting" in parts.words
    assert "computing | waiting for other processes | waiting for data" in words(files([parts])[0])
    assert "rows per second" in words(files([throughput])[0])
    assert pace_numbers(story.metrics)["communication_share"] == pytest.approx(0.3)


PACE = {
    "training_throughput_samples_per_sec": 9_000.0,
    "communication_share": 0.125,
    "data_wait_share": 0.01,
}
FIVE = TrainingSpec(processes=5)


def test_the_page_says_what_the_processes_are_worth_beside_one_by_itself():
    alone = Alone(rows_per_second=3_000.0, gpu=False)
    shown = scaling(PACE, alone, FIVE, {5}, gpu=False)
    assert shown["rows_per_second_alone"] == 3_000.0
    assert shown["efficiency"] == pytest.approx(9_000 / (5 * 3_000))
    assert shown["idle_share"] == pytest.approx(1 - 24 / 25)
    assert shown["scaling"] == (
        "5 processes train 9,000 rows/s, 60% of 5 times the 3,000 rows/s of one alone, which the "
        "sanity step measured. Of a step 12.5% is communication, 1.0% waiting for data, 4.0% "
        "idle (24 microbatches on 5 processes)."
    )
    slower = scaling(PACE, Alone(rows_per_second=9_001.0, gpu=False), FIVE, {5}, gpu=False)
    assert str(slower["scaling"]).endswith("One process is faster: set training.processes to 1.")
    assert scaling(PACE, alone, FIVE, {1}, gpu=False) == {}


@pytest.mark.parametrize(
    ("alone", "worlds", "gpu", "why"),
    [
        (None, {5}, False, "one process was not measured alone"),
        (
            Alone(rows_per_second=3_000.0, gpu=False),
            {5},
            True,
            "was measured alone on another device",
        ),
        (Alone(rows_per_second=3_000.0, gpu=False), {5, 4}, False, "their number changed"),
    ],
)
def test_what_cannot_be_compared_is_not(alone, worlds, gpu, why):
    shown = scaling(PACE, alone, FIVE, worlds, gpu=gpu)
    assert why in str(shown["scaling"])
    assert "efficiency" not in shown


def test_trees_have_a_throughput_and_no_parts_of_a_step():
    story = TrainingStory()
    story.take(Metrics(**HEAD, step=1, metrics={"training_throughput_samples_per_sec": 9.0}))
    assert titles(training_pictures(story, "binary", ())) == ["Throughput"]
    assert pace_numbers(story.metrics) == {"training_throughput_samples_per_sec": 9.0}


def test_points_told_between_evaluations_have_no_validation_loss_and_are_drawn():
    story = told(20)
    story.take(Metrics(**HEAD, step=15, metrics={"train_loss": 0.65, "learning_rate": 1e-3}))
    assert [step for step, _ in story.curve("train_loss")] == [10.0, 15.0, 20.0]
    assert [step for step, _ in story.curve("validation_loss")] == [10.0, 20.0]
    assert titles(training_pictures(story, "binary", ()))[0] == "Loss"


def test_a_checkpoint_tells_what_it_cost_at_its_own_step():
    story = told(20)
    cost = {"checkpoint_duration_ms": 12.0, "train_loss": 99.0}
    ref = Ref(uri="/c", digest="0" * 64)
    story.take(Checkpoint(**HEAD, step=10, checkpoint=ref, size=1, best=True, metrics=cost))
    assert story.curve("checkpoint_duration_ms") == [(10.0, 12.0)]
    assert story.curve("train_loss")[0] == (10.0, 0.7)


def test_a_multiclass_row_is_followed_by_its_true_class():
    story = TrainingStory()
    for step, right in ((1, 0.3), (2, 0.9)):
        story.take(FixedBatch(**HEAD, step=step, labels=(1.0,), predictions=((1 - right, right),)))
    (picture,) = training_pictures(story, "multiclass", (HOSTILE, HOSTILE))
    (points,) = re.findall(r'class="thin two" points="([^"]*)"', picture.svg)
    first, last = (float(point.split(",")[1]) for point in points.split())
    assert last < first, "the probability of the true class rises"


def fixed_batch_of(classes, task: Task = "multiclass", labels=None):
    """The picture of a batch with a row of each class; a network of one output sees a number."""
    labels = labels or tuple(float(place) for place in range(len(classes)))
    row = tuple(1 / len(classes) for _ in classes) if task == "multiclass" else (0.5,)
    story = TrainingStory()
    story.take(FixedBatch(**HEAD, step=1, labels=labels, predictions=(row,) * len(labels)))
    (picture,) = training_pictures(story, task, classes)
    return picture


def test_the_words_of_a_fixed_batch_fit_the_task():
    many = fixed_batch_of(("a", "b", "c")).words
    assert "coloured by their true class" in many and "the lines rise towards 1" in many
    for task in ("binary", "regression"):
        assert "the colours part" in fixed_batch_of((), task, (0.0, 1.0)).words


def test_ten_classes_have_ten_colours_and_of_more_the_rest_is_told_as_such():
    def lines(picture):
        return re.findall(r'class="thin (\w+)"', picture.svg)

    assert len(set(lines(fixed_batch_of([str(digit) for digit in range(10)])))) == 10
    classes = [f"c{place}" for place in range(14)]
    labels = tuple(float(place) for place in [*range(14), *range(4, 14)])
    shown = fixed_batch_of(classes, labels=labels)
    assert lines(shown).count("plain") == 4, "the classes of fewest rows share what is no colour"
    assert len(set(lines(shown))) == 11
    (file,) = files([shown])
    assert {"other classes", "c4", "c13"} <= set(words(file).split(" | "))
    assert "--ten:" in file and "svg .ten" in file


def test_a_key_of_many_names_has_lines_and_stays_in_the_picture():
    picture = fixed_batch_of([f"a class of long name {place}" for place in range(10)])
    root = ElementTree.fromstring(picture.svg)
    width, height = (float(end) for end in root.attrib["viewBox"].split()[2:])
    names = [one for one in root.iter() if (one.text or "").startswith("a class of long name")]
    at = [(float(one.attrib["x"]), float(one.attrib["y"])) for one in names]
    assert len(set(at)) == 10
    assert all(x + 6 * len("a class of long name 0") <= width for x, _ in at)
    (short,) = re.findall(r'viewBox="0 0 520 (\d+)"', fixed_batch_of(("a", "b")).svg)
    assert height > float(short), "the lines of the key take nothing from the plot"


def test_the_last_attempt_s_word_on_a_step_is_drawn():
    story = told(10)
    story.take(Metrics(**{**HEAD, "attempt": 2}, step=10, metrics={"validation_loss": 0.25}))
    assert story.curve("validation_loss") == [(10.0, 0.25)]


def test_encoded_rows_are_read_back():
    preprocessing = Preprocessing(
        numeric=(NumericColumn(name="seats", mean=100.0, std=50.0),),
        null_flags=("seats",),
        categorical=(CategoricalColumn(name="carrier", vocabulary=("AA", HOSTILE)),),
    )
    first = FirstRows(
        **HEAD,
        numeric=((1.0, 0.0), (0.0, 1.0), (-2.0000001, 0.0)),
        categorical=((2,), (0,), (1,)),
        labels=(1.0, 0.0, 0.0),
    )
    table = decoded_rows(first, preprocessing, ("no", "yes"))
    assert table.rows == [
        ["label", "yes", "no", "no"],
        ["seats", "150", "–", "0"],
        ["carrier", HOSTILE, "–", "AA"],
    ]
    assert "<script>" not in table.markdown().replace("\\<", "")


# --- evaluation and release -----------------------------------------------------------------------


def test_a_report_s_pictures_hold_its_values_and_fit_one_event(report, spec):
    near = Interval(value=0.0321, low=0.03, high=0.04)
    full = report.model_copy(
        update={
            "slices": tuple(
                SliceMetrics(
                    column=f"column_{n % 3}",
                    value=f"value {n}",
                    rows=1234,
                    metrics={"auc": 0.6543},
                    intervals={"auc": Interval(value=0.6543, low=0.6, high=0.7)},
                )
                for n in range(40)
            ),
            "importance": tuple(
                FeatureImportance(column=f"feature_{n}", loss_rise=near) for n in range(60)
            ),
        }
    )
    pictures = evaluation_pictures(full, spec)
    written = dict(zip(titles(pictures), map(words, files(pictures)), strict=True))
    assert "0.7300" in written["ROC AUC"] and "AP 0.4700" in written["Precision and recall"]
    assert "-0.0020" in written["Champion against challenger: log-loss"]
    assert "0.6543" in written["ROC AUC by slice"] and "(1,234)" in written["ROC AUC by slice"]
    assert "0.0321" in written["Feature importance"]
    assert len(album([*pictures, changes_table(None)])) < 60_000


def test_a_gate_s_dot_is_on_the_good_side_when_it_passed():
    rows = [
        Bullet("floor", 0.8, 0.7, True, higher=True),
        Bullet("ceiling", 0.8, 0.7, False, higher=False),
        Bullet("no value", None, 0.7, True, higher=False),
        Bullet("no bound", 3.0, None, True, higher=False),
        Bullet("below zero", -0.4, -0.1, True, higher=False),
    ]
    svg = bullet_chart("gates", rows)
    sides = re.findall(r'class="side good" x="([\d.]+)".*?width="([\d.]+)"', svg)
    dots = re.findall(r'class="dot (\w+)" cx="([\d.]+)"', svg)
    (floor, _), (ceiling, wide) = sides[:2]
    assert dots[0] == ("good", dots[0][1]) and float(dots[0][1]) > float(floor)
    assert dots[1][0] == "bad" and float(dots[1][1]) > float(ceiling) + float(wide)
    assert "✓ 0.8 ≥ 0.7" in svg and "✗ 0.8 &gt; 0.7" in svg and "✓ – ≤ 0.7" in svg
    ElementTree.fromstring(svg)


def test_a_gate_of_shares_is_in_per_cent_as_its_sentence_is():
    seen = Interval(value=0.0408, low=0.0335, high=0.0486)
    gate = GateResult(
        name="champion", passed=False, value=0.0486, bound=0.033, reason="it is", interval=seen
    )
    spec = AgainstChampion(kind="champion", metric="rmse", margin=0.033, relative=True)
    (picture,) = gates_picture([gate], [spec])
    assert "✗ +4.86% &gt; +3.30%" in picture.svg
    assert gates_table([gate], [spec]).rows[0][2:5] == [
        "+4.86%",
        "+3.30%",
        "+4.08% (+3.35% to +4.86%)",
    ]


def test_a_gate_s_interval_is_a_whisker_and_three_numbers_of_the_table():
    seen = Interval(value=-0.002, low=-0.006, high=0.004)
    gate = GateResult(
        name="champion", passed=True, value=0.004, bound=0.005, reason="it is", interval=seen
    )
    spec = AgainstChampion(kind="champion", margin=0.005)
    (picture,) = gates_picture([gate], [spec])
    (low, high), (dot,) = (
        re.findall(r'class="whisker good" d="M([\d.]+) [\d.]+H([\d.]+)"', picture.svg)[0],
        re.findall(r'class="dot good" cx="([\d.]+)"', picture.svg),
    )
    assert float(low) < float(high) == float(dot)
    ElementTree.fromstring(picture.svg)
    assert gates_table([gate]).rows == [
        ["champion", "✓", "0.0040", "0.0050", "-0.0020 (-0.0060 to 0.0040)", "it is"]
    ]


def decided(seq, value, passed):
    gate = GateResult(name="auc_floor", passed=passed, value=value, bound=0.7, reason="because")
    evidence = Evidence(
        model="ab" * 32, report="1" * 64, data="2" * 64, code="c", policy="3" * 64, champion=None
    )
    decision = Decision(
        pipeline="delays",
        evidence=evidence,
        gates=(gate,),
        passed=passed,
        reason=f"reason {seq}",
        run="r",
        time=NOW,
    )
    return LedgerEntry(
        seq=seq,
        previous=None,
        kind="decision",
        model="ab" * 32,
        decision=decision,
        author="a",
        reason=decision.reason,
        run="r",
        time=NOW,
    )


def test_the_decisions_are_drawn_over_time(spec):
    entries = [decided(n, 0.72 if n % 2 else 0.65, bool(n % 2)) for n in range(1, 90)]
    (picture,) = decisions_picture(entries, spec.gates)
    (svg,) = files([picture])
    assert "passed | refused" in words(svg) and svg.count('class="dot good"') == 30
    assert decisions_picture(entries[:1], spec.gates) == []
    table = ledger_table(entries)
    assert len(table.rows) == 20 and table.rows[0][0] == "89"


def test_what_changed_is_told_line_by_line(report, spec):
    change = Change(group="spec", name="training.epochs", before="3", after="")
    table = changes_table(ReleaseChanges(since="c4" * 32, changes=(change,)))
    assert table.rows == [["spec: training.epochs", "3", "–"]]
    assert "Nothing:" in changes_table(ReleaseChanges(since="c4" * 32, changes=())).markdown()


def test_a_release_says_what_it_replaces_and_who_rolled_back_to_it(report, spec):
    moved = {"kind": "stage", "decision": None, "stage": "production", "replaced": "c4" * 32}
    move = decided(1, 0.7, True).model_copy(update=moved)
    rows = released_table(report, spec, move).rows
    assert ["replaces", "c4c4c4c4c4c4, archived"] in rows
    assert not [row for row in rows if row[0] == "rolled back by"]
    back = move.model_copy(update={"because": "rollback", "author": "ada", "reason": "late"})
    assert ["rolled back by", "ada: late"] in released_table(report, spec, back).rows


def test_an_override_is_a_red_bar_with_who_why_and_the_failed_gates():
    told = {"kind": "override", "decision": None, "overrides": 3, "gates": ("auc_floor",)}
    said = {"author": "ada", "reason": "the snow week", "seq": 4}
    (picture,) = override_picture(decided(1, 0.6, False).model_copy(update=told | said))
    assert 'class="bar bad"' in picture.svg and "OVERRIDE by ada" in picture.svg
    assert "the snow week" in picture.words and "line 3" in picture.words
    assert "auc_floor" in picture.words
    assert override_picture(None) == []


# --- safety ---------------------------------------------------------------------------------------


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


# --- how they lie on the page ---------------------------------------------------------------------


def test_nothing_lies_over_anything_else():
    points = [(0.0, 0.0), (0.1, 900_000.0)]
    large = line_chart("x", [Series("", points)], Axis("x"), Axis("rows per second"), wide=True)
    small = line_chart("x", [Series("", [(0, 0), (1, 5)])], Axis("x"), Axis("y"), wide=True)
    begin = [float(re.findall(r'class="axis" x1="([\d.]+)"', one)[0]) for one in (large, small)]
    assert begin[0] > begin[1] == 62
    low, high = [(0.0, 1.0), (1.0, 0.05)], [(0.0, 0.0), (1.0, 1.0)]
    unit = Axis("", 0.0, 1.0)
    notes = [
        line_chart("x", [Series("", curve)], unit, unit, note="AP 0.16") for curve in (low, high)
    ]
    above, below = (float(re.findall(r'class="note".*? y="([\d.]+)"', one)[0]) for one in notes)
    assert above < 60 < 200 < below


def test_a_long_name_has_the_room_that_there_is():
    name = "unique__timestamp__69797c"
    svg = spark_chart("x", [Spark(name, [1, 2], "2"), Spark("gusts", [1, 2], "2")], ("a", "b"))
    assert f'textLength="162" lengthAdjust="spacingAndGlyphs">{name}<' in svg
    assert svg.count("textLength") == 1


def test_a_date_does_not_break_at_its_hyphens():
    one = Table("t", "", ("", "time"), [["1", "2024-03-04 05:06"], ["2", "as of 2024-03-04"]])
    html = page(
        "data_card.html",
        name="x",
        span="",
        ways={},
        facts=one,
        distributions=[],
        columns=[],
        labelled=False,
        labels=[],
        sample=one,
    )
    assert '<td class="span">2024-03-04 05:06</td>' in html and "<td>as of" in html
