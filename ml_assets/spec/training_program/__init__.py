"""The protocol between the training program and its launcher: the request, the result, the files.

The two sides share this package and nothing else. ``events`` has what the program tells while it
runs, ``exit_codes`` how it ends, ``identity`` which program it is, ``start`` how it is started, and
``pod`` what goes through the object store where it runs in pods.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field

from ml_assets.spec.base import Digest, Frozen, Positive, unset
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.sanity import Alone, NetworkSize, SanityCheck
from ml_assets.spec.texts import Tokens
from ml_assets.spec.training import Boosted, ModelSpec, Task, TrainingSpec
from ml_assets.spec.training_program.calibration import Calibration
from ml_assets.spec.training_program.identity import Program
from ml_assets.spec.training_program.on_demand import RowsOnDemand

SPLIT = "split"
"""The column of a training set's rows that names their split."""
Split = Literal["train", "validation", "holdout"]
SPLITS: tuple[Split, ...] = get_args(Split)

SCHEMA_FILE = "schema.json"
SHARD_FILE = "shard.json"
CHECKED_ROWS = 4096
"""Rows of a shard that have a checksum of their own, so that some can be fetched without others."""


class Ref(Frozen):
    """A folder of files, and the SHA-256 of the manifest in it that names every file's checksum."""

    uri: str
    digest: Digest


# --- the training set on disk: <uri>/schema.json, and beside it the folders of its shards ---------


class File(Frozen):
    path: str
    """Relative to the folder of the manifest."""
    size: Annotated[int, Field(ge=0)]
    sha256: Digest


class NumericColumn(Frozen):
    """Encoded as ``clip((x - mean) / std, -8, 8)``; null becomes 0."""

    name: str
    mean: float
    std: Annotated[float, Field(gt=0)]


class CategoricalColumn(Frozen):
    """Encoded as the word's place in ``vocabulary`` plus 1; 0 is null or a word never seen."""

    name: str
    vocabulary: tuple[str, ...] = Field(strict=False)


class Preprocessing(Frozen):
    """Fitted on the training split only. The null flags follow the numeric columns, in order."""

    numeric: tuple[NumericColumn, ...] = Field(strict=False)
    null_flags: tuple[str, ...] = Field(strict=False)
    """Numeric columns that get an extra 0/1 column: they had nulls in the training split."""
    categorical: tuple[CategoricalColumn, ...] = Field(strict=False)
    tokens: Tokens | None = Field(default=None, exclude_if=unset)
    """The tokens of texts, which have no other columns."""


class Shard(Frozen):
    """One part of a split: a folder beside that of the set, named by its own manifest's digest."""

    rows: Annotated[int, Field(ge=0)]
    digest: Digest
    """SHA-256 of the ``shard.json`` in it, and its name."""
    table: Digest
    """SHA-256 of its rows before encoding."""


class ShardFiles(Frozen):
    """``shard.json``: arrays of some rows as they are, before anything that was fitted.

    So it is the same in every window. ``Preprocessing`` and ``LabelScale`` are applied as the rows
    are taken.
    """

    schema_version: Literal[1] = 1
    rows: Annotated[int, Field(ge=0)]
    numeric: File
    """[rows, n] float64; NaN where there is no number."""
    missing: File
    """[rows, ceil(n / 8)] uint8: bit i % 8 of byte i // 8 says that number i is null."""
    categorical: File
    """[rows, c] int32: the place of the word in ``words`` plus 1; 0 is null."""
    words: File
    """JSON: for each categorical column the words of these rows, sorted."""
    label: File
    """[rows]: 0 or 1 float32 (binary), place of the class int64 (multiclass), the number float64
    (regression), the row's share of its query's gain float32 (ranking), or the bytes of the text
    float64 (language_model)."""
    queries: File | None = Field(default=None, exclude_if=unset)
    """Ranking: [queries + 1] int64, where each query's rows begin; a query lies in one shard."""
    tokens: File | None = Field(default=None, exclude_if=unset)
    """Texts: [n] uint16, 0 and then the tokens of each row, each followed by 0. What was fitted
    decides them: other words make another shard."""
    texts: File | None = Field(default=None, exclude_if=unset)
    """Texts: [rows + 1] int64, where the tokens of each row begin, and the end of the last."""
    checksums: File | None = Field(default=None, exclude_if=unset)
    """[ceil(rows / CHECKED_ROWS), 4, 32] uint8: SHA-256 of so many rows of numeric, missing,
    categorical and label; None: it was encoded before there were any."""
    table: File
    """The rows before encoding (Parquet), in the same order."""

    @property
    def arrays(self) -> tuple[File, ...]:
        """Return what the training program reads where it has the whole shard."""
        files = (self.numeric, self.missing, self.categorical, self.words, self.label)
        further = (self.queries, self.tokens, self.texts)
        return (*files, *(file for file in further if file is not None))


