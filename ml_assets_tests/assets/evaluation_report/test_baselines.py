"""The baselines: fitted on training rows only, the same twice, whole on what they never saw."""

import tracemalloc

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from ml_assets.assets.evaluation_report.baselines import (
    Rows,
    score_baseline,
    score_rule,
    spread_shards,
)
from ml_assets.assets.evaluation_report.metrics.metrics import point_metrics
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import SpecError
from ml_assets.spec.gates import (
    ConstantBaseline,
    FunctionBaseline,
    GradientBoostingBaseline,
    GroupRateBaseline,
)
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training_program import Shard

BINARY = LabelSpec(column="late", task="binary")
THREE = LabelSpec(column="kind", task="multiclass", classes=("a", "b", "c"))


def rows(late, numeric=None, categorical=None, label=BINARY, **columns):
    count = len(late)
    frame = pl.DataFrame({label.column: late, **columns})
    numeric = np.zeros((count, 0), np.float32) if numeric is None else numeric
    categorical = np.zeros((count, 0), np.int32) if categorical is None else categorical
    return Rows.of(label, frame, lambda: [(numeric, categorical)])


def test_the_constant_is_the_rate_of_the_training_split():
    train, holdout = rows([True, False, False, False]), rows([True, True])
    scores = score_baseline(ConstantBaseline(kind="constant"), train, holdout, BINARY)
    assert scores.tolist() == [[0.25], [0.25]]
    train = rows(["a", "a", "b", "c"], label=THREE)
    scores = score_baseline(
        ConstantBaseline(kind="constant"), train, rows(["c"], label=THREE), THREE
    )
    assert scores.tolist() == [[0.5, 0.25, 0.25]]


def test_a_group_rate_is_smoothed_to_the_mean_and_an_unseen_group_gets_the_mean():
    train = rows([True] * 30 + [False] * 10, carrier=["AA"] * 20 + ["UA"] * 20)
    holdout = rows([False] * 3, carrier=["AA", "UA", "new"])
    spec = GroupRateBaseline(kind="group_rate", by=("carrier",))
    scores = score_baseline(spec, train, holdout, BINARY)[:, 0]
    assert scores == pytest.approx([(20 + 15) / 40, (10 + 15) / 40, 0.75])


def test_groups_are_pairs_and_null_is_a_value():
    train = rows([True] * 20 + [False] * 20, a=["x"] * 40, b=[None] * 20 + [1] * 20)
    holdout = rows([True, True], a=["x", "x"], b=[None, 1])
    spec = GroupRateBaseline(kind="group_rate", by=("a", "b"))
    assert score_baseline(spec, train, holdout, BINARY)[:, 0] == pytest.approx([0.75, 0.25])


def test_multiclass_group_rates_sum_to_one():
    train = rows(["a", "b", "c", "a"], label=THREE, g=[1, 1, 2, 2])
    spec = GroupRateBaseline(kind="group_rate", by=("g",))
    scores = score_baseline(spec, train, rows(["a", "a"], label=THREE, g=[2, 9]), THREE)
    assert scores.shape == (2, 3)
    assert scores.sum(axis=1) == pytest.approx([1, 1])


def test_a_column_that_is_not_there_is_named():
    spec = GroupRateBaseline(kind="group_rate", by=("carrier",))
    with pytest.raises(SpecError, match=r"'carrier'.*has \['late'\]"):
        score_baseline(spec, rows([True]), rows([True]), BINARY)


def boosting_rows(seed, count=3000):
    rng = np.random.default_rng(seed)
    numeric = rng.normal(size=(count, 2)).astype(np.float32)
    codes = rng.integers(0, 600, (count, 1)).astype(np.int32)
    logit = 2 * numeric[:, 0] + np.where(codes[:, 0] % 2, 1.0, -1.0)
    late = rng.random(count) < 1 / (1 + np.exp(-logit))
    numeric[::7, 1] = np.nan
    return rows(late, numeric, codes)


def test_gradient_boosting_learns_takes_wide_columns_and_nan_and_is_the_same_twice():
    train, holdout = boosting_rows(0), boosting_rows(1, 1000)
    spec = GradientBoostingBaseline(kind="gradient_boosting", iterations=40)
    scores = score_baseline(spec, train, holdout, BINARY)
    assert scores.shape == (1000, 1)
    assert point_metrics(Truth("binary", holdout.label), scores)["auc"] > 0.7
    assert np.array_equal(scores, score_baseline(spec, train, holdout, BINARY))


