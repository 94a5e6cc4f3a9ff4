"""LightGBM: its parameters, its draws of each round, and its trees as text."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training import Boosted, LightGbm, Task, TrainingSpec, outputs_of
from ml_assets.spec.training_program import ModelManifest, ShardSchema
from ml_assets.training import calibration
from ml_assets.training.boosting.engine import (
    AfterRound,
    categorical,
    group_sizes,
    matrix,
    names,
    require_package,
    require_rows,
    row_weights,
    trees_of,
)
from ml_assets.training.rows.arrays import Predict, Rows, SplitArrays
from ml_assets.training.stop import BadData
from ml_assets.training.validation_metrics import of_split

if TYPE_CHECKING:
    from lightgbm import Booster, Dataset
    from lightgbm.callback import CallbackEnv


class LightGbmEngine:
    """See ``Engine``."""

    trees, weights = "trees.txt", "weights.txt"

    def require(self) -> None:
        """See ``Engine.require``."""
        require_package("lightgbm", "lightgbm")

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
        """See ``Engine.grow``."""
        import lightgbm

        assert isinstance(model, LightGbm)
        require_rows(model, sum(shard.rows for shard in schema.splits["train"]))
        chosen = parameters(model, training, schema.task, schema.classes, threads)
        rows, held_out, judge = datasets(folder, schema, chosen, training)
        before = draws(model, training.seed, done - 1)
        barren = done - _rounds_in(trees)
        lightgbm.train(
            {**chosen, **before},
            rows,
            model.rounds - done,
            valid_sets=[rows, held_out],
            valid_names=["train", "validation"],
            init_model=trees,
            keep_training_booster=True,  # its trees were saved: not once more
            callbacks=[Draws(model, training.seed, barren), After(after, judge, barren)],
        )

    def load_predictor(self, folder: Path, manifest: ModelManifest, threads: int) -> Predict:
        """See ``Engine.load_predictor``."""
        self.require()
        booster = load_trees(trees_of(folder, manifest), folder)
        expected = names(manifest.preprocessing)
        if booster.feature_name() != expected:
            raise BadData(
                f"The trees of {folder} are about {booster.feature_name()[:5]}..., its manifest"
                f" names {expected[:5]}..."
            )
        outputs = outputs_of(manifest.task, manifest.classes)

        def predict(rows: Rows) -> NDArray[np.float64]:
            values = matrix(rows, manifest.preprocessing)
            found = np.asarray(booster.predict(values, num_threads=threads), dtype=np.float64)
            return found.reshape(len(values), outputs)

        return predict


def _rounds_in(trees: Path | None) -> int:
    """The rounds that left a tree; LightGBM keeps none of a round that split no leaf."""
    import lightgbm

    return 0 if trees is None else lightgbm.Booster(model_file=trees).current_iteration()


class Draws:
    """LightGBM calls it before each round: what the round draws is a function of its number.

    Args:
        barren: rounds before this attempt that left no tree: LightGBM does not count them.
    """

    before_iteration = True

    def __init__(self, model: LightGbm, seed: int, barren: int) -> None:
        self._model, self._seed, self._barren = model, seed, barren

    def __call__(self, env: "CallbackEnv") -> None:
        booster = cast("Booster", env.model)
        booster.reset_parameter(draws(self._model, self._seed, env.iteration + self._barren))


Judge = Callable[[NDArray[np.float64]], Mapping[str, float]]
"""[n] or [n, classes] what is predicted of the validation split -> its metrics."""


class After:
    """LightGBM calls it after each round.

    Args:
        barren: see ``Draws``.
    """

    def __init__(self, after: AfterRound, judge: Judge, barren: int) -> None:
        self._after, self._judge, self._barren = after, judge, barren

    def __call__(self, env: "CallbackEnv") -> None:
        booster = cast("Booster", env.model)

        def judged() -> dict[str, float]:
            return {**_losses(env), **_metrics(booster, self._judge)}

        done = env.iteration + 1 + self._barren
        if self._after(done, judged, lambda: trees_as_text(booster).encode()):
            from lightgbm.callback import EarlyStopException

            raise EarlyStopException(env.iteration, env.evaluation_result_list or [])


def _losses(env: "CallbackEnv") -> dict[str, float]:
    """``train_loss`` and ``validation_loss``: 1 - NDCG of a ranking, as LightGBM counts it."""
    found: dict[str, float] = {}
    for split, _, value, higher_is_better, *_ in env.evaluation_result_list or ():
        found[f"{split}_loss"] = 1 - float(value) if higher_is_better else float(value)
    return found


def _metrics(booster: "Booster", judge: Judge) -> dict[str, float]:
    """LightGBM has predicted the split for its loss: this asks for what it has."""
    found: dict[str, float] = {}

    def take(predicted: NDArray[np.float64], rows: "Dataset") -> list[tuple[str, float, bool]]:
        found.update(judge(predicted))
        return []

    booster.eval_valid(take)
    return found


GAINS = 10_000
"""Steps in which LightGBM, whose relevance is a whole number, is told a row's share of the gain."""

