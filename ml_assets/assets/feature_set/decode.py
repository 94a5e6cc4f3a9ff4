"""Decodes the files that feature rows refer to into numbers, with a team's function."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.feature_set.feature_function import FeatureFunction, load_function
from ml_assets.assets.raw_snapshot.readers.references import ReferredFiles
from ml_assets.errors import MlAssetsError, SpecError, counted, install, quoted
from ml_assets.load_extras import ENGINES
from ml_assets.spec.features import DecodeSpec, EngineSpec, FeaturesSpec
from ml_assets.spec.window import Window
from ml_assets.store.pipeline_context import Pipeline

_AT_ONCE = 256
"""Files that are in memory at the same time."""
_READERS = 16


def feature_function(pipeline: Pipeline) -> FeatureFunction:
    """The team's feature function, on the engine of the spec.

    With ``features.decode`` its rows have those numbers, too.

    Raises:
        SpecError: a function is not there, or cannot be imported.
    """
    features = pipeline.spec.features
    build = load_function(pipeline.folder, features.function, pipeline.name)
    if features.engine is not None:
        build = on_engine(build, features, features.engine, pipeline.scratch)
    if features.decode is None:
        return build
    decode = load_function(pipeline.folder, features.decode.function, pipeline.name)
    return WithDecoded(build, features.decode, decode, pipeline.name, pipeline.settings.sources)


def on_engine(
    build: FeatureFunction, features: FeaturesSpec, engine: EngineSpec, scratch: Path
) -> FeatureFunction:
    """The function as an engine runs it.

    Raises:
        SpecError: the engine is not installed, or the function is one of polars alone.
    """
    try:
        return import_module(ENGINES[engine.kind]).OnDuckDB(build, features, engine, scratch)
    except ModuleNotFoundError as error:
        raise SpecError(
            f"features.engine needs {error.name}, which is not installed: {install(engine.kind)}"
        ) from error


def decode_times(build: FeatureFunction) -> dict[str, float]:
    """Return the seconds of reading and decoding files since this was asked before."""
    return {"decode_seconds": build.taken()} if isinstance(build, WithDecoded) else {}


class WithDecoded:
    """A feature function whose rows get the numbers of their files."""

    def __init__(
        self,
        build: FeatureFunction,
        spec: DecodeSpec,
        decode: Callable[[list[bytes]], Any],
        pipeline: str,
        root: Path,
    ) -> None:
        self._build, self._spec, self._decode = build, spec, decode
        self._read = ReferredFiles(pipeline, root).read
        self._seconds = 0.0

    def taken(self) -> float:
        """Seconds that reading and decoding took since this was asked before."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def __call__(self, tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
        """The rows with the numbers beside them.

        Raises:
            SpecError: a row refers to no file; the function returns something else, or no number.
            SourceError: a file is gone, or has other content now.
        """
        rows = self._build(tables, window).collect()
        if twice := [name for name in self._spec.columns if name in rows.columns]:
            raise SpecError(
                f"The feature function returns {twice[0]!r}, a name that features.decode gives to"
                " what it decodes: rename that column, or set another features.decode.name."
            )
        began = time.perf_counter()
        numbers = self._numbers(rows)
        self._seconds += time.perf_counter() - began
        return rows.hstack(
            [
                pl.Series(name, column)
                for name, column in zip(self._spec.columns, numbers.T, strict=True)
            ]
        ).lazy()

    def _numbers(self, rows: pl.DataFrame) -> NDArray[np.float64]:
        """[rows, width]."""
        where = [self._spec.path, self._spec.etag]
        if missing := [name for name in where if name not in rows.columns]:
            raise SpecError(
                f"features.decode reads the columns {missing}, which the feature function does not"
                " return: pass them through from the table of the files."
            )
        referred = rows.select(where)
        if referred.null_count().sum_horizontal().item():
            raise SpecError(f"Some feature rows have no {where}: it says which file to decode.")
        found = [np.empty((0, self._spec.width))]
        with ThreadPoolExecutor(_READERS, "files") as pool:
            for part in referred.iter_slices(_AT_ONCE):
                paths = part[where[0]].to_list()
                contents = list(pool.map(self._read, paths, part[where[1]].to_list()))
                found.append(self._decoded(contents, paths))
        numbers = np.concatenate(found)
        if len(numbers) and not np.isfinite(numbers).any():
            raise SpecError(
                f"{self._spec.function} returned no number for any of"
                f" {counted(len(numbers), 'file')}: only NaN or infinity. Nothing can be learned"
                " from that. Is it a decoder of these files?"
            )
        return numbers

    def _decoded(self, contents: list[bytes], paths: Sequence[str]) -> NDArray[np.float64]:
        span = f"{self._spec.function} of {paths[0]} to {paths[-1]}"
        try:
            numbers = np.asarray(self._decode(contents), np.float64)
        except MlAssetsError:
            raise
        except Exception as error:  # a team's code may raise anything
            raise SpecError(f"{span} raised {type(error).__name__}: {quoted(error)}") from error
        if numbers.shape != (len(contents), self._spec.width):
            raise SpecError(
                f"{span} returned numbers of the shape {numbers.shape}; expected"
                f" ({len(contents)}, {self._spec.width}): for each file a row of"
                " features.decode.width numbers."
            )
        return numbers
