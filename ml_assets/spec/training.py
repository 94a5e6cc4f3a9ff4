"""The model and how it is trained: what the training program is asked for."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self, assert_never

from pydantic import Field, model_validator

from ml_assets.spec.base import Fraction, Frozen, Positive, unset

Task = Literal["binary", "multiclass", "regression", "ranking"]
"""What a label is: true or false, one of several classes, a number, a grade within a query."""


def outputs_of(task: Task, classes: Sequence[str]) -> int:
    """How many numbers a model predicts for one row."""
    match task:
        case "binary" | "regression" | "ranking":
            return 1
        case "multiclass":
            return len(classes)
        case _:
            assert_never(task)


class TabM(Frozen):
    """Parameter-efficient ensemble of MLPs with entity embeddings (Gorishniy et al., 2024)."""

    family: Literal["tabm"]
    width: Positive = 128
    depth: Positive = 2
    members: Positive = 12
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    embedding_limit: Positive = 16
    """Widest entity embedding; a vocabulary of v words gets min(limit, ceil(1.6 v^0.56))."""


class Mlp(Frozen):
    """A plain multi-layer perceptron with entity embeddings."""

    family: Literal["mlp"]
    width: Positive = 128
    depth: Positive = 2
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    embedding_limit: Positive = 16


class LightGbm(Frozen):
    """Gradient-boosted trees (LightGBM), grown in one process; a step of training is a round."""

    family: Literal["lightgbm"]
    rounds: Positive = 300
    """Most rounds; ``training.patience`` may stop before. A round is a tree for each output."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 0.05
    num_leaves: Annotated[int, Field(ge=2, le=131072)] = 31
    max_depth: Positive | None = None
    """None: the leaves alone bound a tree."""
    min_child_samples: Positive = 20
    feature_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the features that each tree may use, drawn anew for each."""
    bagging_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the rows that each round is grown on, drawn anew for each."""
    lambda_l2: Annotated[float, Field(ge=0)] = 0.0
    max_bin: Annotated[int, Field(ge=2, le=65535)] = 255


INSTALL_LIGHTGBM = (
    "pip install -c requirements.lock -e '.[boosting]' in the project's folder, or"
    " pip install 'ml_assets[boosting]'"
)

ModelSpec = Annotated[TabM | Mlp | LightGbm, Field(discriminator="family")]

_OF_NETWORKS = frozenset(
    {
        "epochs",
        "batch_size",
        "microbatches",
        "learning_rate",
        "weight_decay",
        "warmup",
        "clip_norm",
        "strategy",
        "processes",
        "profile",
    }
)


def without_meaning(model: ModelSpec) -> frozenset[str]:
    """Fields of ``training`` that mean nothing for a family of models."""
    return _OF_NETWORKS if isinstance(model, LightGbm) else frozenset()


Strategy = Literal["replicate", "shard"]


class ProfileSpec(Frozen):
    """Which steps of a network's training to trace, operator by operator."""

    at: Annotated[int, Field(ge=0)] = 20
    """Steps before the trace: the first ones are slower than the rest."""
    steps: Annotated[int, Field(ge=1, le=100)] = 3


class TrainingSpec(Frozen):
    """One global step is ``microbatches`` logical microbatches, over any number of processes.

    For boosted trees a step is a round, ``model`` has the learning rate, and the fields about
    batches, epochs and processes mean nothing: a spec that sets one of them is refused.
    """

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    epochs: Positive = 10
    batch_size: Positive = 3072
    """Rows per global step, over all processes; a ranking task counts queries instead."""
    microbatches: Positive = 24
    """Logical microbatches per global step; divides ``batch_size``."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 1e-3
    warmup: Fraction = 0.1
    """Share of all steps over which the learning rate rises; it then decays as a cosine to 0."""
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    positive_weight: Annotated[float, Field(gt=0)] = 1.0
    """Weight of a positive row in the loss (binary); 1 keeps the probabilities calibrated."""
    evaluate_every: Positive = 50
    """Steps between evaluations on the validation split; a checkpoint is saved at each."""
    checkpoint_minutes: Annotated[float, Field(gt=0)] | None = None
    """Most minutes between checkpoints, whenever evaluations come; None: these alone save."""
    patience: Positive = 5
    """Evaluations without a better validation loss before training stops."""
    keep_last: Positive = 2
    keep_best: Positive = 1
    strategy: Strategy = "shard"
    processes: Positive = 2
    threads: Positive = 1
    """OMP threads of each process; part of the numerics, therefore of the session."""
    profile: ProfileSpec | None = Field(default=None, exclude_if=unset)
    """Trace a few steps (Chrome's trace format); a model that is made already is not trained again
    for it: say ``--fresh``."""

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.batch_size % self.microbatches:
            raise ValueError(
                f"batch_size {self.batch_size} must be a multiple of microbatches"
                f" {self.microbatches}"
            )
        return self
