"""Every rule of a spec has a planted fault here, and a message that says what to change."""

import copy
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from pydantic import TypeAdapter, ValidationError

from ml_assets.settings import SHOWN_AFTER_DEMO
from ml_assets.spec.base import canonical_json
from ml_assets.spec.documents import read_yaml
from ml_assets.spec.ensemble import Distill
from ml_assets.spec.gates import (
    HIGHER_IS_BETTER,
    LOSS_OF,
    METRICS_OF,
    BaselineSpec,
    GateSpec,
    MetricName,
)
from ml_assets.spec.gpt import Gpt
from ml_assets.spec.paths import inside
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import EventsSource, FilesSource, SourceSpec, SqlSource
from ml_assets.spec.training import ModelSpec, Task, TrainingSpec
from ml_assets.spec.training_program import training_world

Raw = dict[str, Any]

CODE_LM = SHOWN_AFTER_DEMO / "code" / "code_lm" / "defs.yaml"

FILES: Raw = {
    "kind": "files",
    "path": "landing/orders/{partition}.csv",
    "format": "csv",
    "columns": {"order": "int64", "shop": "string", "placed": "datetime"},
    "key": ["order"],
    "contract": "contracts/orders.json",
}
REFERENCES: Raw = {
    **FILES,
    "format": "binary",
    "path": "images/{partition}/*.jpg",
    "columns": {"path": "string", "bytes": "int64"},
    "key": ["bytes"],
}
EVENTS: Raw = {
    "kind": "events",
    "path": "events/returns/{partition}.jsonl",
    "columns": {"order": "int64", "seen": "datetime"},
    "key": ["order"],
    "contract": "contracts/returns.json",
    "known_at": "seen",
}
SQL: Raw = {
    "kind": "sql",
    "connection": "WAREHOUSE",
    "table": "public.stock",
    "columns": {"shop": "string", "counted": "datetime"},
    "key": ["shop", "counted"],
    "contract": "contracts/stock.json",
    "watermark": "counted",
}
CLOSED: Raw = {"reads": ["orders"], "function": "features.py:closed", "key": ["order"]}
KINDS: Raw = {"column": "kind", "task": "multiclass"}
RANKING: Raw = {"column": "rank", "task": "ranking", "query": "basket"}
SPEC: Raw = {
    "schema": 1,
    "name": "returns",
    "description": "Will the order come back?",
    "owner": "team:shop",
    "partitions": {"cadence": "weekly", "start": "2024-01-01", "timezone": "Europe/Berlin"},
    "sources": {"orders": FILES, "returns": EVENTS, "stock": SQL},
    "features": {
        "function": "features.py:build",
        "key": ["order"],
        "decision_at": "placed",
        "numeric": ["price"],
        "categorical": ["shop"],
        "look_back": 2,
    },
    "label": {"column": "came_back", "task": "binary"},
    "split": {"kind": "time", "train": 8, "validation": 2, "holdout": 2},
    "model": {"family": "tabm"},
    "training": {"batch_size": 240, "microbatches": 24},
    "evaluation": {"baselines": [{"kind": "constant"}, {"kind": "group_rate", "by": ["shop"]}]},
    "gates": [
        {"kind": "bound", "name": "quality", "metric": "auc", "at_least": 0.6},
        {
            "kind": "baseline",
            "name": "better",
            "metric": "auc",
            "baseline": "group_rate",
            "margin": 0.02,
        },
        {"kind": "leak_alarm", "bound": 0.95},
    ],
}


GROUP: Raw = {"kind": "group_rate", "by": ["shop"]}
HUMAN: Raw = {"kind": "value", "name": "human", "metrics": {"auc": 0.72}, "source": "two buyers"}
RULE: Raw = {"kind": "function", "name": "rule", "function": "features.py:late"}
SLICES: Raw = {"kind": "slices", "columns": ["shop"], "margin": 0.01}
ROBUST: Raw = {"kind": "robustness", "at_most": 0.1}
SUPERIOR: Raw = {"kind": "champion", "rule": "superior", "min_effect": 0.1}
CLOSER: Raw = {"kind": "champion", "rule": "superior", "metric": "log_loss", "relative": True}


def changed(raw: Raw, path: str, value: object) -> Raw:
    """A copy with the value at ``a.b.0.c`` set, or removed where ``value`` is ``...``."""
    whole = copy.deepcopy(raw)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    here: Any = whole
    for part in parents:
        here = here[part]
    if value is ...:
        del here[last]
    else:
        here[last] = value
    return whole


def refusal(check: Callable[[], object]) -> str:
    with pytest.raises(ValidationError) as caught:
        check()
    return str(caught.value)


def test_the_whole_spec_is_accepted() -> None:
    spec = PipelineSpec.model_validate(SPEC)
    assert spec.schema_version == 1
    assert isinstance(spec.sources["orders"], FilesSource)
    assert isinstance(spec.sources["returns"], EventsSource)
    assert isinstance(spec.sources["stock"], SqlSource)
    assert spec.features.key == ("order",)
    assert spec.release.to == "production"


