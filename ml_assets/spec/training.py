"""The model and its training: the request to the training program."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, assert_never

from pydantic import Field, JsonValue, field_validator, model_validator

from ml_assets.spec.augmentation import Augmentation, Curriculum
from ml_assets.spec.base import Fraction, Frozen, Name, Positive, unset
from ml_assets.spec.ensemble import RELEASE, Distill, Ensemble, weights_file
from ml_assets.spec.features import FunctionPath
from ml_assets.spec.gpt import Gpt
from ml_assets.spec.network_batch import BatchTensor
from ml_assets.spec.parallel import Spread, split_of

Task = Literal["binary", "multiclass", "regression", "ranking", "language_model"]
"""What a label is: true or false, one of several classes, a number, a grade within a query, or the
bytes of a text, of which a language model says how many nats it takes to write them down."""


def outputs_of(task: Task, classes: Sequence[str]) -> int:
    """Return how many numbers a model predicts for one row."""
    match task:
        case "binary" | "regression" | "ranking" | "language_model":
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


class Module(Frozen):
    """A network of the team's own: a function of the pipeline's folder builds it.

    docs/network.md says what is called with which shapes.
    """

    family: Literal["module"]
    module: FunctionPath
    """``file.py:name`` in the pipeline's folder: (config, columns) -> torch.nn.Module."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Passed to the function unchanged."""
    batch: dict[Name, BatchTensor] = Field(default_factory=dict, exclude_if=unset)
    """Tensors that the network is called with by name, in place of ``(numeric, categorical)``, each
    of declared columns and shape."""
    loss: FunctionPath | None = Field(default=None, exclude_if=unset)
    """(logits [n, members, outputs], label [n]) -> [n]: what training minimizes the mean of; None:
    the loss of the task."""
    parameter_groups: FunctionPath | None = Field(default=None, exclude_if=unset)
    """(network) -> a list of groups, each ``{"params": [...]}`` with ``weight_decay``, or with
    ``learning_rate`` as a multiple of the spec's; None: matrices decay, all learn alike."""
    augmentation: FunctionPath | None = Field(default=None, exclude_if=unset)
    """(numeric [n, f], categorical [n, c], torch.Generator) -> the same two, changed: called for
    each microbatch before a step learns from it; None: ``training.augmentation`` alone."""

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of the folder that it names."""
        named = (self.module, self.loss, self.parameter_groups, self.augmentation)
        return tuple(one for one in named if one)


class Boosted(Frozen):
    """Gradient-boosted trees, grown in one process; a step of training is a round."""

    family: str
    rounds: Positive = 300
    """Most rounds; ``training.patience`` may stop before. A round is a tree for each output."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 0.05


class LightGbm(Boosted):
    """Gradient-boosted trees by LightGBM."""

    family: Literal["lightgbm"]  # pyright: ignore[reportIncompatibleVariableOverride]  it is frozen
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


class XGBoost(Boosted):
    """Gradient-boosted trees by XGBoost; not of a ranking, which it does not resume exactly."""

    family: Literal["xgboost"]  # pyright: ignore[reportIncompatibleVariableOverride]  it is frozen
    max_depth: Positive = 6
    min_child_weight: Annotated[float, Field(ge=0)] = 1.0
    """Least sum of the loss's second derivatives in a leaf."""
    bagging_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the rows that each round is grown on, drawn anew for each."""
    lambda_l2: Annotated[float, Field(ge=0)] = 1.0
    max_bin: Annotated[int, Field(ge=2, le=65535)] = 256


ModelSpec = Annotated[TabM | Mlp | Module | Gpt | LightGbm | XGBoost, Field(discriminator="family")]

TREES = ("lightgbm", "xgboost")
"""The families of boosted trees, as a record names them."""
COUNTED = (TabM, Mlp, Gpt)
"""Networks whose parameters follow from the spec; a team's own are counted when it is built."""

_OF_NETWORKS = frozenset(
    {
        "epochs",
        "batch_size",
        "microbatches",
        "learning_rate",
        "weight_decay",
        "warmup",
        "max_steps",
        "optimizer",
        "momentum",
        "betas",
        "eps",
        "schedule",
        "precision",
        "accumulate",
        "clip_norm",
        *Spread.model_fields,
        "processes",
        "loss",
        "focal_gamma",
        "oversample",
        "augmentation",
        "curriculum",
        "ensemble",
        "distill",
        "order",
        "block_rows",
        "block_window",
        "init_from",
        "profile",
        "hang_timeout_seconds",
    }
)


def without_meaning(model: ModelSpec) -> frozenset[str]:
    """Fields of ``training`` that mean nothing for a model."""
    if isinstance(model, Boosted):
        return _OF_NETWORKS
    if isinstance(model, Module) and model.loss:
        return frozenset({"loss", "focal_gamma", "distill"})
    return frozenset()


