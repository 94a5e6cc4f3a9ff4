"""XGBoost: its parameters, its rows of each round, and its trees as UBJSON."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training import Boosted, Task, TrainingSpec, XGBoost, outputs_of
from ml_assets.spec.training_program import ModelManifest, ShardSchema, Split
from ml_assets.training import calibration
from ml_assets.training.boosting.engine import (
    AfterRound,
    matrix,
    names,
    require_package,
    require_rows,
    row_weights,
    trees_of,
)
from ml_assets.training.rows.arrays import Predict, Rows, SplitArrays
from ml_assets.training.stop import BadData, BadRequest
from ml_assets.training.validation_metrics import of_split

if TYPE_CHECKING:
    from xgboost import Booster, QuantileDMatrix

OBJECTIVES: Mapping[Task, Mapping[str, str]] = {
    "binary": {"objective": "binary:logistic", "eval_metric": "logloss"},
    "multiclass": {"objective": "multi:softprob", "eval_metric": "mlogloss"},
    "regression": {"objective": "reg:squarederror", "eval_metric": "rmse"},
}
"""What XGBoost minimizes for a task, and its metric. A ranking has no place here: its pairs are not
the same after a resume."""
_RARE = 1e-6
"""Least share of positives that trees begin with: the logarithm of none is no number."""
_METRIC = re.compile(r"\t(train|validation)-\w+:(\S+)")


class XGBoostEngine:
    """See ``Engine``. Trees that go on from a file have the bytes of those that never stopped."""

    trees, weights = "trees.ubj", "weights.ubj"

    def require(self) -> None:
        """See ``Engine.require``."""
        require_package("xgboost", "xgboost")

    def grow(
        self,
        model: Boosted,
        training: TrainingSpec,
        folder: Path,
        schema: ShardSchema,
        done: int,
        trees: Path | None,
        threads: int,
        after: AfterRound,
    ) -> None:
        """See ``Engine.grow``.

        Raises:
            BadRequest: the label is a ranking's, or a round would have no row.
        """
        from xgboost import Booster

        assert isinstance(model, XGBoost)
        require_rows(model, sum(shard.rows for shard in schema.splits["train"]))
        if schema.task == "ranking":
            raise BadRequest("XGBoost does not resume a ranking exactly: set family: lightgbm.")
        chosen = parameters(model, training, schema, threads)
        splits: tuple[Split, Split] = ("train", "validation")
        whole, unseen = (SplitArrays(folder, schema, name).whole() for name in splits)
        rows = _quantiles(whole, schema, training, model, threads)
        held_out = _quantiles(unseen, schema, training, model, threads, rows)
        weights = _weights(whole, schema, training)
        if model.bagging_fraction < 1 and schema.task == "binary":
            # XGBoost would take it from the rows of the first round, which may have no positive
            share = float(np.average(whole.label, weights=weights))
            chosen["base_score"] = min(max(share, _RARE), 1 - _RARE)
        booster = Booster(chosen, [rows, held_out])
        if trees is not None:
            booster.load_model(bytearray(trees.read_bytes()))
            booster.set_param({name: v for name, v in chosen.items() if name != "base_score"})

        label, expected = unseen.label, calibration.expected(training, schema.classes)
        outputs = outputs_of(schema.task, schema.classes)
        del whole, unseen  # their columns are in the bins

        def judged() -> Mapping[str, float]:
            rows.set_weight(weights)
            said = booster.eval_set([(rows, "train"), (held_out, "validation")])
            power = 2 if schema.task == "regression" else 1  # the mean of squares, as everywhere
            losses = {f"{name}_loss": float(v) ** power for name, v in _METRIC.findall(str(said))}
            predicted = booster.predict(held_out).astype(np.float64).reshape(-1, outputs)
            return {**losses, **of_split(predicted, label, None, schema, expected)}

        for number in range(done, model.rounds):
            if model.bagging_fraction < 1:
                rows.set_weight(weights * taken(model, training.seed, number, len(weights)))
            booster.update(rows, number)
            if after(number + 1, judged, lambda: bytes(booster.save_raw("ubj"))):
                return

    def load_predictor(self, folder: Path, manifest: ModelManifest, threads: int) -> Predict:
        """See ``Engine.load_predictor``."""
        self.require()
        booster = _load(trees_of(folder, manifest), folder, threads)
        expected = names(manifest.preprocessing)
        if booster.feature_names != expected:
            raise BadData(
                f"The trees of {folder} are about {(booster.feature_names or [])[:5]}..., its"
                f" manifest names {expected[:5]}..."
            )
        outputs = outputs_of(manifest.task, manifest.classes)

        def predict(rows: Rows) -> NDArray[np.float64]:
            from xgboost import DMatrix

            values = matrix(rows, manifest.preprocessing)
            kinds = _columns(len(manifest.preprocessing.numeric), expected)
            found = booster.predict(DMatrix(values, nthread=threads, **kinds))
            return np.asarray(found, dtype=np.float64).reshape(len(values), outputs)

        return predict


def parameters(
    model: XGBoost, training: TrainingSpec, schema: ShardSchema, threads: int
) -> dict[str, Any]:
    """XGBoost's parameters; with the rows of each round they decide the trees to the bit."""
    chosen: dict[str, Any] = {
        **OBJECTIVES[schema.task],
        "tree_method": "hist",
        "eta": model.learning_rate,
        "max_depth": model.max_depth,
        "min_child_weight": model.min_child_weight,
        "lambda": model.lambda_l2,
        "max_bin": model.max_bin,
        "seed": training.seed % 2**31,
        "nthread": threads,
        "verbosity": 0,
    }
    if schema.task == "multiclass":
        chosen["num_class"] = len(schema.classes)
    return chosen