@pytest.mark.parametrize(
    "place",
    [{"kind": "delta", "path": "s3://lake/stock"}, {"kind": "iceberg", "catalog": "lake"}],
)
def test_a_lakehouse_table_is_parted_by_its_watermark(place: Raw) -> None:
    table = {k: v for k, v in SQL.items() if k not in ("kind", "connection", "table")} | place
    if place["kind"] == "iceberg":
        table["table"] = "shop.stock"
    spec = PipelineSpec.model_validate(changed(SPEC, "sources.stock", table))
    assert spec.sources["stock"].partitioned


def test_three_of_the_newest_and_three_of_the_best_checkpoints_are_kept_by_default() -> None:
    fields = TrainingSpec.model_fields
    assert (fields["keep_last"].default, fields["keep_best"].default) == (3, 3)


def test_what_a_spec_says_survives_being_written_and_read_again() -> None:
    spec = PipelineSpec.model_validate(SPEC)
    assert PipelineSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        ({"columns": ["prices"]}, "no feature is called 'prices'. Did you mean 'price'?"),
        ({"columns": ["prise*"]}, "no feature is called 'prise*'. Did you mean 'price'?"),
        ({"columns": ["s*", "price"]}, "it has numeric and categorical columns: declare a tensor"),
        ({"columns": ["price"], "shape": [2, 3]}, r"shape [2, 3] holds 6 values of a row, and"),
        (
            {"columns": ["shop"], "nulls": True},
            "nulls is for numbers; in a category, code 0 means null",
        ),
    ],
)
def test_a_tensor_that_the_features_do_not_make_is_refused(tensor: Raw, said: str) -> None:
    model: Raw = {"family": "module", "module": "n.py:build"}
    good = {**SPEC, "model": {**model, "batch": {"paid": {"columns": ["price"], "shape": [1, 1]}}}}
    spec = PipelineSpec.model_validate(good)
    assert PipelineSpec.model_validate(spec.model_dump(mode="json")) == spec
    wrong = {**SPEC, "model": {**model, "batch": {"paid": tensor}}}
    assert f"model.batch.paid: {said}" in refusal(lambda: PipelineSpec.model_validate(wrong))


BOOSTED: Raw = {**SPEC, "model": {"family": "lightgbm"}, "training": {"evaluate_every": 10}}


def test_a_boosted_model_may_be_declared_and_survives_being_written_and_read_again() -> None:
    spec = PipelineSpec.model_validate(BOOSTED)
    written = spec.model_dump(mode="json")
    assert "processes" not in written["training"]
    assert PipelineSpec.model_validate(written) == spec


@pytest.mark.parametrize("field", ["epochs", "processes", "warmup", "precision"])
def test_what_has_no_meaning_for_boosted_trees_is_refused_even_at_its_default(field: str) -> None:
    default = TrainingSpec.model_fields[field].default
    said = refusal(
        lambda: PipelineSpec.model_validate(changed(BOOSTED, f"training.{field}", default))
    )
    assert f"training.{field}: it has no meaning for model.family 'lightgbm'" in said


