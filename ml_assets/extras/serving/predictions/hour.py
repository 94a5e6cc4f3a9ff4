"""The rows of one hour: the published ones, and those that servers have written since."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from ml_assets.errors import StorageError
from ml_assets.extras.serving.prediction_log import FOLDER, KEY, parts_of
from ml_assets.spec.base import digest_of
from ml_assets.spec.records import InputVersion
from ml_assets.spec.stages import PREDICTIONS_STAGE
from ml_assets.store.objects import LocalObjects, bytes_digest
from ml_assets.store.pipeline_context import Pipeline, PipelineState

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

Parts = Mapping[str, str]
"""Name of a file of the hour -> SHA-256 of its bytes."""


def logged_rows(state: PipelineState, hour: str) -> tuple[pl.DataFrame, Parts]:
    """All rows of an hour, each once, and the files that hold those not published yet.

    Raises:
        StorageError: no server answered in that hour.
    """
    address = state.address(PREDICTIONS_STAGE, partition=hour)
    published = [state.scan(address).collect()] if state.record(address) else []
    objects, parts, frames = state.objects, dict[str, str](), list[pl.DataFrame]()
    objects.refresh(f"{FOLDER}/{state.name}/{hour}")  # servers write on other machines
    for name in parts_of(objects, state.name, hour):
        content = objects.read_bytes(FOLDER, state.name, hour, name)
        parts[name] = bytes_digest(content)
        frames.append(_typed(pl.read_parquet(content), _key_types(state)))
    if not frames and not published:
        raise StorageError(
            f"{state.name}: no server logged a prediction in the hour {hour} (UTC). Where the spec"
            f" has release.rollout, `ml-assets serve {state.name}` does."
        )
    whole = pl.concat([*published, *frames], how="diagonal")
    return whole.unique([*KEY, "stage"], keep="first", maintain_order=True), parts


def made_from(
    pipeline: Pipeline, hour: str, rows: pl.DataFrame, parts: Parts
) -> tuple[InputVersion, ...]:
    """The models that answered, and the servers' files."""
    models = sorted(rows["model"].unique())
    key = f"{pipeline.name}/trained_model"
    files = InputVersion(key="served", partition=hour, version=digest_of(parts), commit=None)
    of = (InputVersion(key=key, partition=None, version=model, commit=None) for model in models)
    return (files, *of)


def discard_parts(objects: LocalObjects, pipeline: str, hour: str, parts: Parts) -> None:
    """Delete what is published."""
    for name in parts:
        objects.delete(FOLDER, pipeline, hour, name)


def _key_types(state: PipelineState) -> dict[str, "PolarsDataType"]:
    """The types of the key, as the newest features have them; where there are none, text."""
    features = state.address("feature_set")
    newest = next(reversed(state.recent(features)), None)
    if newest is None:
        return {}
    schema = state.scan(features.at(newest.partition)).collect_schema()
    return {name: schema[name] for name in state.spec.features.key}


def _typed(frame: pl.DataFrame, types: Mapping[str, "PolarsDataType"]) -> pl.DataFrame:
    """The key as the features have it; a value that is none of its type is null."""
    if not types:
        return frame
    key = pl.col("key").struct
    columns = [typed_text(key.field(name), dtype).alias(name) for name, dtype in types.items()]
    return frame.with_columns(pl.struct(columns).alias("key"))


def typed_text(text: pl.Expr, dtype: "PolarsDataType") -> pl.Expr:
    """The values of a column of text; null where one is none of the type.

    Callers write numbers as they have them: 7, or 7.0 where their language knows only fractions.
    Some write a time with its zone, some without, which is UTC: polars takes one form for all.
    """
    if isinstance(dtype, pl.Datetime):
        timed = text.str.replace(" ", "T").str.replace("^([^T]*)$", "${1}T00:00")
        zoned = timed.str.replace(r"(T[\d:.]+)$", "${1}Z")
        known = (zoned, text)  # in ISO's form; else in the one that polars finds for all
        times = [
            one.str.to_datetime(strict=False, time_unit="us", time_zone="UTC") for one in known
        ]
        return pl.coalesce(times).cast(dtype)
    if isinstance(dtype, pl.Date):
        return text.str.to_date(strict=False)
    if isinstance(dtype, pl.Boolean):
        return text.str.to_lowercase().is_in(["true", "1", "1.0"])
    if dtype.is_integer():
        return text.str.replace(r"\.0+$", "").cast(dtype, strict=False)
    return text.cast(dtype, strict=False)