def test_gradient_boosting_gives_a_class_it_never_saw_no_chance():
    rng = np.random.default_rng(0)
    numeric = rng.normal(size=(300, 1)).astype(np.float32)
    kind = np.where(numeric[:, 0] > 0, "a", "c").tolist()
    train = rows(kind, numeric, label=THREE)
    spec = GradientBoostingBaseline(kind="gradient_boosting", iterations=5)
    scores = score_baseline(spec, train, train, THREE)
    assert scores.shape == (300, 3)
    assert (scores[:, 1] == 0).all()
    assert scores.sum(axis=1) == pytest.approx(np.ones(300))


@pytest.mark.parametrize(("late", "expected"), [(True, 1.0), (False, 0.0)])
def test_gradient_boosting_on_one_class_says_that_class(late, expected):
    train = rows([late] * 30, np.zeros((30, 1), np.float32))
    spec = GradientBoostingBaseline(kind="gradient_boosting", iterations=5)
    assert (score_baseline(spec, train, train, BINARY) == expected).all()


def test_a_label_that_is_not_declared_is_named():
    with pytest.raises(SpecError, match=r"1 of 2 values.*'z'"):
        rows(["a", "z"], label=THREE)
    with pytest.raises(SpecError, match="true or false"):
        rows([0, 3])
    with pytest.raises(SpecError, match="1 of 2"):
        rows([True, None])


RENT = LabelSpec(column="rent", task="regression")
GRADE = LabelSpec(column="grade", task="ranking", query="search")


@pytest.mark.parametrize("label", [RENT, GRADE], ids=["regression", "ranking"])
def test_a_number_is_predicted_by_its_mean_and_its_groups_mean(label):
    train = rows([0.0] * 20 + [2.0] * 20, label=label, g=["a"] * 20 + ["b"] * 20)
    holdout = rows([1.0] * 3, label=label, g=["a", "b", "new"])
    constant = score_baseline(ConstantBaseline(kind="constant"), train, holdout, label)
    assert constant.tolist() == [[1.0]] * 3
    spec = GroupRateBaseline(kind="group_rate", by=("g",))
    assert score_baseline(spec, train, holdout, label)[:, 0] == pytest.approx([0.5, 1.5, 1.0])


@pytest.mark.parametrize("label", [RENT, GRADE], ids=["regression", "ranking"])
def test_gradient_boosting_learns_a_number_and_is_the_same_twice(label):
    def some(seed, count):
        rng = np.random.default_rng(seed)
        numeric = rng.normal(size=(count, 2)).astype(np.float32)
        codes = rng.integers(0, 600, (count, 1)).astype(np.int32)
        return rows((3 + numeric[:, 0]).clip(0).tolist(), numeric, codes, label=label)

    train, holdout = some(0, 3000), some(1, 500)
    spec = GradientBoostingBaseline(kind="gradient_boosting", iterations=40)
    scores = score_baseline(spec, train, holdout, label)
    assert scores.shape == (500, 1)
    assert point_metrics(Truth("regression", holdout.label), scores)["r2"] > 0.9
    assert np.array_equal(scores, score_baseline(spec, train, holdout, label))


def test_a_label_that_is_no_such_number_is_named():
    with pytest.raises(SpecError, match="1 of 2 values are not finite numbers"):
        rows([1.0, float("nan")], label=RENT)
    with pytest.raises(SpecError, match="1 of 2 values are not grades of relevance"):
        rows([1.0, -1.0], label=GRADE)


RULE = FunctionBaseline(kind="function", name="rule", function="features.py:rule")


def test_a_rule_of_the_teams_sees_the_labels_of_the_training_split_only():
    train, holdout = rows([True, False], wind=[3, 1]), rows([True, True, False], wind=[9, 2, 0])

    def rule(train, holdout):
        assert train.columns == ["late", "wind"]
        assert holdout.columns == ["wind"]
        windy = train.filter("late")["wind"].min()
        return holdout.select(pl.when(pl.col("wind") >= windy).then(0.9).otherwise(0.1)).to_series()

    assert score_rule(RULE, rule, train, holdout, BINARY).tolist() == [[0.9], [0.1], [0.1]]