def test_one_process_grows_the_trees_of_a_boosted_model() -> None:
    boosted, network = PipelineSpec.model_validate(BOOSTED), PipelineSpec.model_validate(SPEC)
    assert training_world(boosted.model, boosted.training).procs == 1
    assert training_world(network.model, network.training).procs == 2


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        # the simple model
        ("evaluation.simple_model", {"baseline": "trees"}, "names baseline 'trees'"),
        ("evaluation.simple_model", {"baseline": "constant", "min_effect": -1.0}, "min_effect"),
        ("training.checkpoint_minutes", 0.0, "checkpoint_minutes"),
        ("model", {"family": "lightgbm", "num_leaves": 1}, "num_leaves"),
        # the spec as a whole
        ("schema", 2, "schema"),
        ("name", "Returns", "pattern"),
        ("name", "2nd", "pattern"),
        ("name", "a" * 64, "pattern"),
        ("description", "", "at least 1 character"),
        ("owner", "the shop team", "it must be team:NAME, or an e-mail address"),
        ("owner", "someone@nowhere", "it must be team:NAME, or an e-mail address"),
        ("colour", "red", "Extra inputs are not permitted"),
        ("sources", {}, "at least 1 item"),
        ("sources", {"Orders": FILES}, "pattern"),
        ("sources.feature_set", FILES, "has the name of the stage of every pipeline"),
        ("sources.raw_orders", FILES, "the name of the source 'orders' as it was read: choose"),
        ("tables", {"raw_orders": CLOSED}, "the name of the source 'orders' as it was read"),
        ("gates", [], "at least 1 item"),
        ("features", ..., "Field required"),
        # features online
        ("online", {}, "Field required"),
        ("online", {"entity": []}, "at least 1 item"),
        ("online", {"entity": ["price"]}, "['price'] are neither in features.key nor categorical"),
        ("online", {"entity": ["shop"], "features": ["order"]}, "['order'] are not features"),
        ("online", {"entity": ["shop"], "look_back": -1}, "greater than or equal to 0"),
        # partitions
        ("partitions.start", ..., "partitions of cadence 'weekly' need a 'start' date"),
        ("partitions.start", "yesterday", "valid date"),
        ("partitions.end", "2024-01-01", "is not after start 2024-01-01, so there would be no"),
        ("partitions.cadence", "yearly", "'hourly', 'daily', 'weekly' or 'monthly'"),
        ("partitions.timezone", "Europe/Atlantis", "is not an IANA time zone"),
        ("partitions.timezone", "America", "is not an IANA time zone"),
        ("partitions.timezone", "../etc/passwd", "is not an IANA time zone"),
        ("partitions.day_offset", 7, "less than or equal to 6"),
        ("partitions", {}, "sources ['orders', 'returns', 'stock'] are partitioned"),
        ("partitions", {}, "split.kind 'time' counts partitions, and there are none: give shares"),
        ("split", {"kind": "time"}, "a split by time counts partitions where there are any"),
        ("sources.orders.path", "o/{partition:%Y}.csv", "apart: it lacks %m, %d"),
        ("sources.orders.path", "o/{partition:%j}.csv", "as in {partition:%Y-%m}"),
        ("sources.orders.columns._reason", "string", "['_reason'] have names that tables use"),
        ("label.ahead", "6h", "features.key must hold features.decision_at"),
        ("label.ahead", "soon", "is not a duration"),
        ("label.of", "late", "give 'column' and 'ahead'"),
        ("partitions", {}, "features.look_back needs partitions"),
        # features
        ("features.function", "features.build", "pattern"),
        ("features.function", "../other/features.py:build", "stays inside its folder"),
        ("features.function", "/etc/features.py:build", "stays inside its folder"),
        ("features.key", [], "at least 1 item"),
        ("features.look_back", -1, "greater than or equal to 0"),
        ("features.look_back", "2", "valid integer"),
        ("features.engine", {"kind": "duckdb", "memory": 64}, "64 has no unit: write 64Mi or 64Gi"),
        (
            "features.decode",
            {"function": "a.py:b", "name": "p", "width": 4097},
            "less than or equal to 4096",
        ),
        ("features.categorical", ["price"], "features ['price'] are declared twice"),
        ("features.numeric", ["price", "price"], "features ['price'] are declared twice"),
        # label
        ("label.column", "price", "label.column 'price' is also a feature"),
        ("label.column", "shop", "label.column 'shop' is also a feature"),
        ("label.classes", ["yes", "no"], "a binary label is true or false"),
        ("label", KINDS, "needs 'classes', at least two"),
        ("label", {**KINDS, "classes": ["a"]}, "at least two"),
        ("label", {**KINDS, "classes": ["a", "b", "a"]}, "classes ['a'] are there more than once"),
        ("label", {**KINDS, "classes": [1, "1", "b"]}, "classes ['1'] are there more than once"),
        ("label", {"column": "rent", "task": "regression", "classes": ["a"]}, "remove 'classes'"),
        ("label", {"column": "rank", "task": "ranking", "classes": ["a"]}, "needs 'query'"),
        ("label", {"column": "rank", "task": "ranking"}, "needs 'query': the column that says"),
        ("label", {**RANKING, "classes": ["a"]}, "a ranking label is a grade: remove 'classes'"),
        ("label", {**RANKING, "query": "rank"}, "label.query 'rank' is the label itself"),
        (
            "label",
            RANKING,
            "metric 'auc', which a ranking task does not have; it has ndcg",
        ),
        ("label.query", "shop", "'query' is for a ranking label, this one is binary: remove it"),
        # split
        ("split.kind", "shuffle", "'time', 'time+group', 'random'"),
        ("split.train", 0, "greater than 0"),
        ("split.holdout", 1.5, "valid integer"),
        ("split.embargo", -1, "greater than or equal to 0"),
        ("split", {"kind": "random", "validation": 0.0}, "greater than 0"),
        ("split", {"kind": "random", "holdout": 0.5}, "less than 0.5"),
        # model and training
        ("model.family", "forest", "'tabm', 'mlp'"),
        ("model.width", 0, "greater than 0"),
        ("model.dropout", 1.0, "less than 1"),
        ("training.batch_size", 250, "batch_size 250 must be a multiple of microbatches 24"),
        ("training.block_rows", 64, "block_rows and block_window are for order: blocks"),
        ("training.seed", -1, "greater than or equal to 0"),
        ("training.learning_rate", 0.0, "greater than 0"),
        ("training.learning_rate", float("nan"), "finite number"),
        ("training.warmup", 1.1, "less than or equal to 1"),
        ("training.clip_norm", 0, "greater than 0"),
        ("training.positive_weight", 0.0, "greater than 0"),
        ("training.class_weights", [1.0, 2.0], "label, this one is binary: set training.positive"),
        ("training.focal_gamma", 3.0, "set training.loss: focal, or remove it"),
        ("training.oversample", 0.6, "less than or equal to 0.5"),
        ("training.init_from", "old.pt", "a pickle runs code when it is read"),
        ("training.init_from", "production", "must be 'release' or FILE.safetensors@sha256:DIGEST"),
        ("training.init_from", "w.safetensors", "you vouch that the file never saw the holdout"),
        ("training.strategy", "zero1", "use shard, which divides the weights, too"),
        ("training.compile", True, "the blocks of model.family gpt are compiled; 'tabm' has"),
        ("training.parallel", {"tensor": 2}, "this one is 'tabm': remove it, strategy: shard"),
        ("training.strategy", "magic", "'replicate', 'shard' or 'hybrid'"),
        ("training.optimizer", "lion", "'adamw', 'sgd', 'nadam' or 'adafactor'"),
        ("training.schedule", "step", "'constant', 'linear' or 'cosine'"),
        ("training.precision", "fp8", "'fp32', 'bf16' or 'fp16'"),
        ("training.accumulate", 0, "greater than 0"),
        ("training.momentum", 1.0, "less than 1"),
        ("training.momentum", 0.8, "remove momentum, or set optimizer: sgd"),
        ("training.optimizer", "adafactor", "which strategy shard cuts into shards: set strategy"),
        ("training.warmup", 1.0, "no step for schedule cosine to fall: set warmup below 1, or"),
        (
            "training.strategy",
            "hybrid",
            "which is impossible with 2: set processes to 4, 6, 8 or 9",
        ),
        ("training.processes", True, "valid integer"),
        ("training.betas", [0.9, 1.0], "less than 1"),
        ("training.max_steps", 0, "greater than 0"),
        (
            "training.ensemble",
            {"checkpoints": 2, "seeds": 2},
            "checkpoints or seeds: write one",
        ),
        ("training.ensemble", {"checkpoints": 1}, "greater than or equal to 2"),
        ("training.ensemble", {"checkpoints": 4}, "more than keep_best 3 keeps: raise keep_best"),
        ("training.distill", {"from": "production"}, "String should match pattern"),
        ("training.distill", {"from": "release", "weight": 0}, "greater than 0"),
        ("training.distill", {}, "Field required"),
        ("training.augmentation", {}, "give noise, feature_dropout or mixup a value above 0"),
        ("training.augmentation", {"noise": -1.0}, "greater than or equal to 0"),
        ("training.curriculum", {"column": "shop"}, "is not in features.numeric"),
        ("training.curriculum", {"column": "x", "until": 0.0}, "greater than 0"),
        ("training.communication_hook", "fp8", "'powersgd'"),
        ("training.communication_hook", "powersgd", "which strategy shard cuts into shards: set"),
        (
            "training.communication_rank",
            8,
            "it belongs to powersgd: set training.communication_hook",
        ),
        ("training.activation_checkpointing", "block", "nothing to recompute: remove it, and"),
        ("training.activation_checkpointing", "all", "'none', 'block' or 'selective'"),
        ("drift", {"leave_out": ["week"]}, "drift.leave_out: ['week'] are not features"),
        # evaluation and gates
        ("evaluation.baselines.1.by", [], "at least 1 item"),
        ("evaluation.baselines.0.kind", "magic", "'constant', 'group_rate', 'gradient_boosting'"),
        ("evaluation.baselines.1.name", "constant", "baseline name 'constant' is used twice"),
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
def test_a_wrong_pipeline_is_refused_with_its_reason(path: str, value: object, said: str) -> None:
    assert said in refusal(lambda: PipelineSpec.model_validate(changed(SPEC, path, value)))


