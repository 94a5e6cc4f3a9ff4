"""What a split leaks is planted here: each guard finds its own leak, and sound rows trip none."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.feature_set.leak_checks import refusal
from ml_assets.assets.training_set import row_hashes
from ml_assets.errors import MlAssetsError, SpecError
from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets_tests.assets.training_set.split_leaks.labelled_rows import (
    WEEK,
    Rows,
    changed,
    examine,
    in_parts,
    the_answer,
)


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