VALIDATION_METRICS: Mapping[Task, tuple[str, ...]] = {
    "binary": (
        "validation_accuracy",
        "validation_auc",
        "validation_average_precision",
        "validation_brier",
    ),
    "multiclass": ("validation_accuracy", "validation_brier"),
    "regression": ("validation_mae",),
    "ranking": ("validation_ndcg",),
}
"""What a training tells beside the loss; of another task nothing."""
HIGHEST_IS_BEST = frozenset(
    {
        "validation_accuracy",
        "validation_auc",
        "validation_average_precision",
        "validation_ndcg",
    }
)
"""Validation metrics that are at most 1, and better the higher they are."""


def validation_metrics(task: Task) -> tuple[str, ...]:
    """Return what a training tells at each evaluation on the validation split, its loss first."""
    return "validation_loss", *VALIDATION_METRICS.get(task, ())


OptimizerName = Literal["adamw", "sgd", "nadam", "adafactor"]
Schedule = Literal["constant", "linear", "cosine"]
Precision = Literal["fp32", "bf16", "fp16"]
Order = Literal["rows", "blocks"]
DEFAULT_MOMENTUM = 0.9


Weight = Annotated[float, Field(gt=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]

_PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".joblib")


class ProfileSpec(Frozen):
    """Says which steps of a network's training to trace, operator by operator."""

    at: Annotated[int, Field(ge=0)] = 20
    """Steps before the trace: the first ones are slower than the rest."""
    steps: Annotated[int, Field(ge=1, le=100)] = 3


class Spot(Frozen):
    """Machines that are taken away: ``ml-assets check`` holds size and interval of saves to it."""

    notice_seconds: Annotated[float, Field(ge=0)]
    """From the notice (SIGTERM) to the end of the machine; 0: it is taken without a word."""
    write_mb_per_second: Annotated[float, Field(gt=0)]
    """Megabytes (10^6 bytes) that all machines of the training write in a second, together."""