def test_what_of_a_step_does_not_go_together_is_refused_with_its_reason() -> None:
    spec = read_yaml(CODE_LM.read_text())["attributes"]
    powersgd = {"communication_hook": "powersgd", "strategy": "replicate"}
    for changes, said in (
        ({"compile": True, "parallel": {"tensor": 2}}, "compile: not with parallel.tensor 2"),
        (
            {"compile": True, "activation_checkpointing": "selective"},
            "a compiled block decides itself which products it keeps",
        ),
        ({"strategy": "replicate", "parallel": {"tensor": 2}}, "set strategy to shard"),
        ({"gradient_precision": "bf16", "processes": 1}, "one process sends no gradients"),
        ({**powersgd, "processes": 1}, "communication_hook: one process sends no gradients"),
        ({**powersgd, "precision": "fp16"}, "and fp16 changes the scale: set precision to bf16"),
        ({**powersgd, "gradient_precision": "bf16"}, "powersgd sends in fp32: remove"),
        ({"cpu_offload": True, "strategy": "replicate"}, "replicate keeps everything on each"),
        ({"cpu_offload": True, "parallel": {"tensor": 2}}, "cpu_offload: not with parallel.tensor"),
        ({"betas": [0.9, 0.95], "optimizer": "sgd"}, "betas and eps are for optimizer adamw and"),
        ({"ensemble": {"checkpoints": 2}}, "cannot be averaged: remove it"),
        ({"distill": {"from": "release"}}, "learn from: set training.init_from: release instead"),
        ({"augmentation": {"noise": 0.1}}, "and a window has tokens: remove it"),
        ({"curriculum": {"column": "x"}}, "curriculum: it changes and weighs rows of columns"),
    ):
        raw = changed(spec, "training", {**spec["training"], **changes})
        assert said in refusal(lambda raw=raw: PipelineSpec.model_validate(raw))
    both = {"activation_checkpointing": "block", "parallel": {"tensor": 2}, "processes": 4}
    both["strategy"] = "shard"
    right = changed(spec, "training", {**spec["training"], **both, "gradient_precision": "bf16"})
    assert PipelineSpec.model_validate(right).training.parallel.tensor == 2


