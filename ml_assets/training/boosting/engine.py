"""The interface of a boosting package, which grows the trees; and the rows as each takes them."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ml_assets.errors import StorageError, counted, install
from ml_assets.spec.training import Boosted, LightGbm, Task, TrainingSpec, XGBoost
from ml_assets.spec.training_program import ModelManifest, Preprocessing, ShardSchema
from ml_assets.store.objects import read_verified
from ml_assets.training.rows.arrays import Predict, Rows
from ml_assets.training.stop import BadData, BadRequest, NotInstalled

AfterRound = Callable[[int, Callable[[], Mapping[str, float]], Callable[[], bytes]], bool]
"""(rounds grown, their losses and metrics, all trees as a file) -> stop after it?"""


def require_rows(model: LightGbm | XGBoost, rows: int) -> None:
    """Hold the share of the rows that a round is grown on to how many there are.

    Raises:
        BadRequest: a round would have none.
    """
    if model.bagging_fraction * rows < 1:
        raise BadRequest(
            f"model.bagging_fraction {model.bagging_fraction:g} of {counted(rows, 'training row')}"
            " is less than one row: raise it, or train on more rows."
        )


class Engine(Protocol):
    """One package. Whatever a round draws is a function of the seed and its number: so trees that
    go on from a checkpoint grow as they would have grown."""

    trees: str
    """Name of a checkpoint's file."""
    weights: str
    """Name of a model's file."""

    def require(self) -> None:
        """Load the package.

        Raises:
            NotInstalled: it is missing, or a system library that it needs.
        """
        ...

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
        """Grow to ``model.rounds``, or until ``after`` says stop.

        Args:
            done: rounds that ``trees`` has.
            after: called after each round.
        """
        ...

    def load_predictor(self, folder: Path, manifest: ModelManifest, threads: int) -> Predict:
        """The trees of a verified folder, ready to score.

        Raises:
            NotInstalled: the package cannot be loaded here.
            BadData: they are not whole, or not about what the manifest says.
        """
        ...


def trees_of(folder: Path, manifest: ModelManifest) -> bytes:
    """The file of a model's trees: the very bytes that were held to its manifest.

    Raises:
        BadData: it is lost, or was changed.
    """
    try:
        return read_verified(manifest.weights, folder)
    except StorageError as error:
        raise BadData(f"The model {folder} cannot be used: {error}") from error


_NOT_USED = ("cffi", "dask", "graphviz", "matplotlib", "pandas", "pyarrow", "sklearn")
"""The packages load these where they find them, for interfaces that the program does not use: that
is over a second of each start."""


def require_package(package: str, family: str) -> None:
    """Load a package that grows trees; importing it is then cheap and certain.

    Raises:
        NotInstalled: it is missing, or the OpenMP runtime that it needs.
    """
    try:
        with _hidden(_NOT_USED):  # the first import decides what it loads beside itself
            import_module(package)
    except ImportError as error:
        raise NotInstalled(
            f"model.family is {family!r}, and the package cannot be imported: {error}."
            f" Install it: {install('boosting')}"
        ) from error
    except OSError as error:
        raise NotInstalled(
            f"{package} cannot load a system library: {error}. It needs the OpenMP runtime:"
            " apt-get install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora),"
            " brew install libomp (macOS)"
        ) from error


@contextmanager
def _hidden(packages: tuple[str, ...]) -> Iterator[None]:
    """Inside, importing these fails as if they were not installed."""
    absent = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # pyright: ignore[reportArgumentType, reportCallIssue]  None: not importable
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def matrix(rows: Rows, preprocessing: Preprocessing) -> NDArray[np.float32]:
    """[n, numeric + categorical] float32: numbers, NaN for a null that has a flag; then codes.

    The trees send a missing number to the better side, so that the flags say nothing more. A code
    is exact in float32 up to 16 million words.
    """
    numbers = len(preprocessing.numeric)
    values = np.hstack([rows.numeric[:, :numbers], rows.categorical]).astype(np.float32)
    place = {column.name: number for number, column in enumerate(preprocessing.numeric)}
    for flag, name in enumerate(preprocessing.null_flags, start=numbers):
        values[rows.numeric[:, flag].astype(bool), place[name]] = np.nan
    return values


def row_weights(rows: Rows, task: Task, training: TrainingSpec) -> NDArray[np.float64] | None:
    """[rows] what each row of a class weighs; None: all the same."""
    if task == "binary" and training.positive_weight != 1:
        return np.where(rows.label.astype(np.float64) > 0.5, training.positive_weight, 1.0)
    if task == "multiclass" and training.class_weights:
        return np.array(training.class_weights)[rows.label.astype(np.int64)]
    return None


def group_sizes(rows: Rows) -> NDArray[np.int64] | None:
    """Ranking: [queries] how many rows each has; else None."""
    return None if rows.starts is None else np.diff(rows.starts)


def names(preprocessing: Preprocessing) -> list[str]:
    """A name for each column of the matrix that any model file can hold."""
    columns = [c.name for c in (*preprocessing.numeric, *preprocessing.categorical)]
    plain = ["".join(c if c.isascii() and c.isalnum() else "_" for c in name) for name in columns]
    return [f"{number}_{name}" for number, name in enumerate(plain)]


def categorical(preprocessing: Preprocessing) -> Sequence[int]:
    """The places of the columns that hold codes."""
    first = len(preprocessing.numeric)
    return range(first, first + len(preprocessing.categorical))