class TrainingSpec(Spread):
    """One global step is ``microbatches`` logical microbatches, over any number of processes.

    For boosted trees a step is a round, ``model`` has the learning rate, and the fields about
    batches, epochs and processes mean nothing: a spec that sets one of them is refused.
    """

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    epochs: Positive = 10
    max_steps: Positive | None = Field(default=None, exclude_if=unset)
    """Most global steps, whatever the epochs; the schedule falls to its end by then."""
    batch_size: Positive = 3072
    """Rows per global step, over all processes; a ranking task counts queries instead."""
    microbatches: Positive = 24
    """Logical microbatches per global step; divides ``batch_size``. Batch norm takes the statistics
    of one."""
    accumulate: Positive = 1
    """Batches in one global step, one after the other in the memory of one: an update comes after
    ``accumulate * batch_size`` rows."""
    optimizer: OptimizerName = "adamw"
    """``sgd`` is Nesterov's; ``adafactor`` needs ``strategy: replicate``."""
    momentum: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The momentum of sgd; None: 0.9. The other optimizers have their own."""
    betas: tuple[Beta, Beta] | None = Field(default=None, strict=False, exclude_if=unset)
    """Decay of the means of the gradient and of its square, of adamw and nadam. None: 0.9 and
    0.999."""
    eps: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, exclude_if=unset)
    """The epsilon of adamw and nadam, added to the root of the mean square; None: 1e-8."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 1e-3
    """The weight decay of matrices; biases, norms and embeddings do not decay."""
    warmup: Fraction = 0.1
    """Share of all steps over which the learning rate rises; ``schedule`` says what comes then."""
    schedule: Schedule = "cosine"
    """After the warmup: constant, or falling to 0 along a line or a cosine."""
    precision: Precision = "fp32"
    """The precision of the network's computations; its weights, its sums and the export are
    fp32."""
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    loss: Literal["log_loss", "focal"] = "log_loss"
    """``focal`` (Lin et al., 2017) counts rows less that are predicted well; classes only."""
    focal_gamma: Annotated[float, Field(gt=0, le=10)] = 2.0
    """How much less: a row's log-loss times ``(1 - p)^gamma``, p the probability of its class."""
    positive_weight: Weight = 1.0
    """Weight of a positive row in the loss (binary); another than 1 calls for calibration."""
    class_weights: tuple[Weight, ...] = Field(default=(), strict=False)
    """Weight of a row of each class in the loss (multiclass), as ``label.classes`` orders them."""
    oversample: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """Least share of each class in what an epoch draws: rows of a rarer one come several times."""
    augmentation: Augmentation | None = Field(default=None, exclude_if=unset)
    """How rows are changed before a step learns from them. None: they are not changed."""
    curriculum: Curriculum | None = Field(default=None, exclude_if=unset)
    """Rows that count less until their turn comes. None: all count alike."""
    order: Order = Field(default="rows", exclude_if=lambda value: value == "rows")
    """``rows`` mixes all rows of an epoch. ``blocks`` mixes blocks of ``block_rows`` neighbours and
    then the rows of ``block_window`` blocks at a time: a batch reads few places of the disk, for a
    set that is larger than the memory."""
    block_rows: Positive = Field(default=4096, exclude_if=lambda value: value == 4096)
    """Rows of a block; a ranking task counts queries instead."""
    block_window: Positive = Field(default=16, exclude_if=lambda value: value == 16)
    """Blocks whose rows are mixed with each other: the more, the closer to ``rows``."""
    ensemble: Ensemble | None = Field(default=None, exclude_if=unset)
    """Several weights that are released as one model. None: the best ones alone."""
    distill: Distill | None = Field(default=None, exclude_if=unset)
    """A model that was released teaches this one. None: the labels alone do."""
    recalibrate: bool | None = None
    """Fit the probabilities to the validation split after training. None: where weights,
    oversampling or a focal loss have moved them."""
    init_from: str | None = None
    """Begin with the weights of ``release``, or of ``FILE.safetensors@sha256:DIGEST`` (absolute or
    from the pipeline's folder), instead of fresh ones. Whoever names a file vouches that it never
    saw the holdout. Without a release the first training is fresh."""
    evaluate_every: Positive = 50
    """Steps between evaluations on the validation split; a checkpoint is saved at each."""
    checkpoint_minutes: Annotated[float, Field(gt=0)] | None = None
    """Most minutes between checkpoints, whenever evaluations come; None: only they save."""
    checkpoint_every: Positive | None = Field(default=None, exclude_if=unset)
    """Steps between checkpoints, beside those of the evaluations; None: only they save."""
    spot: Spot | None = Field(default=None, exclude_if=unset)
    """The training runs where machines are taken away; None: it does not. ``ml-assets check`` holds
    the saves to it, and on a cluster it chooses the nodes."""
    patience: Positive = 5
    """Evaluations without a better validation loss before training stops."""
    keep_last: Positive = 3
    keep_best: Positive = 3
    processes: Positive = 2
    hang_timeout_seconds: Annotated[float, Field(gt=0)] = 30
    """Least time that a process waits for another in a step before it takes it for hung. The first
    step may take five minutes; later ones this, or 20 times the median step if that is longer."""
    threads: Positive = 1
    """OMP threads of each process; part of the numerics, therefore of the session."""
    profile: ProfileSpec | None = Field(default=None, exclude_if=unset)
    """Trace a few steps (Chrome's trace format); a model that is made already is not trained again
    for it: say ``--fresh``."""

    @field_validator("init_from")
    @classmethod
    def _weights_are_data(cls, value: str | None) -> str | None:
        if value is None or value == RELEASE or weights_file(value):
            return value
        why = ""
        if value.endswith(_PICKLES):
            why = ": a pickle runs code when it is read. Save its tensors with safetensors instead"
        elif value.endswith(".safetensors"):
            why = ". sha256sum prints it; by it you vouch that the file never saw the holdout"
        raise ValueError(
            f"init_from {value!r} must be 'release' or FILE.safetensors@sha256:DIGEST{why}"
        )

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        problems: list[str] = []
        if self.batch_size % (parts := self.microbatches):
            problems.append(
                f"batch_size {self.batch_size} must be a multiple of microbatches {parts}: write"
                f" batch_size: {-(-self.batch_size // parts) * parts}, or fewer microbatches"
            )
        if self.order == "rows" and (self.block_rows, self.block_window) != (4096, 16):
            problems.append(
                "block_rows and block_window are for order: blocks: set it, or remove them"
            )
        if self.momentum is not None and self.optimizer != "sgd":
            problems.append(
                f"momentum {self.momentum} is for optimizer sgd, this one is {self.optimizer}:"
                " remove momentum, or set optimizer: sgd"
            )
        if self.chosen_checkpoints > self.keep_best:
            problems.append(
                f"ensemble.checkpoints {self.chosen_checkpoints} are more than keep_best"
                f" {self.keep_best} keeps: raise keep_best"
            )
        if (self.betas or self.eps) and self.optimizer not in ("adamw", "nadam"):
            problems.append(
                f"betas and eps are for optimizer adamw and nadam, this one is {self.optimizer}:"
                " remove them"
            )
        if self.optimizer == "adafactor" and self.strategy != "replicate":
            problems.append(
                f"optimizer adafactor needs norms of whole matrices, which strategy {self.strategy}"
                " cuts into shards: set strategy: replicate, or optimizer: adamw"
            )
        if self.warmup == 1 and self.schedule != "constant":
            problems.append(
                f"warmup 1.0 leaves no step for schedule {self.schedule} to fall: set warmup below"
                " 1, or schedule: constant"
            )
        if self.strategy == "hybrid" and split_of(self.processes, 1) is None:
            problems.append(
                "strategy hybrid splits the processes into equal groups of two or more, which is "
                f"impossible with {self.processes}: set processes to 4, 6, 8 or 9, or strategy: "
                "shard"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def chosen_checkpoints(self) -> int:
        """How many checkpoints, the best ones, the model is made from."""
        return (self.ensemble and self.ensemble.checkpoints) or 1


def moves_probabilities(training: TrainingSpec) -> bool:
    """Return whether training aims at something else than the probabilities themselves."""
    weighed = training.positive_weight != 1 or len(set(training.class_weights)) > 1
    return weighed or training.oversample is not None or training.loss == "focal"