class LabelScale(Frozen):
    """Regression: the label is learned as ``(y - mean) / std``, of the training split."""

    mean: float
    std: Annotated[float, Field(gt=0)]


class ShardSchema(Frozen):
    """``schema.json`` of a training set; its SHA-256 names the whole set."""

    schema_version: Literal[1] = 1
    task: Task
    classes: tuple[str, ...] = Field(strict=False)
    preprocessing: Preprocessing
    label_rate: tuple[float, ...] = Field(strict=False)
    """Share of each class in the training split (binary: of the positive one; a text: of each
    token; a number: empty)."""
    label_scale: LabelScale | None = Field(default=None, exclude_if=unset)
    splits: dict[Split, tuple[Shard, ...]]

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards of all splits, each once."""
        return self.shards_of(SPLITS)

    def shards_of(self, splits: Sequence[Split]) -> tuple[Shard, ...]:
        """The shards of some splits, each once."""
        found = (one for name in splits for one in self.splits.get(name, ()))
        return tuple({one.digest: one for one in found}.values())


class ModelManifest(Frozen):
    """``model.json`` beside the weights: all it takes to score. Its SHA-256 is the model."""

    schema_version: Literal[1] = 1
    model: ModelSpec
    task: Task
    classes: tuple[str, ...] = Field(strict=False)
    preprocessing: Preprocessing
    label_scale: LabelScale | None = Field(default=None, exclude_if=unset)
    """Regression: takes a prediction back to the label's own unit."""
    calibration: Calibration | None = Field(default=None, exclude_if=unset)
    code: Digest | None = Field(default=None, exclude_if=unset)
    """A team's own network: the digest of its code; with another it is not loaded."""
    ensemble: int = Field(default=1, ge=1, le=20, exclude_if=lambda value: value == 1)
    """Networks that are averaged: of several, names of tensors begin ``0.`` (the best), ``1.``"""
    weights: File
    step: Annotated[int, Field(ge=0)]


class CheckpointManifest(Frozen):
    """``manifest.json``, written last: the checkpoint exists when this file does."""

    schema_version: Literal[1] = 1
    session: str
    attempt: Positive
    step: Annotated[int, Field(ge=0)]
    validation_loss: float | None
    """The loss of the evaluation that was due at this step; None where none was."""
    world: Positive
    parent: str | None
    """Name of the checkpoint that this attempt resumed from."""
    files: tuple[File, ...] = Field(strict=False)
    best: str | None = Field(default=None, exclude_if=unset)
    """Name of the best one so far, which it may be itself; None: none was judged yet."""
    bf16_weights: str | None = Field(default=None, exclude_if=unset)
    """Name of the file with the weights alone, rounded to bf16: the best ones have it."""


class Claim(Frozen):
    """``attempt-NNNNNN.json``: this attempt alone writes the session's checkpoints from here on."""

    schema_version: Literal[1] = 1
    session: str
    attempt: Positive
    accepted: tuple[str, ...] = Field(strict=False)
    """Checkpoints of older attempts that it found whole; one that comes later does not count."""


# --- requests -----------------------------------------------------------------------------------


class World(Frozen):
    nodes: Positive = 1
    procs: Positive = 1
    """Processes on each node."""
    threads: Positive = 1

    @property
    def processes(self) -> int:
        """Processes of all nodes: the size of the world."""
        return self.nodes * self.procs


def training_world(model: ModelSpec, training: TrainingSpec) -> World:
    """The world of a training: boosted trees grow in one process, a network in those declared."""
    procs = 1 if isinstance(model, Boosted) else training.processes
    return World(procs=procs, threads=training.threads)


class Reports(Frozen):
    """Files of one attempt: its events, and how it ended."""

    events: str
    result: str


class TrainOutput(Reports):
    """``checkpoints`` and ``model`` are the session's."""

    checkpoints: str
    model: str
    """Folder for ``model.json`` and the weights that it names; written whole, by rename."""


class ScoreOutput(Reports):
    """Says where the predictions go."""

    predictions: str
    """``.npy`` [rows, outputs] float64 in the rows' order: probabilities, values in the label's
    unit, scores within a query (ranking), or the nats of each text (language_model)."""