def taken(model: XGBoost, seed: int, number: int, rows: int) -> NDArray[np.float32]:
    """[rows] 1 for the rows that a round is grown on, else 0: a function of the round's number.

    XGBoost's own draws depend on those before, which a resume does not know.
    """
    draw = np.random.default_rng([seed, number])
    return (draw.random(rows) < model.bagging_fraction).astype(np.float32)


def _columns(numbers: int, names_of: list[str]) -> dict[str, Any]:
    """Which columns hold codes, as XGBoost takes it."""
    kinds = ["q" if place < numbers else "c" for place in range(len(names_of))]
    return {"feature_names": names_of, "feature_types": kinds, "enable_categorical": True}


def _weights(rows: Rows, schema: ShardSchema, training: TrainingSpec) -> NDArray[np.float32]:
    found = row_weights(rows, schema.task, training)
    return np.ones(len(rows.label), np.float32) if found is None else found.astype(np.float32)


def _quantiles(
    rows: Rows,
    schema: ShardSchema,
    training: TrainingSpec,
    model: XGBoost,
    threads: int,
    like: "QuantileDMatrix | None" = None,
) -> "QuantileDMatrix":
    """A split, cut into bins; the bins of the training split are those of all."""
    from xgboost import QuantileDMatrix

    columns = schema.preprocessing
    return QuantileDMatrix(
        matrix(rows, columns),
        label=rows.label,
        weight=_weights(rows, schema, training),
        max_bin=model.max_bin,
        ref=like,
        nthread=threads,
        **_columns(len(columns.numeric), names(columns)),
    )


def _load(data: bytes, folder: Path, threads: int) -> "Booster":
    from xgboost import Booster
    from xgboost.core import XGBoostError

    if not data.startswith(b"{L") or not data.endswith(b"}"):
        raise BadData(f"The trees of {folder} are not a complete model in XGBoost's UBJSON format.")
    try:
        booster = Booster({"nthread": threads, "verbosity": 0})
        booster.load_model(bytearray(data))
        return booster
    except XGBoostError as error:
        raise BadData(f"The trees of {folder} cannot be read by XGBoost: {error}") from error