OBJECTIVES: Mapping[Task, Mapping[str, Any]] = {
    "binary": {"objective": "binary", "metric": "binary_logloss"},
    "multiclass": {"objective": "multiclass", "metric": "multi_logloss"},
    "regression": {"objective": "regression", "metric": "l2"},
    "ranking": {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "label_gain": [*range(GAINS + 1)],
    },
}
"""The objective that LightGBM minimizes for a task, and its metric on the validation split."""


def parameters(
    model: LightGbm, training: TrainingSpec, task: Task, classes: Sequence[str], threads: int
) -> dict[str, Any]:
    """LightGBM's parameters; with the draws of each round, they decide the trees to the bit."""
    chosen: dict[str, Any] = {
        **OBJECTIVES[task],
        "learning_rate": model.learning_rate,
        "num_leaves": model.num_leaves,
        "max_depth": model.max_depth or -1,
        "min_child_samples": model.min_child_samples,
        "feature_fraction": model.feature_fraction,
        "lambda_l2": model.lambda_l2,
        "max_bin": model.max_bin,
        "data_random_seed": training.seed % 2**31,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": threads,
        "verbosity": -1,
    }
    if task == "multiclass":
        chosen["num_class"] = len(classes)
    return chosen


_APART = 1e-12
"""How far the shares of two rounds are apart. LightGBM rounds what it reads: to it, 0.5 and the
number before it are the same."""


def draws(model: LightGbm, seed: int, round_number: int) -> dict[str, Any]:
    """The seeds of one round: its draws depend on nothing that was drawn before.

    So a training that goes on from a checkpoint grows the trees that it would have grown. LightGBM
    takes up a seed where it changed, and that of the rows where their share changed: neighbouring
    rounds differ in both, and training begins with those of the round before.
    """
    odd = round_number % 2
    chosen: dict[str, Any] = {"feature_fraction_seed": _seed(seed, round_number, "features", odd)}
    if model.bagging_fraction < 1:
        share = model.bagging_fraction
        chosen["bagging_freq"] = 1
        chosen["bagging_fraction"] = share * (1 - _APART) if odd else share
        chosen["bagging_seed"] = _seed(seed, round_number, "rows", odd)
    return chosen


def _seed(seed: int, round_number: int, of: str, odd: int) -> int:
    """31 bits, the last of them given."""
    digest = hashlib.sha256(f"{seed} {round_number} {of}".encode()).digest()
    return int.from_bytes(digest[:4]) >> 2 << 1 | odd


def labels(rows: Rows, task: Task) -> NDArray[np.generic]:
    """[rows] as LightGBM takes them: of a ranking, the shares of the gain in whole steps.

    NDCG's gains are divided by the best that the query allows: shares rank as grades do.
    """
    if task != "ranking":
        return rows.label
    return np.rint(rows.label.astype(np.float64) * GAINS)


def datasets(
    folder: Path, schema: ShardSchema, chosen: dict[str, Any], training: TrainingSpec
) -> tuple["Dataset", "Dataset", Judge]:
    """The training and the validation split, cut into the same bins; weighed alike.

    So the validation loss is what training minimizes: it tells when to stop. And what judges
    predictions of the latter.
    """
    from lightgbm import Dataset

    train, validation = (
        SplitArrays(folder, schema, split).whole() for split in ("train", "validation")
    )
    columns, task = schema.preprocessing, schema.task
    rows = Dataset(
        matrix(train, columns),
        label=labels(train, task),
        weight=row_weights(train, task, training),
        group=group_sizes(train),
        feature_name=names(columns),
        categorical_feature=list(categorical(columns)),
        params=chosen,
    )
    held_out = rows.create_valid(
        matrix(validation, columns),
        labels(validation, task),
        weight=row_weights(validation, task, training),
        group=group_sizes(validation),
    )
    label, starts = validation.label, validation.starts
    expected, outputs = (
        calibration.expected(training, schema.classes),
        outputs_of(task, schema.classes),
    )

    def judge(predicted: NDArray[np.float64]) -> Mapping[str, float]:
        return of_split(predicted.reshape(len(label), outputs), label, starts, schema, expected)

    return rows, held_out, judge


_END = "end of trees\n"
_NO_SPLIT = "\nnum_leaves=1\n"


def trees_as_text(booster: "Booster") -> str:
    """All trees in LightGBM's text format, without the parameters that it adds."""
    text = booster.model_to_string(num_iteration=-1)
    if _NO_SPLIT in text:  # written otherwise once it was read, as where training was resumed
        from lightgbm import Booster

        text = Booster(model_str=text).model_to_string(num_iteration=-1)
    return text[: text.index(_END) + len(_END)]


def load_trees(content: bytes, folder: Path) -> "Booster":
    """The trees of a model.

    Args:
        folder: that they are from.

    Raises:
        BadData: it is not whole, or not LightGBM's text format.
    """
    from lightgbm import Booster
    from lightgbm.basic import LightGBMError

    text = content.decode(errors="replace")
    if not text.startswith("tree\nversion=") or not text.endswith(_END):
        raise BadData(f"The trees of {folder} are not a complete model in LightGBM's text format.")
    try:
        return Booster(model_str=text)
    except LightGBMError as error:
        raise BadData(f"The trees of {folder} cannot be read by LightGBM: {error}") from error
