"""Checks a spec's columns: the team's functions are called, on tables without rows if they can."""

import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from ml_assets.assets.feature_set.decode import on_engine
from ml_assets.assets.feature_set.feature_function import MOMENT, load_function
from ml_assets.assets.feature_set.function_inputs import feature_reads
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
from ml_assets.spec.team_modules import line_in
from ml_assets.spec.window import Window
from ml_assets.store.open import has_snapshots
from ml_assets.store.pipeline_context import Pipeline

_SHOWN = 12
"""Columns that a message lists."""
_Tables = tuple[dict[str, pl.LazyFrame], Window]
"""What a feature function is called with."""


def schema_of(columns: Mapping[str, str]) -> pl.Schema:
    """The types of a source's table, from those that its spec declares."""
    return pl.Schema({name: TYPES[dtype] for name, dtype in columns.items()})  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class _Tried:
    """What the feature function made of some tables."""

    returned: pl.Schema
    """Empty: it raised."""
    error: Exception | None
    tables: _Tables | None
    """Those that it was called on."""
    with_rows: bool = False


def column_mistakes(folder: Path, spec: PipelineSpec, settings: Settings) -> list[Mistake]:
    """A mistake for each column that the spec names and the feature function does not return.

    A function that needs rows to say what it returns is judged by those of the newest partition;
    where none is published, it is not judged.
    """
    file, function = folder / SPEC_FILE, spec.features.function
    tried = _tried(folder, spec, settings)
    if tried.error is not None:
        key, why = "features.function", _why_it_fails(folder, tried.error, had_rows=tried.with_rows)
        return [Mistake(file, line_of(file, key), key, repr(function), *why)] if why else []
    if refused := _refused_by_engine(folder, spec, tried.tables):
        rule = f"{function} runs on its engine: it was tried on {_rows(tried)}"
        key = "features.engine"
        kind = spec.features.engine.kind if spec.features.engine else ""
        return [Mistake(file, line_of(file, key), key, repr(kind), rule, refused)]
    returned = tried.returned
    rule = f"every column that the spec names is one that {function} returns"
    found: list[Mistake] = []
    for key, missing in _missing(spec, returned).items():
        near = did_you_mean(missing[0], returned).strip()
        few = ", ".join([*returned][:_SHOWN]) + (", …" if len(returned) > _SHOWN else "")
        remedy = f"{near} It returns {few}".strip()
        shown = ", ".join(map(repr, missing))
        found.append(Mistake(file, line_of(file, key), key, shown, rule, remedy))
    found += _decided_at_no_moment(folder, spec, returned)
    return [*found, *_text_as_numbers(folder, spec, returned)]


def not_judged(folder: Path, spec: PipelineSpec, settings: Settings) -> Iterator[str]:
    """A warning of a function that raises on tables without rows, where no others are there yet."""
    tried = _call(folder, spec, lambda: _empty(folder, spec))
    if tried.error is None or _is_column_not_found(tried.error):
        return
    if tried.tables is None and isinstance(tried.error, MlAssetsError):
        return  # it could not be loaded, which is told as a mistake
    if _published(folder, spec, settings) is not None:
        return  # it was judged by those
    yield (
        f"{spec.features.function} was called on tables without rows, and raised"
        f" {_told(folder, tried.error)}: unless it needs rows, a run would fail\n"
        f"    remedy: correct it; or run ml-assets run {spec.name} --through feature_set, and check"
        " calls it on rows"
    )


def _tried(folder: Path, spec: PipelineSpec, settings: Settings) -> _Tried:
    """The function called without rows; where it raises, or lacks columns, with published ones."""
    first = _call(folder, spec, lambda: _empty(folder, spec))
    if first.error is None and not _missing(spec, first.returned):
        return first
    rows = _published(folder, spec, settings)
    return first if rows is None else replace(_call(folder, spec, lambda: rows), with_rows=True)


def _call(folder: Path, spec: PipelineSpec, tables: Callable[[], _Tables]) -> _Tried:
    given = None
    try:
        build = load_function(folder, spec.features.function, spec.name)
        given = tables()
        return _Tried(build(*given).lazy().collect_schema(), None, given)
    except (Exception, pl.exceptions.PanicException) as error:  # whatever a team's function does
        return _Tried(pl.Schema(), error, given)


