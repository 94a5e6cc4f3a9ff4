"""Loads a team's functions, and checks what they return against the spec."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any, TypeVar

import polars as pl

from ml_assets.assets.feature_set.labels import with_outcomes
from ml_assets.errors import LeakError, SpecError, counted, quoted
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.split import groups_of
from ml_assets.spec.team_modules import import_file
from ml_assets.spec.window import Window
from ml_assets.store.table_files import in_order

MOMENT = pl.Datetime("us", "UTC")
"""The type of decision times."""
Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)
FeatureFunction = Callable[[Mapping[str, pl.LazyFrame], Window], pl.LazyFrame]


def writes_a_file(build: Callable[..., Any]) -> bool:
    """Whether an engine runs a feature function, and its rows are those of a file."""
    return getattr(build, "writes_a_file", False)


def load_function(folder: Path, function: str, pipeline: str) -> Callable[..., Any]:
    """Import ``file.py:name`` from a pipeline's folder, with what it imports from there.

    Raises:
        SpecError: no such file, it cannot be imported, or it has no such function.
    """
    file_name, name = function.split(":")
    file = folder / file_name
    if not file.is_file():
        raise SpecError(f"{function!r} names {file}, which is not there: create it.")
    found: Any = getattr(import_file(folder, file_name, pipeline), name, None)
    if not isinstance(found, FunctionType):
        raise SpecError(f"{file} has no function {name!r}, which {function!r} names.")
    return found


def build_features(
    build: FeatureFunction,
    tables: Mapping[str, pl.LazyFrame],
    window: Window,
    spec: PipelineSpec,
    on_unnamed: Callable[[Sequence[str]], None] | None = None,
) -> pl.LazyFrame:
    """Call the feature function, for training and for serving alike, and check what it returns.

    The rows are there: in memory, or in a file of the engine that made them.

    Args:
        on_unnamed: told the columns that the function made and the spec does not name; what it
            passes through from a table is nobody's oversight.

    Raises:
        SpecError: see ``check_features``.
    """
    made = build(tables, window)
    in_file = writes_a_file(build)
    built = with_outcomes(made if in_file else made.collect().lazy(), spec, window)
    wanted = (spec.features, spec.label, groups_of(spec.split))
    if in_file:
        checked = check_features(built, *wanted, tables=tables)
    else:
        checked = check_features(built.collect(), *wanted, tables=tables).lazy()
    if on_unnamed is not None:
        given = {name for table in tables.values() for name in table.collect_schema().names()}
        named = {*checked.collect_schema().names(), *given}
        on_unnamed([name for name in built.collect_schema().names() if name not in named])
    return checked


def check_features(
    frame: Rows,
    spec: FeaturesSpec,
    label: LabelSpec,
    groups: Sequence[str] = (),
    *,
    tables: Mapping[str, pl.LazyFrame] = MappingProxyType({}),
) -> Rows:
    """The declared columns of a feature frame, in order and with their types.

    Returns the key, ``decision_at`` (UTC), a ranking's query, the groups of the split, the label,
    the numeric features as Float64, the categorical ones and the text as String. NaN becomes null:
    it is no value.

    Args:
        tables: what the function read: a key that is there twice may come from one of them.

    Raises:
        SpecError: a column is missing or of a type that does not fit, a key is there twice, or a
            row has no query.
    """
    query = [name for name in (label.query, label.of) if name]
    features = spec.columns
    columns = list(
        dict.fromkeys([*spec.key, spec.decision_at, *query, *groups, label.column, *features])
    )
    schema = frame.lazy().collect_schema()
    missing = [column for column in columns if column not in schema]
    if missing:
        raise SpecError("The feature function's rows lack " + _suggest(missing, schema.names()))
    _check_types(schema, spec)
    checked = frame.select(columns).with_columns(
        *(pl.col(name).cast(pl.Float64).fill_nan(None) for name in spec.numeric),
        *(pl.col(name).cast(pl.String) for name in spec.columns[len(spec.numeric) :]),
    )
    check_keys(checked, spec.key, "the feature rows", tables)
    if _nulls(checked, spec.decision_at):
        raise LeakError(
            f"{spec.decision_at!r} is null in some rows: give each row the time of its decision"
        )
    if label.query and (alone := _nulls(checked, label.query)):
        raise SpecError(
            f"The query {label.query!r} is null in {counted(alone, 'row')}: it says which rows"
            " compete. Fill it, or leave these rows out."
        )
    return checked


def _nulls(frame: pl.DataFrame | pl.LazyFrame, column: str) -> int:
    return frame.lazy().select(pl.col(column).null_count()).collect(engine="streaming").item()


def check_keys(
    frame: pl.DataFrame | pl.LazyFrame,
    key: Sequence[str],
    what: str,
    tables: Mapping[str, pl.LazyFrame] = MappingProxyType({}),
) -> None:
    """Hold rows to their key: its columns are there, never null, and no key is there twice.

    Args:
        tables: what the rows were made of.

    Raises:
        SpecError: they are not; the message shows one example.
    """
    names = frame.lazy().collect_schema().names()
    missing = [column for column in key if column not in names]
    if missing:
        raise SpecError(f"In {what}, the key's columns are missing: {_suggest(missing, names)}")
    if in_order(frame, key):
        return
    keys = frame.lazy().select(key).collect()
    if keys.select(pl.any_horizontal(pl.all().is_null()).any()).item():
        raise SpecError(f"In {what}, a key {list(key)} has a null.")
    twice = keys.group_by(key).len().filter(pl.col("len") > 1)
    if len(twice):
        example = twice.drop("len").row(0)
        are = "is" if len(twice) == 1 else "are"
        raise SpecError(
            f"In {what}, {counted(len(twice), 'key')} {list(key)} {are} there more than once,"
            f" {quoted(example)} for one: {_why_twice(twice.select(key).head(1), key, tables)}."
        )


def _why_twice(
    example: pl.DataFrame, key: Sequence[str], tables: Mapping[str, pl.LazyFrame]
) -> str:
    """Where a key that is there twice comes from: a table that has it twice, else the function."""
    for name, table in tables.items():
        schema = table.collect_schema()
        if any(schema.get(column) != example.schema[column] for column in key):
            continue
        rows = table.join(example.lazy(), on=key, how="semi").select(pl.len()).collect().item()
        if rows > 1:
            return (
                f"the table {name!r} itself has {counted(rows, 'row')} of this key. Leave all but"
                " one of each out at its source, choose one in the function, or name a key that"
                " tells them apart"
            )
    return "a join in the function multiplies rows"


def _suggest(missing: list[str], columns: list[str]) -> str:
    parts: list[str] = []
    for name in missing:
        close = difflib.get_close_matches(name, columns, n=1)
        parts.append(f"{name!r}" + (f" (there is {close[0]!r})" if close else ""))
    return f"{', '.join(parts)}. Return them, or take them out of the spec."


def _check_types(schema: pl.Schema, spec: FeaturesSpec) -> None:
    decision = schema[spec.decision_at]
    if decision != MOMENT:
        raise SpecError(
            f"The column {spec.decision_at!r} of the features has type {decision}; expected"
            " Datetime('us', 'UTC'). Cast it in the feature function: a day by"
            " .cast(pl.Datetime('us', 'UTC'))."
        )
    for name in spec.numeric:
        dtype = schema[name]
        if not (dtype.is_numeric() or dtype == pl.Boolean or dtype == pl.Null):
            raise SpecError(
                f"The numeric feature {name!r} has type {dtype}. Cast it to a number, or declare"
                " it under 'categorical'."
            )
