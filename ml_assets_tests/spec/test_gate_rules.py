"""Every rule of evaluation, gates and release has a planted fault here, and what is said of it."""

import pytest
from pydantic import TypeAdapter

from ml_assets.spec.gates import HIGHER_IS_BETTER, LOSS_OF, METRICS_OF, GateSpec, MetricName
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import Task
from ml_assets_tests.spec.specs import ROBUST, SPEC, SUPERIOR, Raw, changed, refusal

GROUP: Raw = {"kind": "group_rate", "by": ["shop"]}
HUMAN: Raw = {"kind": "value", "name": "human", "metrics": {"auc": 0.72}, "source": "two buyers"}
RULE: Raw = {"kind": "function", "name": "rule", "function": "features.py:late"}
SLICES: Raw = {"kind": "slices", "columns": ["shop"], "margin": 0.01}
CLOSER: Raw = {"kind": "champion", "rule": "superior", "metric": "log_loss", "relative": True}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("evaluation.simple_model", {"baseline": "trees"}, "names baseline 'trees'"),
        ("evaluation.simple_model", {"baseline": "constant", "min_effect": -1.0}, "min_effect"),
        ("evaluation.baselines.1.by", [], "at least 1 item"),
        ("evaluation.baselines.0.kind", "magic", "'constant', 'group_rate', 'gradient_boosting'"),
        ("evaluation.baselines.1.name", "constant", "baseline name 'constant' is used twice"),
        (
            "evaluation.baselines.0",
            {"kind": "gradient_boosting", "iterations": 0},
            "greater than 0",
        ),
        ("evaluation.baselines.0", RULE | {"function": "../features.py:late"}, "inside"),
        ("evaluation.baselines.0", RULE | {"function": "late"}, "String should match pattern"),
        ("evaluation.baselines.0", HUMAN | {"metrics": {}}, "at least 1 item"),
        ("evaluation.baselines.0", HUMAN | {"metrics": {"f1": 0.7}}, "'auc'"),
        ("evaluation.baselines.0", HUMAN | {"metrics": {"auc": 72.0}}, "no auc is 72: it goes"),
        ("evaluation.baselines.0", HUMAN | {"source": " "}, "at least 1 character"),
        (
            "evaluation.baselines.0",
            HUMAN | {"metrics": {"rmse": 3.0}},
            "baseline 'human' declares rmse, which a binary task does not have; it has auc,",
        ),
        (
            "evaluation.baselines.1",
            HUMAN | {"name": "group_rate", "metrics": {"log_loss": 0.4}},
            "gate 'better' asks for the auc of baseline 'group_rate', which declares log_loss",
        ),
        (
            "evaluation",
            {"baselines": [GROUP, HUMAN], "simple_model": {"baseline": "human"}},
            "names baseline 'human'; of evaluation.baselines ['group_rate'] predict",
        ),
        ("evaluation.block", "week", "'row', 'day' or 'entity'"),
        ("evaluation.bootstrap_samples", 0, "greater than 0"),
        ("evaluation.ndcg_at", 0, "greater than 0"),
        ("evaluation.origins", 1, "greater than or equal to 2"),
        ("evaluation.origins", {"count": 3, "judge": "best"}, "'mean' or 'worst'"),
        ("gates.0.metric", "rmse", "'rmse', which a binary task does not have; it has auc,"),
        ("gates.1.metric", "ndcg", "gate 'better' asks for metric 'ndcg', which a binary task"),
        ("gates.2.metric", "r2", "gate 'leak_alarm' asks for metric 'r2'"),
        ("gates.1.baseline", "oracle", "names baseline 'oracle'; evaluation.baselines has"),
        ("gates.1.name", "quality", "gate name 'quality' is used twice"),
        ("gates.0.at_least", ..., "gate 'quality' needs 'at_least' or 'at_most'"),
        ("gates.0.at_most", 0.1, "at least 0.6 and at most 0.1, which no model meets: exchange"),
        ("gates.0.at_least", 0.95, "'leak_alarm' refuses every model that meets it"),
        ("gates.0.metric", "f1", "'auc'"),
        ("gates.2.kind", "vibes", "'leak_alarm'"),
        ("gates.2", SLICES | {"columns": ["shop", "hour"]}, "asks for shop, hour; evaluation"),
        ("gates.2", SLICES | {"margin": None}, "exactly one of 'margin', 'at_least' and"),
        ("gates.2", SLICES | {"at_least": 0.5}, "exactly one of 'margin', 'at_least' and"),
        ("gates.2", SLICES | {"metric": "auc"}, "'margin' is for the loss"),
        ("gates.2", {"kind": "gap", "column": "shop", "at_most": 0.1}, "slices has []: add it"),
        ("gates.2", {"kind": "calibration", "at_most": 0}, "greater than 0"),
        (
            "gates.2",
            ROBUST | {"missing": None, "shift": None},
            "otherwise there is nothing to test",
        ),
        ("gates.2", ROBUST | {"missing": 1.5}, "less than or equal to 1"),
        ("gates.2", {"kind": "holdout_budget", "at_most": 0}, "greater than 0"),
        ("gates.2", {"kind": "size", "at_most_mb": 0}, "greater than 0"),
        ("gates.2", {"kind": "latency", "at_most_ms": 0}, "greater than 0"),
        ("gates.2", {"kind": "leak_alarm"}, "Field required"),
        ("gates.2", {"kind": "champion", "margin": -0.1}, "greater than or equal to 0"),
        ("gates.2", {"kind": "champion", "rule": "better"}, "'non_inferior' or 'superior'"),
        ("gates.2", {"kind": "champion", "if_not_comparable": "shrug"}, "'refuse' or 'accept'"),
        ("gates.2", {"kind": "champion", "metric": "f1"}, "'auc'"),
        ("gates.2", {"kind": "champion", "relative": True}, "share of a metric: name the 'metric'"),
        ("gates.2", {"kind": "champion", "seeds": 1}, "a spread takes at least 2 models"),
        ("gates.2", {"kind": "champion", "min_effect": 0.1}, "'min_effect' is for rule 'superior'"),
        ("gates.2", SUPERIOR | {"margin": 0.2}, "'min_effect' must be above 'margin'"),
        ("gates.2", SUPERIOR | {"metric": "auc", "min_effect": 1.5}, "every model fails. Give"),
        ("gates.2", SUPERIOR | {"min_effect": 40.0}, "Give a number between 0 and 36.1"),
        ("gates.2", CLOSER | {"min_effect": 2.0}, "has min_effect: 2, which decides nothing"),
        ("gates.2", CLOSER | {"margin": 1.0}, "has margin: 1, which decides nothing"),
        ("release", {"to": "moon"}, "'staging', 'canary' or 'production'"),
        ("release", {"to": "staging", "canary": {"periods": 1}}, "set 'to: production', or remove"),
        ("release", {"canary": {"periods": 0}}, "greater than 0"),
        (
            "release",
            {"canary": {"gate": "leak_alarm"}},
            "is not a champion gate; gates has none: add",
        ),
        ("release", {"canary": "later"}, "'none'"),
    ],
)
def test_a_wrong_judgement_is_refused_with_its_reason(path: str, value: object, said: str) -> None:
    assert said in refusal(changed(SPEC, {path: value}))


