"""Every rule of a model and its training has a planted fault here, and what is said of it."""

import pytest

from ml_assets.spec.base import canonical_json
from ml_assets.spec.documents import read_yaml
from ml_assets.spec.ensemble import Distill
from ml_assets.spec.gpt import Gpt
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import training_world
from ml_assets_tests.spec.specs import (
    BOOSTED,
    CODE_LM,
    RANKING,
    ROBUST,
    SPEC,
    TENSORS,
    Raw,
    changed,
    refusal,
)


def test_three_of_the_newest_and_three_of_the_best_checkpoints_are_kept_by_default() -> None:
    fields = TrainingSpec.model_fields
    assert (fields["keep_last"].default, fields["keep_best"].default) == (3, 3)


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
    assert f"model.batch.paid: {said}" in refusal(changed(TENSORS, {"model.batch.paid": tensor}))


def test_what_has_no_meaning_for_boosted_trees_is_not_written() -> None:
    written = PipelineSpec.model_validate(BOOSTED).model_dump(mode="json")
    assert "processes" not in written["training"]


@pytest.mark.parametrize("field", ["epochs", "processes", "warmup", "precision"])
def test_what_has_no_meaning_for_boosted_trees_is_refused_even_at_its_default(field: str) -> None:
    default = TrainingSpec.model_fields[field].default
    said = refusal(changed(BOOSTED, {f"training.{field}": default}))
    assert f"training.{field}: it has no meaning for model.family 'lightgbm'" in said


def test_one_process_grows_the_trees_of_a_boosted_model() -> None:
    boosted, network = PipelineSpec.model_validate(BOOSTED), PipelineSpec.model_validate(SPEC)
    assert training_world(boosted.model, boosted.training).procs == 1
    assert training_world(network.model, network.training).procs == 2


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("training.checkpoint_minutes", 0.0, "checkpoint_minutes"),
        ("model", {"family": "lightgbm", "num_leaves": 1}, "num_leaves"),
        ("model.family", "forest", "'tabm', 'mlp'"),
        ("model.width", 0, "greater than 0"),
        ("model.dropout", 1.0, "less than 1"),
        ("model.members", 0, "greater than 0"),
        ("model", {"family": "mlp", "members": 4}, "Extra inputs are not permitted"),
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
        ("training.ensemble", {"checkpoints": 2, "seeds": 2}, "checkpoints or seeds: write one"),
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
    ],
)
def test_a_wrong_training_is_refused_with_its_reason(path: str, value: object, said: str) -> None:
    assert said in refusal(changed(SPEC, {path: value}))


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
        assert said in refusal(changed(spec, {"training": {**spec["training"], **changes}}))
    both = {"activation_checkpointing": "block", "parallel": {"tensor": 2}, "processes": 4}
    both["strategy"] = "shard"
    right = changed(spec, {"training": {**spec["training"], **both, "gradient_precision": "bf16"}})
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
    assert said in refusal({**SPEC, "training": {"distill": TEACHER}, **changes})


def test_a_teacher_comes_back_from_the_spec_that_a_record_holds() -> None:
    raw = changed(SPEC, {"training.distill": {"from": "1f2e3d4c5b6a", "weight": 2.0}})
    spec = PipelineSpec.model_validate(raw)
    again = PipelineSpec.model_validate_json(canonical_json(spec))
    assert again == spec
    assert again.training.distill == Distill(teacher="1f2e3d4c5b6a", weight=2.0)


NUMBERS: list[tuple[Raw, str]] = [
    ({"column": "price_paid", "task": "regression"}, "rmse"),
    (RANKING, "ndcg"),
]


@pytest.mark.parametrize(("label", "metric"), NUMBERS)
def test_a_number_or_a_grade_is_declared_like_a_class(label: Raw, metric: str) -> None:
    gate = {"kind": "champion", "rule": "superior", "metric": metric, "relative": True}
    spec = PipelineSpec.model_validate(changed(SPEC, {"label": label, "gates": [gate]}))
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
    raw = changed(SPEC, {"label": label, "gates": [bound], f"training.{field}": value})
    assert said in refusal(raw)


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
    assert said in refusal(changed(SPEC, {"label": label, "gates": [bound], "training": training}))


def test_trees_are_told_to_weigh_a_rare_class_instead() -> None:
    said = refusal(changed(BOOSTED, {"training.oversample": 0.1}))
    assert "for rare classes there are training.positive_weight" in said


def test_trees_have_no_order_of_rows() -> None:
    assert "order" in refusal(changed(BOOSTED, {"training.order": "blocks"}))


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
        ("training.parallel", {"tensor": 4}, "training.processes 2: set processes to 4"),
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
    assert said in refusal(changed(spec, {path: value}))