TEACHER: Raw = {"from": "release"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"label": RANKING}, "in common: set training.init_from: release instead"),
        (
            {
                "label": {"column": "rent", "task": "regression"},
                "training": {"distill": {**TEACHER, "temperature": 3.0}},
            },
            "a number does not have: remove temperature",
        ),
        (
            {"model": {"family": "lightgbm"}},
            "training.distill: it has no meaning for model.family 'lightgbm'",
        ),
        (
            {"model": {"family": "module", "module": "n.py:build", "loss": "n.py:loss"}},
            "training.distill: it has no meaning with a model.loss of your own; remove one of",
        ),
    ],
)
def test_a_teacher_that_would_have_nothing_to_say_is_refused(changes: Raw, said: str) -> None:
    raw = {**SPEC, "training": {"distill": TEACHER}, **changes}
    assert said in refusal(lambda: PipelineSpec.model_validate(raw))


def test_a_teacher_comes_back_from_the_spec_that_a_record_holds() -> None:
    raw = changed(SPEC, "training.distill", {"from": "1f2e3d4c5b6a", "weight": 2.0})
    spec = PipelineSpec.model_validate(raw)
    again = PipelineSpec.model_validate_json(canonical_json(spec))
    assert again == spec
    assert again.training.distill == Distill(teacher="1f2e3d4c5b6a", weight=2.0)


def test_holdouts_that_follow_each_other_need_an_order_and_room() -> None:
    rolled = changed(SPEC, "evaluation.origins", 4)
    spec = PipelineSpec.model_validate(rolled)
    assert spec.evaluation.origins
    assert (spec.evaluation.origins.count, spec.evaluation.origins.judge) == (4, "mean")
    grouped = {"kind": "stratified_group", "groups": ["shop"]}
    whole = changed(rolled, "partitions", {})
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
        wrong = changed(whole, "split", split)
        assert said in refusal(lambda wrong=wrong: PipelineSpec.model_validate(wrong))
    for name, value in (("init_from", "release"), ("distill", {"from": "release"})):
        begun = changed(rolled, f"training.{name}", value)
        said = refusal(lambda begun=begun: PipelineSpec.model_validate(begun))
        assert f"training.{name} names a model that may have seen the earlier holdouts" in said


def test_what_is_served_online_looks_back_at_partitions_if_there_are_any() -> None:
    online = {"entity": ["shop"], "look_back": 1}
    assert PipelineSpec.model_validate(changed(SPEC, "online", online)).online is not None
    whole = changed(changed(SPEC, "online", online), "partitions", {})
    said = refusal(lambda: PipelineSpec.model_validate(whole))
    assert "online.look_back needs partitions" in said


def test_a_canary_needs_a_next_partition_and_a_champion_gate() -> None:
    champion = {"kind": "champion", "name": "not_worse"}
    whole = changed(SPEC, "gates", [*SPEC["gates"], champion])
    asks = changed(whole, "release", {"canary": {"gate": "not_worse"}})
    accepted = PipelineSpec.model_validate(asks)
    assert accepted.release.entrance == "canary"
    assert accepted.release.canary != "none" and accepted.release.canary.periods == 1
    said = refusal(
        lambda: PipelineSpec.model_validate(changed(asks, "partitions", {"cadence": "none"}))
    )
    assert "release.canary waits for the next partition" in said
    drawn = changed(asks, "split", {"kind": "random"})
    said = refusal(lambda: PipelineSpec.model_validate(drawn))
    assert "this split holds out no whole partitions" in said
    other = changed(whole, "release", {"canary": {}})
    assert "gate 'champion' is not a champion gate; gates has ['not_worse']" in refusal(
        lambda: PipelineSpec.model_validate(other)
    )


def test_a_spec_without_features_is_refused() -> None:
    raw = changed(changed(SPEC, "features.numeric", []), "features.categorical", [])
    assert "at least one 'numeric' or 'categorical'" in refusal(
        lambda: PipelineSpec.model_validate(raw)
    )


def test_problems_between_parts_are_all_told_at_once() -> None:
    raw = changed(changed(SPEC, "partitions", {}), "label.column", "price")
    said = refusal(lambda: PipelineSpec.model_validate(raw))
    assert "are partitioned" in said
    assert "needs partitions" in said
    assert "is also a feature" in said


SOURCE: TypeAdapter[SourceSpec] = TypeAdapter(SourceSpec)


