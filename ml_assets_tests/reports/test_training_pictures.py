"""Pictures of a training: its curves, its pace, the predictions on a fixed batch."""

import re
from xml.etree import ElementTree

import pytest

from ml_assets.assets.trained_model.pictures import (
    LIVE_POINTS,
    decoded_rows,
    pace_numbers,
    scaling,
    training_pictures,
)
from ml_assets.spec.sanity import Alone
from ml_assets.spec.training import LightGbm, Task, TrainingSpec
from ml_assets.spec.training_program import (
    CategoricalColumn,
    LabelScale,
    NumericColumn,
    Preprocessing,
    Ref,
)
from ml_assets.spec.training_program.events import Checkpoint, FirstRows, FixedBatch, Metrics
from ml_assets.spec.training_progress import TrainingStory
from ml_assets_tests.reports.drawn import HEAD, HOSTILE, files, titles, told, words


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
    table = decoded_rows(first, preprocessing, "multiclass", ("no", "yes"))
    assert table.rows == [
        ["label", "yes", "no", "no"],
        ["seats", "150", "–", "0"],
        ["carrier", HOSTILE, "–", "AA"],
    ]
    assert "<script>" not in table.markdown().replace("\\<", "")
    true = decoded_rows(first, preprocessing, "binary", ()).rows[0]
    assert list(true) == ["label", "true", "false", "false"]
    number = decoded_rows(first, preprocessing, "regression", (), LabelScale(mean=8.0, std=2.5))
    assert list(number.rows[0]) == ["label", "10.5", "8", "8"]
    grade = decoded_rows(first, preprocessing, "ranking", ()).rows[0]
    assert list(grade) == ["label", "1", "0", "0"]