class _Asked(Frozen):
    """What every request says."""

    schema_version: Literal[1] = 1
    session: str
    attempt: Positive
    data: Ref
    world: World
    program: Program | None = Field(default=None, exclude_if=unset)
    """The program that is asked for; another one refuses. None: whichever is there."""
    code: NetworkCode | None = Field(default=None, exclude_if=unset)
    """The code of a team's own network; None: the family is one of ours."""
    on_demand: RowsOnDemand | None = Field(default=None, exclude_if=unset)
    """Set by a pod for its own processes; None: the rows are here."""

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that are read whole."""
        return ("validation",) if self.on_demand else ("train", "validation")


class TrainRequest(_Asked):
    """Train a model, or go on with it."""

    verb: Literal["train"] = "train"
    model: ModelSpec
    training: TrainingSpec
    init: Ref | None = Field(default=None, exclude_if=unset)
    """Weights to begin with: the folder of a model, or a .safetensors file and its SHA-256."""
    teacher: Ref | None = Field(default=None, exclude_if=unset)
    """The model that ``training.distill`` learns from: its folder. None: there is none yet."""
    members: tuple[Ref, ...] = Field(default=(), strict=False, exclude_if=unset)
    """Models by other seeds that are exported with this one as an ensemble: their folders."""
    resume: Ref | None
    steps: Positive | None = Field(default=None, exclude_if=unset)
    """Most steps: a drill takes a few; None: as many as the spec says."""
    output: TrainOutput


class ScoreRequest(_Asked):
    """Predict the rows of a split."""

    verb: Literal["score"] = "score"
    model: Ref
    split: Split
    output: ScoreOutput

    @property
    def splits(self) -> tuple[Split, ...]:
        """See ``_Asked.splits``."""
        return (self.split,)


class MeasureRequest(_Asked):
    """Take a few steps of a training and say how fast they are; nothing is kept of them."""

    verb: Literal["measure"] = "measure"
    model: ModelSpec
    training: TrainingSpec
    steps: Positive
    """Measured; a few before them are not."""
    output: Reports


class SanityRequest(_Asked):
    """Try whether a network can learn from these rows at all."""

    verb: Literal["sanity"] = "sanity"
    model: ModelSpec
    training: TrainingSpec
    deep: bool = Field(default=False, exclude_if=unset)
    """Run the conformance checks of every network instead, in two processes."""
    output: Reports


Request = Annotated[
    TrainRequest | ScoreRequest | MeasureRequest | SanityRequest, Field(discriminator="verb")
]


# --- result -------------------------------------------------------------------------------------


class _Done(Frozen):
    """What every result says."""

    schema_version: Literal[1] = 1
    session: str
    attempt: Positive
    outcome: Literal["done"] = "done"


class TrainResult(_Done):
    verb: Literal["train"] = "train"
    step: Annotated[int, Field(ge=0)]
    best_step: Annotated[int, Field(ge=0)]
    stopped: Literal["epochs", "rounds", "patience"]
    model: Ref
    metrics: dict[str, float]
    seconds: float
    advice: tuple[str, ...] = Field(default=(), strict=False)


class ScoreResult(_Done):
    verb: Literal["score"] = "score"
    predictions: File
    rows: Annotated[int, Field(ge=0)]
    latency_ms: float
    """Median wall time to score one row, milliseconds."""
    rows_per_second: float
    latency_p99_ms: float | None = Field(default=None, exclude_if=unset)
    """Milliseconds for one row, the slowest in a hundred; None: it was not measured."""
    memory_mb: float | None = Field(default=None, exclude_if=unset)
    """Megabytes (10^6 bytes) that the process held at most."""
    samples: tuple[tuple[int, ...], ...] = Field(default=(), strict=False, exclude_if=unset)
    """Tokens of a language model: the first half from a text, the rest as the model goes on."""


class MeasureResult(_Done):
    verb: Literal["measure"] = "measure"
    rows_per_second: float
    rows_per_cpu_second: float
    """Over the processor time of all processes."""
    step_time_ms: float
    memory_total_mb: float
    """The most that each process held, added up."""
    data_wait_share: float
    communication_share: float
    flops_per_row: float = 0.0
    """Floating-point operations of a row (of a language model a window), forward and backward."""
    steps_planned: int = 0
    """Steps of the whole training."""


class SanityResult(_Done):
    verb: Literal["sanity"] = "sanity"
    checks: tuple[SanityCheck, ...] = Field(strict=False)
    seconds: float
    alone: Alone | None = Field(default=None, exclude_if=unset)
    size: NetworkSize | None = Field(default=None, exclude_if=unset)

    @property
    def failed(self) -> tuple[SanityCheck, ...]:
        """The checks with which training must not begin."""
        return tuple(check for check in self.checks if check.outcome == "failed")


Result = Annotated[
    TrainResult | ScoreResult | MeasureResult | SanityResult, Field(discriminator="verb")
]