@pytest.mark.parametrize(
    ("raw", "path", "value", "said"),
    [
        (FILES, "kind", "ftp", "'files', 'events', 'sql'"),
        (FILES, "columns", {}, "at least 1 item"),
        (FILES, "columns.order", "int32", "'int64'"),
        (FILES, "columns", {"order": "int64", "*": "int64"}, "['*'] are patterns of several"),
        (FILES, "key", [], "at least 1 item"),
        (FILES, "key", ["number"], "columns ['number'] are named here but not declared"),
        (FILES, "known_at", "seen", "columns ['seen'] are named here but not declared"),
        (
            FILES,
            "known_at",
            "shop",
            "'shop' is declared as string: it must be a 'datetime'",
        ),
        (FILES, "contract", "../other.json", "stays inside its folder"),
        (FILES, "contract", "/etc/contract.json", "stays inside its folder"),
        (FILES, "contract", " ", "stays inside its folder"),
        (FILES, "path", "../{partition}.csv", "stays inside its folder"),
        (FILES, "path", "orders.csv", "or set partitioned: false, for one table"),
        (FILES, "partitioned", False, "holds {partition} but partitioned is false"),
        (FILES, "format", "xlsx", "'csv', 'parquet', 'jsonl' or 'binary'"),
        (FILES, "watermark", "placed", "Extra inputs are not permitted"),
        (FILES, "path", "s3://bucket", "names only a bucket"),
        (FILES, "path", "s3://*/{partition}.csv", "cannot contain a pattern"),
        (FILES, "path", "s3://bucket/../{partition}.csv", "stays inside its folder"),
        (FILES, "path", "{shop}/{partition}.csv", "{shop}, which is neither {partition} nor"),
        (FILES, "path", "{partition}/{version}.csv", "use only one of them"),
        (FILES, "path", "{partition}/a**.csv", "** may be used once, between two slashes"),
        (FILES, "path", "{partition}/**", "** may be used once, between two slashes"),
        (FILES, "path", "{partition}/[ab].csv", "wildcards are *, ? and **"),
        (FILES, "path", "a//{partition}.csv", "has an empty part"),
        (FILES, "format", "binary", "of a binary source are neither fields of its path nor"),
        ({**FILES, "format": "parquet"}, "path", "{partition}.gz", "has its own compression"),
        (REFERENCES, "columns", {"bytes": "int64"}, "declare the column path: string"),
        (REFERENCES, "columns.bytes", "string", "of a binary source are neither"),
        (EVENTS, "offset", "order", "declared in 'columns' as well"),
        (EVENTS, "path", "{version}.jsonl", "events come in partitions"),
        (EVENTS, "known_at", ..., "Field required"),
        (EVENTS, "known_at", "placed", "not declared"),
        (EVENTS, "path", "/events/{partition}.jsonl", "stays inside its folder"),
        (EVENTS, "path", "events.jsonl", "must hold {partition}"),
        (EVENTS, "partitioned", False, "partitioned is false"),
        ({**SQL, "partitioned": False}, "settled", "30 days", "settled is the age of a partition"),
        (SQL, "connection", "postgresql://me:secret@host/db", "pattern"),
        (SQL, "connection", "warehouse", "pattern"),
        (SQL, "table", "stock; drop table stock", "pattern"),
        (SQL, "watermark", ..., "needs 'watermark'"),
        (SQL, "watermark", "shop", "must be a declared 'datetime' column"),
        (
            {**SQL, "partitioned": False},
            "ignore_null_watermark",
            True,
            "ignore_null_watermark is for partitions",
        ),
        (SQL, "watermark", "changed", "must be a declared 'datetime' column"),
    ],
)
def test_a_wrong_source_is_refused_with_its_reason(
    raw: Raw, path: str, value: object, said: str
) -> None:
    assert said in refusal(lambda: SOURCE.validate_python(changed(raw, path, value)))


def test_a_reference_table_needs_no_partition() -> None:
    raw = changed(changed(FILES, "partitioned", False), "path", "planes.csv")
    assert SOURCE.validate_python(raw).partitioned is False
    raw = changed(changed(SQL, "partitioned", False), "watermark", ...)
    assert SOURCE.validate_python(raw).partitioned is False


@pytest.mark.parametrize("path", ["a.csv", "a/b/{partition}.csv", "a..b/c"])
def test_a_path_below_its_folder_is_kept_as_it_is(path: str) -> None:
    assert inside(path) == path


@pytest.mark.parametrize(
    ("kind", "raw", "said"),
    [
        (GateSpec, {"kind": "champion", "margin": -0.1}, "greater than or equal to 0"),
        (GateSpec, {"kind": "champion", "rule": "better"}, "'non_inferior' or 'superior'"),
        (GateSpec, {"kind": "champion", "if_not_comparable": "shrug"}, "'refuse' or 'accept'"),
        (GateSpec, {"kind": "champion", "metric": "f1"}, "'auc'"),
        (
            GateSpec,
            {"kind": "champion", "relative": True},
            "share of a metric: name the 'metric'",
        ),
        (GateSpec, {"kind": "leak_alarm"}, "Field required"),
        (GateSpec, {"kind": "size", "at_most_mb": 0}, "greater than 0"),
        (GateSpec, {"kind": "latency", "at_most_ms": 0}, "greater than 0"),
        (BaselineSpec, {"kind": "gradient_boosting", "iterations": 0}, "greater than 0"),
        (ModelSpec, {"family": "mlp", "members": 4}, "Extra inputs are not permitted"),
        (ModelSpec, {"family": "tabm", "members": 0}, "greater than 0"),
    ],
)
def test_a_wrong_part_is_refused_with_its_reason(kind: Any, raw: Raw, said: str) -> None:
    assert said in refusal(lambda: TypeAdapter(kind).validate_python(raw))


NUMBERS: list[tuple[Raw, str]] = [
    ({"column": "price_paid", "task": "regression"}, "rmse"),
    (RANKING, "ndcg"),
]


