"""Checks a spec's columns without data: the team's functions are called on empty tables."""

import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from ml_assets.assets.feature_set.decode import on_engine
from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.assets.raw_snapshot.text_values import TYPES
from ml_assets.assets.validated_table.contract.suite import Expectation, contract_of
from ml_assets.errors import MlAssetsError, did_you_mean, one_line
from ml_assets.settings import Settings
from ml_assets.spec.gates import GroupRateBaseline
from ml_assets.spec.load import SPEC_FILE, Mistake, line_of
from ml_assets.spec.partitions import first_window, windows
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import FilesSource
from ml_assets.spec.split import groups_of
from ml_assets.spec.window import Window
from ml_assets.store.open import has_snapshots
from ml_assets.store.pipeline_context import Pipeline

_SHOWN = 12
"""Columns that a message lists."""


def schema_of(columns: Mapping[str, str]) -> pl.Schema:
    """The types of a source's table, from those that its spec declares."""
    return pl.Schema({name: TYPES[dtype] for name, dtype in columns.items()})  # pyright: ignore[reportArgumentType]


def column_mistakes(folder: Path, spec: PipelineSpec, settings: Settings) -> list[Mistake]:
    """A mistake for each column that the spec names and the feature function does not return.

    A function that needs rows to say what it returns is not judged. Nor is a column of the feature
    set that is published: it may be made from the values themselves, as a pivot makes it.
    """
    file, function = folder / SPEC_FILE, spec.features.function
    published = _published(folder, spec, settings)
    try:
        returned = _returned(folder, spec)
    except pl.exceptions.ColumnNotFoundError as error:
        if set(spec.features.columns) <= {*published}:
            return []
        rule = "the functions read columns that their tables have"
        said = (
            f"{one_line(str(error).splitlines()[0])}: correct the function, or declare the column"
        )
        key = "features.function"
        return [Mistake(file, line_of(file, key), key, repr(function), rule, said)]
    except (Exception, pl.exceptions.PanicException):  # whatever a team's function does
        return []
    if refused := _refused_by_engine(folder, spec):
        rule = f"{function} runs on its engine: it was tried on tables without rows"
        key = "features.engine"
        kind = spec.features.engine.kind if spec.features.engine else ""
        return [Mistake(file, line_of(file, key), key, repr(kind), rule, refused)]
    there = {*returned, *published}
    rule = f"every column that the spec names is one that {function} returns"
    found: list[Mistake] = []
    for key, names in _named(spec).items():
        missing = [name for name in names if name not in there]
        if missing:
            near = did_you_mean(missing[0], returned).strip()
            few = ", ".join([*returned][:_SHOWN]) + (", …" if len(returned) > _SHOWN else "")
            remedy = f"{near} It returns {few}".strip()
            shown = ", ".join(map(repr, missing))
            found.append(Mistake(file, line_of(file, key), key, shown, rule, remedy))
    return [*found, *_text_as_numbers(folder, spec, returned)]


def number_words(folder: Path, spec: PipelineSpec) -> Iterator[str]:
    """A warning for each categorical feature whose values, by its contract, are all numbers."""
    for source in spec.sources.values():
        try:
            contract = contract_of(folder, source)
        except MlAssetsError:  # a mistake, which is told as one
            continue
        for one in contract.expectations:
            name, values = one.kwargs.get("column"), one.kwargs.get("value_set") or ()
            if name in spec.features.categorical and _are_numbers(values):
                few = ", ".join(map(repr, values[:3]))
                yield (
                    f"features.categorical has {name!r}, and its values in {source.contract} are "
                    f"numbers ({few}): the model treats each as a category, without an order\n"
                    f"    remedy: if their size matters, cast {name!r} to Float64 in "
                    f"{spec.features.function.partition(':')[0]} and name it under "
                    "features.numeric"
                )


def _returned(folder: Path, spec: PipelineSpec) -> pl.Schema:
    """What the feature function returns for tables without rows."""
    build = load_function(folder, spec.features.function, spec.name)
    return build(*_empty(folder, spec)).lazy().collect_schema()


def _refused_by_engine(folder: Path, spec: PipelineSpec) -> str:
    """Why the engine cannot run the function, which polars can; empty: it can, or there is none."""
    features = spec.features
    if features.engine is None:
        return ""
    build = load_function(folder, features.function, spec.name)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            on_engine(build, features, features.engine, Path(scratch))(*_empty(folder, spec))
        except MlAssetsError as error:
            return str(error)
        except Exception as error:  # whatever a team's function asks of frames of the engine
            return (
                f"{type(error).__name__}: {one_line(str(error))}. Write it with what narwhals'"
                " lazy frames can do, or remove features.engine."
            )
    return ""


