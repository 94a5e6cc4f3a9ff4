"""Each guard of a training set finds what is planted for it, and nothing in sound rows."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.feature_set.leak_checks import refusal
from ml_assets.assets.training_set import label_leaks, row_hashes, shards, split_leaks
from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.assets.training_set.shards import load_schema
from ml_assets.errors import MlAssetsError, SpecError
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.training import Task
from ml_assets.spec.training_program import Ref, ShardSchema, Split
from ml_assets_tests.worlds import deliveries

Rows = dict[Split, pl.DataFrame]
WEEK = timedelta(weeks=1)
NAMES: tuple[Split, ...] = ("train", "validation", "holdout")
CLASSES = ("low", "middle", "high")


def in_parts(frame: pl.DataFrame) -> SplitRows:
    """The rows in parts of 97: what a guard says must not depend on where they are cut."""
    places = range(0, len(frame), 97)
    return SplitRows(tuple(Part(frame[place : place + 97].lazy()) for place in places))


def examine(
    rows: Mapping[Any, pl.DataFrame], spec: PipelineSpec, embargo: timedelta
) -> tuple[LeakFinding, ...]:
    return split_leaks.examine({n: in_parts(frame) for n, frame in rows.items()}, spec, embargo)


def find_foreign_fit(schema: ShardSchema, train: pl.DataFrame, label: LabelSpec) -> LeakFinding:
    return split_leaks.find_foreign_fit(schema, in_parts(train), label)


def find_proxies(rows: Rows, *more: Any) -> LeakFinding:
    return label_leaks.find_proxies({n: in_parts(f) for n, f in rows.items()}, *more)


def write_labelled(rows: Rows, *more: Any) -> Ref:
    return shards.write_labelled({n: in_parts(f) for n, f in rows.items()}, *more).ref


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("leaks")
    deliveries.plant(root / "pipelines", root / "sources")
    return root / "pipelines" / "deliveries"


@pytest.fixture(scope="module")
def spec(folder: Path) -> PipelineSpec:
    return load_spec(folder)


@pytest.fixture
def sound() -> Rows:
    """Orders of nine weeks, with an embargo of one between the splits."""
    spans: dict[Split, tuple[int, int]] = {
        "train": (0, 6),
        "validation": (7, 8),
        "holdout": (9, 11),
    }
    return {name: orders(first, last) for name, (first, last) in spans.items()}


def orders(first: int, last: int) -> pl.DataFrame:
    draw = np.random.default_rng(first)
    count = 240 * (last - first)
    load = draw.uniform(1, 99, count)
    seconds = draw.integers(first * 7 * 86400, last * 7 * 86400, count)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return pl.DataFrame(
        {
            "order": np.arange(count) + first * 10_000,
            "ordered_at": [start + timedelta(seconds=int(s)) for s in seconds],
            "late": draw.random(count) < 0.2 + 0.4 * (load > 70),
            "load": load,
            "docks": draw.integers(1, 9, count).astype(np.float64),
            "recent_late": draw.normal(0.3, 0.02, count),
            "depot": draw.choice(["north", "south", "west"], count),
        }
    ).with_columns(pl.col("ordered_at").cast(pl.Datetime("us", "UTC")))


def changed(rows: Mapping[Any, pl.DataFrame], name: Split, **columns: pl.Expr) -> Rows:
    return {**rows, name: rows[name].with_columns(**columns)}


def failed(found: tuple[LeakFinding, ...]) -> list[str]:
    return [one.name for one in found if not one.passed]


def test_sound_rows_trip_no_guard(sound: Rows, spec: PipelineSpec) -> None:
    found = examine(sound, spec, WEEK)
    assert failed(found) == []
    assert len(found) == 5
    assert refusal(found, spec, "deliveries/training_set") is None


def a_key_twice(rows: Rows) -> Rows:
    return changed(
        rows,
        "holdout",
        order=pl.when(pl.int_range(pl.len()) < 3).then(pl.col("order") - 90_000).otherwise("order"),
    )


def a_late_decision(rows: Rows) -> Rows:
    return changed(rows, "train", ordered_at=pl.col("ordered_at") + timedelta(weeks=3))


def a_short_embargo(rows: Rows) -> Rows:
    return changed(rows, "train", ordered_at=pl.col("ordered_at") + timedelta(days=3))


def copies(rows: Rows) -> Rows:
    copied = rows["train"].head(40).select(pl.exclude("order", "ordered_at"))
    keys = rows["holdout"].select("order", "ordered_at")
    spoiled = pl.concat([keys.head(40), copied], how="horizontal")
    return {
        **rows,
        "holdout": pl.concat([spoiled.select(rows["holdout"].columns), rows["holdout"][40:]]),
    }


def the_answer(rows: Rows) -> Rows:
    told = pl.when("late").then(pl.col("load") + 200).otherwise("load")
    return {name: frame.with_columns(load=told) for name, frame in rows.items()}


def another_depot(rows: Rows) -> Rows:
    return changed(rows, "holdout", depot=pl.lit("harbour"))


def a_flag_of_the_holdout(rows: Rows) -> Rows:
    return {
        name: frame.with_columns(docks=float(name == "holdout")) for name, frame in rows.items()
    }


@pytest.mark.parametrize("plant", [a_key_twice, copies])
def test_what_is_equal_is_found_in_buckets_of_any_size(
    sound: Rows,
    spec: PipelineSpec,
    plant: Callable[[Rows], Rows],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = examine(plant(sound), spec, WEEK)
    monkeypatch.setattr(row_hashes, "BUCKET", 100)
    assert row_hashes.buckets_for([in_parts(rows) for rows in sound.values()]) > 10
    assert examine(plant(sound), spec, WEEK) == whole


@pytest.mark.parametrize(
    ("plant", "guard", "said"),
    [
        (a_key_twice, "no_shared_keys", "3 values of ['order'] are in train and in holdout"),
        (a_late_decision, "split_in_order", "a split by time must not overlap"),
        (a_short_embargo, "split_in_order", "the embargo is 7 days"),
        (copies, "no_shared_rows", "40 of the 480 rows of holdout are in train with the same"),
        (the_answer, "no_target_proxy", "load 1.000. No single feature should reveal so much"),
        (another_depot, "splits_alike", "«'harbour'» in 100.0%, 0.0% in train"),
        (a_flag_of_the_holdout, "splits_alike", "docks of holdout: «0» in 0.0%, in all of train"),
    ],
)
def test_what_is_planted_trips_its_guard_alone(
    sound: Rows, spec: PipelineSpec, plant: Callable[[Rows], Rows], guard: str, said: str
) -> None:
    found = examine(plant(sound), spec, WEEK)
    assert failed(found) == [guard]
    (bad,) = (one for one in found if not one.passed)
    assert said in bad.reason
    assert bad.value is not None


def test_a_column_that_is_far_from_train_may_be_in_another_unit(
    sound: Rows, spec: PipelineSpec
) -> None:
    other = examine(changed(sound, "holdout", load=pl.col("load") * 18), spec, WEEK)
    bad = next(one for one in other if one.name == "splits_alike")
    assert "If a unit changed, correct the source. Else choose another split" in bad.reason


def test_a_number_that_is_constant_in_train_may_differ_now_and_then(
    sound: Rows, spec: PipelineSpec
) -> None:
    always = {name: frame.with_columns(docks=0.1) for name, frame in sound.items()}
    assert failed(examine(always, spec, WEEK)) == []
    rarely = pl.when(pl.int_range(pl.len()) < 20).then(7.0).otherwise(0.1)
    assert failed(examine(changed(always, "holdout", docks=rarely), spec, WEEK)) == []


def test_a_query_in_two_splits_is_found_and_its_whole_rows_are_not(
    spec: PipelineSpec, sound: Rows
) -> None:
    label = LabelSpec(column="late", task="ranking", query="depot")
    ranking = spec.model_copy(update={"label": label})
    graded: Rows = {n: r.with_columns(late=pl.col("late").cast(pl.Int64)) for n, r in sound.items()}
    found = examine(graded, ranking, WEEK)
    assert "3 values of ['depot'] are in train and in validation" in found[0].reason
    apart: Rows = {
        name: rows.with_columns(depot=pl.lit(name), late=pl.col("late").cast(pl.Int64))
        for name, rows in sound.items()
    }
    assert examine(apart, ranking, WEEK)[0].passed


def test_an_entity_of_the_split_is_looked_for_by_its_groups(
    spec: PipelineSpec, sound: Rows
) -> None:
    by_depot = {
        "kind": "time+group",
        "groups": ("depot",),
        "train": 6,
        "validation": 1,
        "holdout": 2,
    }
    grouped = PipelineSpec.model_validate({**spec.model_dump(), "split": by_depot})
    found = examine(sound, grouped, WEEK)
    assert failed(found) == ["no_shared_keys"]
    assert "3 values of ['depot'] are in train and in validation" in found[0].reason


def test_a_warning_refuses_nothing_and_severity_is_the_specs(
    sound: Rows, spec: PipelineSpec
) -> None:
    def saying(severity: str) -> PipelineSpec:
        leaks = {"split_bias": {"severity": severity}}
        return PipelineSpec.model_validate({**spec.model_dump(), "leaks": leaks})

    found = examine(another_depot(sound), spec, WEEK)
    assert refusal(found, saying("warning"), "x") is None
    told = refusal(found, saying("critical"), "deliveries/training_set")
    assert told is not None
    assert "deliveries/training_set: 1 leak guard failed; nothing was published" in told
    certain = examine(a_key_twice(sound), spec, WEEK)
    assert refusal(certain, saying("warning"), "x"), "what is certain blocks always"


def test_declared_exceptions_are_no_findings(sound: Rows, spec: PipelineSpec) -> None:
    leaks = {"split_bias": {"except_for": ("depot",)}, "target_proxy": {"except_for": ("load",)}}
    declared = PipelineSpec.model_validate({**spec.model_dump(), "leaks": leaks})
    assert failed(examine(another_depot(sound), declared, WEEK)) == []
    assert "no_target_proxy" not in failed(examine(the_answer(sound), declared, WEEK))


def test_a_feature_may_tell_no_more_than_the_leak_alarm_lets_the_model(
    sound: Rows, spec: PipelineSpec
) -> None:
    alarm = examine(sound, spec, WEEK)[3]
    assert (alarm.name, alarm.bound) == ("no_target_proxy", 0.99), "of the gate leak_alarm"
    stricter = PipelineSpec.model_validate(
        {**spec.model_dump(), "leaks": {"target_proxy": {"bound": 0.6}}}
    )
    found = examine(sound, stricter, WEEK)
    assert failed(found) == ["no_target_proxy"]
    assert found[3].named == ("load",)


# --- rows that are equal by chance ----------------------------------------------------------------


def test_few_columns_of_few_values_are_equal_by_chance(spec: PipelineSpec, sound: Rows) -> None:
    coarse: Rows = {
        name: rows.with_columns(load=1.0, recent_late=0.3) for name, rows in sound.items()
    }
    found = examine(coarse, spec, WEEK)
    assert failed(found) == []
    shared = examine(copies(sound), spec, WEEK)[2]
    assert shared.named[:2] == ("(90000,)", "(90001,)"), "the rows are named"


def test_five_equal_rows_prove_nothing(spec: PipelineSpec, sound: Rows) -> None:
    few: Rows = {
        **sound,
        "holdout": pl.concat([copies(sound)["holdout"].head(5), sound["holdout"][300:]]),
    }
    assert failed(examine(few, spec, WEEK)) == []


# --- proxies of labels of every task --------------------------------------------------------------

FEATURES = FeaturesSpec(
    function="f.py:b",
    key=("k",),
    decision_at="at",
    numeric=("noise", "copy"),
    categorical=("word",),
)


def labelled(task: Task, strength: float, seed: int) -> pl.DataFrame:
    """A label, a feature that is the label but for noise, and one that says nothing."""
    draw = np.random.default_rng(seed)
    hidden = draw.lognormal(0, 1.5, 4000)
    third = np.digitize(hidden, np.quantile(hidden, [1 / 3, 2 / 3]))
    label = {
        "binary": hidden > 1,
        "multiclass": np.array(CLASSES)[third],
        "regression": hidden,
        "ranking": third,
    }[task]
    blurred = np.exp(np.log(hidden) + draw.normal(0, 1 - strength, 4000))
    word = [f"w{n}" for n in draw.integers(0, 2000, 4000)]
    return pl.DataFrame(
        {"y": label, "noise": draw.normal(size=4000), "copy": blurred, "word": word}
    )


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "ranking"])
def test_a_label_in_disguise_is_found_and_a_good_feature_is_not(
    task: Task, spec: PipelineSpec
) -> None:
    classes = CLASSES if task == "multiclass" else ()
    label = LabelSpec(
        column="y", task=task, classes=classes, query="q" if task == "ranking" else None
    )

    def proxies(strength: float) -> LeakFinding:
        rows: Rows = {name: labelled(task, strength, n) for n, name in enumerate(NAMES)}
        return find_proxies(rows, FEATURES, label, spec.leaks.target_proxy, None)

    assert proxies(0.999).named == ("copy",)
    good = proxies(0.0)
    assert good.passed
    assert good.value is not None
    assert 0.3 < good.value < good.bound


def test_a_name_for_each_row_tells_nothing_that_lasts(spec: PipelineSpec) -> None:
    """Two thousand words, learned by heart, would tell the training rows nearly all."""
    label = LabelSpec(column="y", task="binary")
    rows: Rows = {name: labelled("binary", 0.5, n).drop("copy") for n, name in enumerate(NAMES)}
    features = FEATURES.model_copy(update={"numeric": ("noise",)})
    found = find_proxies(rows, features, label, spec.leaks.target_proxy, None)
    assert found.value is not None
    assert found.value < 0.55


def test_a_missing_value_can_be_the_answer(spec: PipelineSpec) -> None:
    label = LabelSpec(column="y", task="binary")
    gone = pl.when(~pl.col("y")).then(pl.col("noise"))
    rows: Rows = {
        n: labelled("binary", 0.0, i).with_columns(noise=gone) for i, n in enumerate(NAMES)
    }
    assert find_proxies(rows, FEATURES, label, spec.leaks.target_proxy, None).named == ("noise",)


def test_too_few_rows_of_a_class_are_not_judged(spec: PipelineSpec, sound: Rows) -> None:
    rare = changed(the_answer(sound), "validation", late=pl.int_range(pl.len()) < 5)
    found = examine(rare, spec, WEEK)[3]
    assert found.passed
    assert found.value is None
    assert "not judged" in found.reason


# --- what was fitted ------------------------------------------------------------------------------


def test_statistics_of_the_training_rows_pass_and_those_of_more_rows_do_not(
    sound: Rows, spec: PipelineSpec, tmp_path: Path
) -> None:
    other = changed(sound, "train", load=pl.col("load") + 1, depot=pl.lit("north"))
    ref = write_labelled(sound, spec.features, spec.label, tmp_path)
    assert find_foreign_fit(load_schema(ref), sound["train"], spec.label).passed
    whole: Rows = {**sound, "train": pl.concat([*sound.values()])}
    ref = write_labelled(whole, spec.features, spec.label, tmp_path)
    found = find_foreign_fit(load_schema(ref), sound["train"], spec.label)
    assert not found.passed
    assert set(found.named) == {"load", "docks", "recent_late", "late"}
    ref = write_labelled(other, spec.features, spec.label, tmp_path)
    found = find_foreign_fit(load_schema(ref), sound["train"], spec.label)
    assert set(found.named) == {"load", "depot"}
    assert (
        "['south', 'west'] are in its vocabulary or in the training rows, not in both"
        in found.reason
    )


@pytest.mark.parametrize("value", [80.19, 26.98, 19.99])
def test_a_constant_of_training_is_fitted_on_training(
    sound: Rows, spec: PipelineSpec, tmp_path: Path, value: float
) -> None:
    """The deviation of equal values is rounding, another one for each way to add them up."""
    same = changed(sound, "train", load=pl.lit(value))
    schema = load_schema(write_labelled(same, spec.features, spec.label, tmp_path))
    assert find_foreign_fit(schema, same["train"], spec.label).passed


def test_a_null_flag_of_other_rows_is_found(
    sound: Rows, spec: PipelineSpec, tmp_path: Path
) -> None:
    holes = changed(sound, "train", docks=pl.when(pl.col("docks") > 1).then("docks"))
    ref = write_labelled(holes, spec.features, spec.label, tmp_path)
    filled = holes["train"].with_columns(pl.col("docks").fill_null(strategy="mean"))
    named = find_foreign_fit(load_schema(ref), filled, spec.label).named
    assert named == ("docks",)


@pytest.mark.parametrize("task", ["multiclass", "regression", "ranking"])
def test_the_label_of_every_task_is_counted_again(task: Task, tmp_path: Path) -> None:
    classes = CLASSES if task == "multiclass" else ()
    label = LabelSpec(
        column="y", task=task, classes=classes, query="q" if task == "ranking" else None
    )
    rows: Rows = {
        n: labelled(task, 0.5, i).with_columns(q=pl.int_range(pl.len()) // 9)
        for i, n in enumerate(NAMES)
    }
    schema = load_schema(write_labelled(rows, FEATURES, label, tmp_path))
    assert find_foreign_fit(schema, rows["train"], label).passed
    found = find_foreign_fit(schema, rows["train"].sort("y").head(3000), label)
    assert ("y" in found.named) == (task != "ranking"), "a ranking has no rate and no scale"


# --- the spec -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "  label:",
            "  leaks: {target_proxy: {except_for: [lode]}}\n  label:",
            "['lode'] are not features",
        ),
        (
            "  label:",
            "  leaks: {split_bias: {except_for: [when]}}\n  label:",
            "['when'] are not features",
        ),
        ("  label:", "  leaks: {shared_rows: {at_most: 2}}\n  label:", "less than or equal to 1"),
        (
            "split: {kind: time,",
            "split: {kind: time+group, groups: [late],",
            "has the label 'late'",
        ),
        ("split: {kind: time,", "split: {kind: time+group,", "the key is missing"),
        (
            "contract: orders.json",
            "contract: orders.json\n      after_event: [load]",
            "known too late",
        ),
        (
            "contract: orders.json",
            "contract: orders.json\n      after_event: [lode]",
            "not declared",
        ),
        (
            "contract: orders.json",
            "contract: orders.json\n      after_event: [order]",
            "identifies the rows",
        ),
    ],
)
def test_what_does_not_fit_is_a_mistake_of_the_spec(
    folder: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    copy = tmp_path / "deliveries"
    copy.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    text = (copy / "defs.yaml").read_text()
    assert old in text
    (copy / "defs.yaml").write_text(text.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load_spec(copy)
    assert isinstance(caught.value, MlAssetsError)
    assert said in str(caught.value)