def _why_it_fails(folder: Path, error: Exception, *, had_rows: bool) -> tuple[str, str] | None:
    """Rule and remedy; None: it may be that the function needs rows."""
    if _is_column_not_found(error):
        said = one_line(str(error).strip().splitlines()[0])
        rule = "the functions read columns that their tables have"
        return rule, f"{said}: correct the function, or declare the column"
    if had_rows:
        rule = "the function runs: it was tried on the newest partition"
        return rule, f"it raised {_told(folder, error)}: correct it"
    return None


def _is_column_not_found(error: Exception) -> bool:
    """Of polars, or of narwhals, which is not loaded for it."""
    return type(error).__name__ == "ColumnNotFoundError"


def _told(folder: Path, error: Exception) -> str:
    """Type, words and line of what a team's function raised."""
    said = (str(error).strip().splitlines() or [""])[0]
    at = line_in(folder, error)
    return f"{type(error).__name__} ({one_line(said)}){f' in {at}' if at else ''}"


def _rows(tried: _Tried) -> str:
    return "the newest partition" if tried.with_rows else "tables without rows"


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


def _refused_by_engine(folder: Path, spec: PipelineSpec, tables: _Tables | None) -> str:
    """Why the engine cannot run the function, which polars can; empty: it can, or there is none."""
    features = spec.features
    if features.engine is None or tables is None:
        return ""
    build = load_function(folder, features.function, spec.name)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            on_engine(build, features, features.engine, Path(scratch))(*tables)
        except MlAssetsError as error:
            return str(error)
        except Exception as error:  # whatever a team's function asks of frames of the engine
            return (
                f"{_told(folder, error)}. Write it with what narwhals' lazy frames can do, or"
                " remove features.engine."
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


def _missing(spec: PipelineSpec, returned: pl.Schema) -> dict[str, list[str]]:
    """Key of the spec -> the columns that it names and that the function does not return."""
    found = {
        key: [name for name in names if name not in returned] for key, names in _named(spec).items()
    }
    return {key: names for key, names in found.items() if names}


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


def _decided_at_no_moment(folder: Path, spec: PipelineSpec, found: pl.Schema) -> Iterator[Mistake]:
    """Of empty tables a column may come without a type, which says nothing."""
    file, features, key = folder / SPEC_FILE, spec.features, "features.decision_at"
    dtype = found.get(features.decision_at)
    if dtype is None or dtype in (pl.Null(), MOMENT):
        return
    how = ".cast(pl.Datetime('us', 'UTC'))"
    if dtype == pl.String:
        how = ".str.to_datetime(time_unit='us', time_zone='UTC')"
    elif isinstance(dtype, pl.Datetime) and dtype.time_zone is None:
        how = f".dt.replace_time_zone('UTC'){how}"
    column = f"pl.col({features.decision_at!r})"
    remedy = f"in {features.function}, return {column}{how}"
    value = f"{features.decision_at!r}, which comes as {dtype}"
    rule = "the moment of a decision is a time in UTC"
    yield Mistake(file, line_of(file, key), key, value, rule, remedy)


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


def _published(folder: Path, spec: PipelineSpec, settings: Settings) -> _Tables | None:
    """What the function read for the newest feature set; None: something of it is not there."""
    if not has_snapshots(settings.snapshots):
        return None
    pipeline = Pipeline(spec, folder, settings)
    reads = feature_reads(pipeline)
    try:
        state = pipeline.now()
        records = state.recent(pipeline.address("feature_set"))
        if not records:
            return None
        partition = records[-1].partition
        return dict(reads.tables(state, partition)), reads.window(partition)
    except (MlAssetsError, KeyError):  # recalled, damaged, or of another calendar than the spec's
        return None


def _are_numbers(values: object) -> bool:
    """Whether texts are numbers that are written as such; a leading zero makes a code of them."""
    if not isinstance(values, list | tuple) or len(values) < 2:
        return False
    if not all(isinstance(value, str) and not value.startswith("0") for value in values):
        return False
    return not pl.Series(values).cast(pl.Float64, strict=False).null_count()