def test_holdouts_that_follow_each_other_need_an_order_and_room() -> None:
    rolled = changed(SPEC, {"evaluation.origins": 4})
    spec = PipelineSpec.model_validate(rolled)
    assert spec.evaluation.origins
    assert (spec.evaluation.origins.count, spec.evaluation.origins.judge) == (4, "mean")
    grouped = {"kind": "stratified_group", "groups": ["shop"]}
    whole = changed(rolled, {"partitions": {}})
    for name, source in whole["sources"].items():
        source["partitioned"] = False
        if "path" in source:
            source["path"] = f"landing/{name}"
    for split, said in (
        (grouped, "holdouts one after the other: use a split of kind: time"),
        ({"kind": "random"}, "holdouts one after the other: use a split of kind: time"),
        (
            {"kind": "time", "holdout": 0.2},
            "4 holdouts of 0.2 and validation are 95% of the rows, and leave too few rows to "
            "train on: ask for at most 3",
        ),
    ):
        assert said in refusal(changed(whole, {"split": split}))
    for name, value in (("init_from", "release"), ("distill", {"from": "release"})):
        said = refusal(changed(rolled, {f"training.{name}": value}))
        assert f"training.{name} names a model that may have seen the earlier holdouts" in said


def test_a_canary_needs_a_next_partition_and_a_champion_gate() -> None:
    champion = {"kind": "champion", "name": "not_worse"}
    whole = changed(SPEC, {"gates": [*SPEC["gates"], champion]})
    asks = changed(whole, {"release": {"canary": {"gate": "not_worse"}}})
    accepted = PipelineSpec.model_validate(asks)
    assert accepted.release.entrance == "canary"
    assert accepted.release.canary != "none" and accepted.release.canary.periods == 1
    for change, said in (
        ({"partitions": {"cadence": "none"}}, "release.canary waits for the next partition"),
        ({"split": {"kind": "random"}}, "this split holds out no whole partitions"),
        ({"release": {"canary": {}}}, "'champion' is not a champion gate; gates has ['not_worse']"),
    ):
        assert said in refusal(changed(asks, change))


@pytest.mark.parametrize(
    "gate",
    [
        {"metric": "auc", "min_effect": 1.0},
        {"metric": "auc", "relative": True, "min_effect": 3.0},
        {"metric": "log_loss", "relative": True, "min_effect": 1.0},
        {"metric": "auc", "relative": True, "margin": 1.5},
    ],
)
def test_an_effect_that_some_challenger_could_have_is_accepted(gate: Raw) -> None:
    asked = {"kind": "champion", "rule": "superior", **gate}
    assert PipelineSpec.model_validate(changed(SPEC, {"gates.2": asked}))


def test_a_declared_effect_takes_the_place_of_the_margin() -> None:
    gate = TypeAdapter(GateSpec).validate_python(SUPERIOR)
    assert gate.margin == 0
    assert TypeAdapter(GateSpec).validate_python(gate.model_dump(mode="json")) == gate


def test_a_shift_is_of_numbers_and_calibration_of_probabilities() -> None:
    words = changed(SPEC, {"features.numeric": [], "gates.2": ROBUST})
    assert "features.numeric is empty: set shift to null" in refusal(words)
    gates = [{"kind": "calibration", "at_most": 0.1}]
    number = changed(SPEC, {"label.task": "regression", "gates": gates})
    assert "is about probabilities, which a regression task" in refusal(number)


def test_every_task_has_metrics_and_a_loss() -> None:
    assert set(METRICS_OF) == set(LOSS_OF) == set(Task.__args__)
    assert all(set(METRICS_OF[task]) <= set(HIGHER_IS_BETTER) for task in METRICS_OF)


def test_a_gate_against_the_champion_refuses_what_it_cannot_compare() -> None:
    gate = TypeAdapter(GateSpec).validate_python({"kind": "champion"})
    assert (gate.rule, gate.if_not_comparable) == ("non_inferior", "refuse")


def test_every_metric_says_which_way_is_better() -> None:
    assert set(HIGHER_IS_BETTER) == set(MetricName.__args__)