def _empty(folder: Path, spec: PipelineSpec) -> tuple[dict[str, pl.LazyFrame], Window]:
    """The tables that the feature function reads, without rows, and the newest window.

    Where no partition is over yet it is the first one.
    """
    window = Window(None, None, None)
    if spec.partitions.cadence != "none":
        over = windows(spec.partitions, datetime.now(UTC))
        last = over[-1] if over else first_window(spec.partitions)
        window = Window(last.key, last.start, last.end)
    tables = {
        name: pl.LazyFrame(schema=schema_of(source.columns))
        for name, source in spec.sources.items()
    }
    for name, table in spec.tables.items():
        made = load_function(folder, table.function, spec.name)
        tables[name] = made({read: tables[read] for read in table.reads}, window).collect().lazy()
    return tables, window


def _named(spec: PipelineSpec) -> dict[str, tuple[str, ...]]:
    """Key of the spec -> the columns that it asks of the feature function."""
    features, label, decode = spec.features, spec.label, spec.features.decode
    decoded = decode.columns if decode else ()
    added = {*decoded, label.column}  # with 'ahead', the function returns another one
    grouped = {"evaluation.slices": _without(spec.evaluation.slices, added)}
    for number, one in enumerate(spec.evaluation.baselines):
        if isinstance(one, GroupRateBaseline):
            grouped[f"evaluation.baselines[{number}].by"] = _without(one.by, added)
    return {
        "features.key": features.key,
        "features.decision_at": (features.decision_at,),
        "features.numeric": _without(features.numeric, decoded),
        "features.decode": (decode.path, decode.etag) if decode else (),
        "features.categorical": features.categorical,
        "features.tokens": (features.tokens.column,) if features.tokens else (),
        "label.query": (label.query,) if label.query else (),
        "label": (label.of or label.column,),
        "split.groups": groups_of(spec.split),
        **grouped,
    }


def _without(names: Iterable[str], others: Container[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in others)


def _text_as_numbers(folder: Path, spec: PipelineSpec, found: pl.Schema) -> Iterator[Mistake]:
    file, features = folder / SPEC_FILE, spec.features
    key, rule = "features.numeric", "a numeric feature is a number, or true or false"
    for name in features.numeric:
        dtype = found.get(name)
        if dtype is not None and not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
            remedy = f"cast it to Float64 in {features.function}, or name it under categorical"
            remedy = "; or ".join([*_declared_as_numbers(folder, spec, name), remedy])
            value = f"{name!r}, which comes as {dtype}"
            yield Mistake(file, line_of(file, key), key, value, rule, remedy)


def _declared_as_numbers(folder: Path, spec: PipelineSpec, column: str) -> Iterator[str]:
    """All that has to be edited for a source's text to be read as numbers; none: no text."""
    for name, source in spec.sources.items():
        if source.columns.get(column) != "string":
            continue
        edits = [f"declare '{column}: float64' under sources.{name}.columns"]
        if isinstance(source, FilesSource):
            now = ", ".join(map(repr, source.null_values))
            edits.append(
                f"name every word that means no value under sources.{name}.null_values (now {now})"
            )
        try:
            held = [e.type for e in contract_of(folder, source).expectations if _is_of(e, column)]
        except MlAssetsError:  # a mistake, which is told as one
            held = []
        if held:
            edits.append(
                f"check in {source.contract} that its expectations for {column!r} also hold for"
                f" numbers with nulls ({', '.join(held)})"
            )
        yield f"to read it as numbers, {'; '.join(edits)}"


def _is_of(expectation: Expectation, column: str) -> bool:
    return expectation.kwargs.get("column") == column


def _published(folder: Path, spec: PipelineSpec, settings: Settings) -> tuple[str, ...]:
    """The columns of the newest feature set; none where none is published."""
    if not has_snapshots(settings.snapshots):
        return ()
    pipeline = Pipeline(spec, folder, settings)
    try:
        state, address = pipeline.now(), pipeline.address("feature_set")
        records = state.recent(address)
        newest = address.at(records[-1].partition) if records else None
        return tuple(state.scan(newest).collect_schema().names()) if newest else ()
    except MlAssetsError:  # damaged or recalled, which is told where it is read
        return ()


def _are_numbers(values: object) -> bool:
    """Whether texts are numbers that are written as such; a leading zero makes a code of them."""
    if not isinstance(values, list | tuple) or len(values) < 2:
        return False
    if not all(isinstance(value, str) and not value.startswith("0") for value in values):
        return False
    return not pl.Series(values).cast(pl.Float64, strict=False).null_count()