@pytest.mark.parametrize(("label", "metric"), NUMBERS)
def test_a_number_or_a_grade_is_declared_like_a_class(label: Raw, metric: str) -> None:
    gate = {"kind": "champion", "rule": "superior", "metric": metric, "relative": True}
    raw = changed(changed(SPEC, "label", label), "gates", [gate])
    spec = PipelineSpec.model_validate(raw)
    assert spec.label.query == label.get("query")
    assert PipelineSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(("label", "metric"), NUMBERS)
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("positive_weight", 2.0, "training.positive_weight is for a binary label"),
        ("loss", "focal", "training.loss: focal is for classes"),
        ("oversample", 0.1, "training.oversample: it is for classes"),
        ("class_weights", [1.0, 2.0], "training.class_weights: it is for a multiclass label"),
        ("recalibrate", True, "there is nothing to calibrate"),
    ],
)
def test_what_is_about_classes_is_refused_elsewhere(
    label: Raw, metric: str, field: str, value: object, said: str
) -> None:
    bound = {"kind": "bound", "name": "floor", "metric": metric, "at_least": 0.5}
    raw = changed(changed(SPEC, "label", label), "gates", [bound])
    raw = changed(raw, f"training.{field}", value)
    assert said in refusal(lambda: PipelineSpec.model_validate(raw))


COLOURS: Raw = {"column": "colour", "task": "multiclass", "classes": ["red", "green", "blue"]}


@pytest.mark.parametrize(
    ("label", "training", "said"),
    [
        (COLOURS, {"positive_weight": 2.0}, "this one is multiclass: set training.class_weights"),
        (COLOURS, {"class_weights": [1.0, 2.0]}, "it has 2 weights, label.classes has 3"),
        (COLOURS, {"oversample": 0.4}, "each of 3 classes cannot be at least 0.4"),
        (
            COLOURS,
            {"oversample": 0.1, "class_weights": [1.0, 2.0, 2.0]},
            "with training.class_weights a rare class is lifted twice",
        ),
        (
            SPEC["label"],
            {"oversample": 0.1, "positive_weight": 2.0},
            "with training.positive_weight a rare class is lifted twice",
        ),
        (SPEC["label"], {"oversample": 0.1, "order": "blocks"}, "would read the whole set"),
    ],
)
def test_a_rare_class_is_lifted_in_one_way_that_fits_the_label(
    label: Raw, training: Raw, said: str
) -> None:
    bound = {"kind": "bound", "name": "floor", "metric": "auc", "at_least": 0.5}
    raw = changed(changed(SPEC, "label", label), "gates", [bound])
    assert said in refusal(lambda: PipelineSpec.model_validate(changed(raw, "training", training)))


def test_trees_are_told_to_weigh_a_rare_class_instead() -> None:
    raw = changed(BOOSTED, "training.oversample", 0.1)
    said = refusal(lambda: PipelineSpec.model_validate(raw))
    assert "for rare classes there are training.positive_weight" in said


def test_trees_have_no_order_of_rows() -> None:
    raw = changed(BOOSTED, "training.order", "blocks")
    assert "order" in refusal(lambda: PipelineSpec.model_validate(raw))


def test_what_does_not_use_a_new_field_says_nothing_of_it() -> None:
    """Digests of specs, policies and sets stay what they were before the field came."""
    whole = PipelineSpec.model_validate(SPEC).model_dump(mode="json")
    gate = TypeAdapter(GateSpec).validate_python({"kind": "champion"}).model_dump(mode="json")
    assert "query" not in whole["label"]
    assert "origins" not in whole["evaluation"]
    assert "online" not in whole
    assert whole["release"] == {"to": "production", "canary": "none"}
    assert not {"metric", "relative", "min_effect", "seeds"} & set(gate)
    latency = TypeAdapter(GateSpec).validate_python({"kind": "latency"}).model_dump(mode="json")
    assert set(latency) == {"kind", "name", "at_most_ms"}


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
    assert PipelineSpec.model_validate(changed(SPEC, "gates.2", asked))


@pytest.mark.parametrize(
    ("owner", "fits"),
    [
        ("team:shop", True),
        ("team:Größe-2", True),
        ("ann@example.com", True),
        ("ann.b+shop%1_2@mail.example.museum", True),
        ("_ann@1-2.io", True),
        ("o'brien@example.com", False),
        ("jürgen@firma.de", False),
        ("ann@münchen.de", False),
        ("a/b@x.io", False),
        ("ann@example.c0m", False),
        ("a@b.c", False),
        (".ann@example.com", False),
        ("ann@example.photography", False),
        ("ann@example.com\n", False),
        ("team:", False),
    ],
)
def test_an_owner_that_is_accepted_is_accepted_by_dagster(owner: str, fits: bool) -> None:
    raw = changed(SPEC, "owner", owner)
    if fits:
        assert PipelineSpec.model_validate(raw).owner == owner
        assert dg.AssetSpec("a", owners=[owner]).owners == [owner]
        return
    assert "an e-mail address that Dagster takes" in refusal(
        lambda: PipelineSpec.model_validate(raw)
    )
    with pytest.raises(dg.DagsterInvalidDefinitionError):
        dg.AssetSpec("a", owners=[owner])