def test_a_rule_gives_each_class_a_column():
    two = rows(["a", "c"], label=THREE)
    shares = [[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]
    for returned in (np.array(shares), pl.DataFrame(shares, schema=["a", "b", "c"], orient="row")):
        found = score_rule(RULE, lambda *_, back=returned: back, two, two, THREE)
        assert found.tolist() == shares


@pytest.mark.parametrize(
    ("returned", "label", "said"),
    [
        (None, BINARY, r"each of the 2 holdout rows.*is \(\)"),
        (pl.Series(["x", "y"]), BINARY, "numbers, one for each row"),
        (pl.Series([0.5]), BINARY, r"each of the 2 holdout rows.*is \(1,\)"),
        (pl.Series([0.5, None]), BINARY, "finite numbers; of 2 rows 1 have a null"),
        (np.array([0.5, 1.5]), BINARY, "from 0 to 1; it returned 0.5 to 1.5"),
        (np.array([0.5, 0.5]), THREE, "for each of its 3 classes for each of the 2 holdout rows"),
        (np.full((2, 3), 0.5), THREE, "whose sum is 1 in each row; it is 1.5 to 1.5"),
    ],
)
def test_what_is_no_prediction_is_refused_with_what_was_asked_for(returned, label, said):
    two = rows([True, False] if label is BINARY else ["a", "b"], label=label)
    with pytest.raises(SpecError, match=f"baseline 'rule': features.py:rule must return .*{said}"):
        score_rule(RULE, lambda *_: returned, two, two, label)


def test_values_need_not_be_probabilities():
    label = LabelSpec(column="late", task="regression")
    two = rows([1.0, 2.0], label=label)
    assert score_rule(RULE, lambda *_: [7, -3], two, two, label).tolist() == [[7.0], [-3.0]]


def test_shards_are_spread_evenly_and_the_last_is_among_them() -> None:
    shards = tuple(Shard(rows=10, digest=f"{n:064x}", table="0" * 64) for n in range(10))
    assert spread_shards(shards, 100) == shards
    assert spread_shards(shards, 99) == shards[1::2]
    assert spread_shards(shards, 30) == (shards[1], shards[5], shards[9])
    assert spread_shards(shards, 5) == shards[-1:] == spread_shards(shards[-1:], 5)


@pytest.mark.parametrize(
    ("late", "label"),
    [
        (["a"] * 100 + ["b"] * 99 + ["c"], THREE),
        (["a", "b", "c"] * 4, THREE),
        ([False] * 199 + [True], BINARY),
        ([False] * 3 + [True] * 3, BINARY),
    ],
    ids=["one row of a class", "fewer rows held back than classes", "one positive", "six rows"],
)
def test_boosting_is_a_baseline_of_rare_classes_and_few_rows_too(late, label):
    numeric = np.random.default_rng(0).random((len(late), 2), np.float32)
    own = rows(late, numeric, label=label)
    scores = score_baseline(GradientBoostingBaseline(kind="gradient_boosting"), own, own, label)
    assert scores.shape == (len(late), 3 if label is THREE else 1)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("label", [BINARY, RENT], ids=["binary", "regression"])
def test_boosting_is_what_scikit_learn_makes_of_the_same_rows_by_itself(label):
    def some(seed, count):
        rng = np.random.default_rng(seed)
        numeric = rng.normal(size=(count, 2)).astype(np.float32)
        codes = rng.choice(4, (count, 1), p=[0.4, 0.3, 0.2, 0.1]).astype(np.int32)
        seen = numeric[:, 0] + codes[:, 0] + rng.normal(size=count) - 1
        late = (seen > 0 if label is BINARY else seen).tolist()
        return rows(late, numeric, codes, label=label), np.hstack([numeric, codes])

    (train, own), (holdout, asked) = some(0, 2000), some(1, 500)
    options = {"max_iter": 200, "early_stopping": True, "random_state": 0}
    kind = HistGradientBoostingClassifier if label is BINARY else HistGradientBoostingRegressor
    model = kind(**options, categorical_features=[2]).fit(own, train.label)
    expected = model.predict_proba(asked)[:, 1:] if label is BINARY else model.predict(asked)
    assert model.n_iter_ < 200
    spec = GradientBoostingBaseline(kind="gradient_boosting", iterations=200)
    assert np.array_equal(score_baseline(spec, train, holdout, label), expected.reshape(-1, 1))


def test_boosting_holds_little_beside_what_scikit_learn_makes_of_the_rows():
    count, numbers, words, parts = 20_000, 50, 10, 40

    def shards():
        rng = np.random.default_rng(0)
        for _ in range(parts):
            numeric = rng.normal(size=(count // parts, numbers)).astype(np.float32)
            yield numeric, rng.integers(0, 20, (count // parts, words)).astype(np.int32)

    train = Rows.of(BINARY, pl.DataFrame({"late": np.arange(count) % 3 == 0}), shards)
    nobody = rows([True], np.zeros((1, numbers), np.float32), np.zeros((1, words), np.int32))
    spec = GradientBoostingBaseline(kind="gradient_boosting", iterations=1)
    score_baseline(spec, boosting_rows(0, 100), boosting_rows(1, 100), BINARY)  # its imports
    tracemalloc.start()
    try:
        score_baseline(spec, train, nobody, BINARY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    as_float64 = 8 * count * (numbers + words)
    assert peak < 2.9 * as_float64, peak / as_float64