def test_a_declared_effect_takes_the_place_of_the_margin() -> None:
    gate = TypeAdapter(GateSpec).validate_python(SUPERIOR)
    assert gate.margin == 0
    assert TypeAdapter(GateSpec).validate_python(gate.model_dump(mode="json")) == gate


def test_a_shift_is_of_numbers_and_calibration_of_probabilities() -> None:
    words = changed(changed(SPEC, "features.numeric", []), "gates.2", ROBUST)
    assert "features.numeric is empty: set shift to null" in refusal(
        lambda: PipelineSpec.model_validate(words)
    )
    gates = [{"kind": "calibration", "at_most": 0.1}]
    number = changed(changed(SPEC, "label.task", "regression"), "gates", gates)
    assert "is about probabilities, which a regression task" in refusal(
        lambda: PipelineSpec.model_validate(number)
    )


def test_every_task_has_metrics_and_a_loss() -> None:
    assert set(METRICS_OF) == set(LOSS_OF) == set(Task.__args__)
    assert all(set(METRICS_OF[task]) <= set(HIGHER_IS_BETTER) for task in METRICS_OF)


def test_a_gate_against_the_champion_refuses_what_it_cannot_compare() -> None:
    gate = TypeAdapter(GateSpec).validate_python({"kind": "champion"})
    assert (gate.rule, gate.if_not_comparable) == ("non_inferior", "refuse")


def test_every_metric_says_which_way_is_better() -> None:
    assert set(HIGHER_IS_BETTER) == set(MetricName.__args__)


def test_a_spec_cannot_be_changed() -> None:
    spec = TrainingSpec()
    with pytest.raises(ValidationError, match="frozen"):
        spec.epochs = 3


def test_drift_without_partitions_says_how_rows_are_cut_and_has_an_alarm_that_can_be() -> None:
    from ml_assets.spec.drift import DriftSpec, RetrainSpec

    assert DriftSpec().retrain is None
    assert "nulls" not in RetrainSpec().kinds, "lost values are mended, not learned"
    with pytest.raises(ValueError, match="alarm_at 4 of 3 windows can never happen"):
        DriftSpec(windows=3, alarm_at=4)
    watched = changed(changed(SPEC, "drift", {}), "partitions", {"cadence": "none"})
    assert "so state how new rows are cut into periods" in refusal(
        lambda: PipelineSpec.model_validate(watched)
    )


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("model", {"family": "mlp"}, "go together: this family is mlp"),
        (
            "label",
            {"column": "bytes", "task": "regression"},
            "go together: this task is regression",
        ),
        ("evaluation.baselines", [{"kind": "constant"}], "use uniform, unigram, bigram, gzip"),
        ("split", {"kind": "random"}, "'entity' resamples what split.groups names"),
        ("gates.0", ROBUST | {"name": "r"}, "alters columns"),
        ("features.tokens.vocabulary", 70_000, "less than or equal to 65535"),
        ("features.tokens.context", 1, "greater than or equal to 2"),
        ("cluster", {"data_cache": "8Gi"}, "texts are one stream of tokens, mapped from the disk"),
        ("training.parallel", {"tensor": 3}, "does not divide the 4 heads of the model: set a"),
        (
            "training.parallel",
            {"tensor": 4},
            "training.processes 2: set processes to 4",
        ),
        ("training.parallel", {"pipeline": 2}, "use strategy: shard, and tensor within a node"),
        ("training.parallel", {"sequence": 2}, "use activation_checkpointing: block"),
        ("training.parallel", {"expert": 8}, "no family has experts"),
        ("training.parallel", {"data": 2}, "Extra inputs are not permitted"),
        ("training.gradient_precision", "fp16", "'fp32' or 'bf16'"),
        ("model.heads", 3, "must be a multiple of twice the 3 heads"),
        ("model.preset", "7b", "'1m', '124m', '350m' or '1b'"),
    ],
)
def test_a_wrong_language_model_is_refused_with_its_reason(
    path: str, value: object, said: str
) -> None:
    spec = read_yaml(CODE_LM.read_text())["attributes"]
    model = Gpt(family="gpt", preset="1m", width=128, depth=4, heads=4)
    assert PipelineSpec.model_validate(spec).model == model
    assert said in refusal(lambda: PipelineSpec.model_validate(changed(spec, path, value)))


@pytest.mark.parametrize(
    ("zone", "path", "fits"),
    [
        ("Europe/Berlin", "o/{partition:%Y-%m-%d-%H}.csv", False),
        ("Europe/Berlin", "o/{partition}.csv", True),
        ("UTC", "o/{partition:%Y-%m-%d-%H}.csv", True),
    ],
)
def test_the_hour_that_comes_twice_has_a_file_for_each(zone: str, path: str, fits: bool) -> None:
    raw = copy.deepcopy(SPEC)
    raw["partitions"] = {"cadence": "hourly", "start": "2024-01-01", "timezone": zone}
    for source in raw["sources"].values():
        if source.get("partitioned", True) and "path" in source:
            source["path"] = path
    said = "names one file for the hour that comes twice in Europe/Berlin"
    found = ""
    try:
        PipelineSpec.model_validate(raw)
    except ValidationError as error:
        found = str(error)
    assert (said not in found) is fits
