"""A table with a label, and how each of its columns is understood."""

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import polars as pl

from ml_assets.assets.raw_snapshot.text_values import TextFormat
from ml_assets.assets.validated_table.contract.proposal import RARE
from ml_assets.errors import SpecError, counted, did_you_mean
from ml_assets.scaffold.column_types import DTYPES, typed_columns
from ml_assets.scaffold.columns import (
    NO_VALUE,
    almost_numbers,
    count_copies,
    epochs,
    odd_texts,
)
from ml_assets.scaffold.find_input import Given
from ml_assets.scaffold.labels import Label, label_of, with_classes
from ml_assets.scaffold.time_columns import (
    Moments,
    almost_key,
    check_time,
    find_key,
    find_time,
    in_their_partitions,
    repeated_rows,
    share_told,
    step_of,
)
from ml_assets.spec.automation import duration_text
from ml_assets.spec.sources import DType
from ml_assets.spec.training import Task

_FEWEST = 3
_WORDS = 1000
"""A text feature with more values than this is taken for an identifier and left out."""

_NO_TIME = (
    "no column of times was found: rows are split at random. If one says when, name it by --time"
)


@dataclass(frozen=True)
class Column:
    """The label's table is described by these; ``use`` is what the column is taken for."""

    name: str
    dtype: DType
    use: str
    """``key``, ``label``, ``time``, ``numeric``, ``categorical`` or ``left out``."""
    remark: str = ""
    """Why it is left out; of a feature, what spoils it."""

    @property
    def told(self) -> str:
        """Return what it is taken for, as a line says it."""
        return f"{self.dtype:9} {self.use}{f': {self.remark}' if self.remark else ''}"


@dataclass(frozen=True)
class LabelledTable:
    """A table in the types of a spec, and what each column is taken for."""

    frame: pl.DataFrame
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    predicted: Label
    notes: tuple[str, ...]
    """What was done to the table, or will be, that its owner would not guess."""
    given: Given
    """Where it came from, and how a spec's source reads it."""
    moments: Moments | None = None
    """When its rows are; None: nothing in it says so."""
    ahead: timedelta | None = None
    """How long after a row its outcome is seen; None: in the row itself."""
    copies: int = 0
    """Rows that repeat another one under another key, more than chance explains."""

    @property
    def decision_at(self) -> str:
        """Return when each prediction is made: a column of times, or one that the function adds."""
        if self.moments and self.frame.schema[self.moments.time] != pl.Date():
            return self.moments.time
        return free_name("decided_at", self.frame.columns)

    @property
    def task(self) -> Task:
        return self.predicted.task

    @property
    def label(self) -> str:
        """The column that is predicted."""
        return self.names("label")[0]

    def names(self, use: str) -> list[str]:
        return [column.name for column in self.columns if column.use == use]


def sample_table(task: Task = "binary") -> LabelledTable:
    """600 made-up orders, always the same: sent back or not, what became of it, minutes to pack."""
    draw = random.Random(20)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    rows: list[dict[str, object]] = []
    for number in range(600):
        amount, region = round(draw.lognormvariate(3.5, 0.8), 2), draw.choice("NESW")
        chance = 0.1 + 0.5 * (amount > 60) + 0.2 * (region == "N")
        row = {"order": number, "ordered_at": begin + timedelta(hours=number)}
        items = draw.randint(1, 9)
        row |= {"amount": amount, "items": items, "region": region}
        sent_back = draw.random() < chance
        outcome = ("exchanged" if amount > 60 else "sent_back") if sent_back else "kept"
        minutes = round(2 + 1.5 * items + amount % 4, 1)
        labels = {"multiclass": {"outcome": outcome}, "regression": {"minutes": minutes}}
        rows.append(row | labels.get(task, {"sent_back": sent_back}))
    label = [*rows[0]][-1]
    given = Given(pl.DataFrame(rows).with_columns(pl.col("items").cast(pl.Float64)), rows="written")
    return describe(given, label=label, key=["order"], time="ordered_at")


def free_name(wanted: str, taken: Collection[str]) -> str:
    """The wanted name, or it with the first number that makes it new."""
    numbered = (f"{wanted}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([wanted], numbered) if name not in taken)


def describe(
    given: Given,
    label: str,
    key: Sequence[str] = (),
    time: str | None = None,
    ahead: timedelta | None = None,
    task: Task | None = None,
) -> LabelledTable:
    """Bring a table to the types of a spec and choose what each column is used for.

    Args:
        key: the columns that tell its rows apart; none: they are looked for.
        time: when each prediction is made; None: it is looked for.
        ahead: how long after its row an outcome is seen.
        task: what the label is; None: its values show it.

    Raises:
        SpecError: a column is missing, the key is not one, or there is nothing to learn from.
    """
    frame, notes = _name_all(given.frame)
    _check_named(frame.columns, label, [*key, *([time] if time else [])])
    needed = [label, *key, *([time] if time else [])] if given.rows else frame.columns
    _require_rows(len(frame))
    typed, left_out = typed_columns(frame, needed)
    notes += left_out
    if task == "multiclass":
        typed = with_classes(typed, label, written=_is_text_or_written(given))
    time = time or find_time(typed, given, label)
    if time:
        check_time(typed[time], _written(given))
        given, more = in_their_partitions(typed, time, given)
        notes += more
    keys = tuple(key) or find_key(typed, label, time, ahead)
    repeated = _check_key(typed.select(keys)) + almost_key(typed, label, time, () if key else keys)
    if time and (given.calendar or time in keys):
        typed, given = _as_moments(typed, time, given)
    series = time in keys and typed.schema[time] != pl.Date()
    moments = Moments(time, series, step_of(typed, time, keys)) if time else None
    if ahead and not (moments and moments.is_series):
        raise SpecError(
            f"--ahead {duration_text(ahead)} looks for the row so much later, so the key must hold"
            f" the time of a row; it is {list(keys)}. Name both: --time COLUMN --key COLUMN,COLUMN."
        )
    columns = _columns(typed, label, keys, time)
    if not ahead:
        _require_something_to_learn(columns)
    found = label_of(typed[label], task)
    copies = 0 if series else count_copies(typed, _learned(columns), label)
    said = (
        *notes,
        *given.notes,
        *odd_texts(typed, _written(given)),
        *(() if time else (*epochs(typed), _NO_TIME)),
        *repeated,
        *_unlabelled(typed[label]),
        *found.notes,
        *_copied(copies, len(typed), keys, whole=given.calendar is None),
    )
    kept = replace(given, frame=typed, notes=())
    return LabelledTable(typed, columns, keys, found, said, kept, moments, ahead, copies)


def _check_named(columns: Sequence[str], label: str, others: Sequence[str]) -> None:
    missing = [name for name in (label, *others) if name not in columns]
    if missing:
        near = did_you_mean(missing[0], columns)
        absent = " or ".join(repr(name) for name in missing)
        raise SpecError(f"The table has no column {absent}; it has {columns}.{near}")
    if label in others:
        raise SpecError(f"The label {label!r} is to be predicted: it cannot be a key or a time.")


def _require_rows(number: int) -> None:
    if number < _FEWEST:
        raise SpecError(
            f"The table has {counted(number, 'row')}: at least {_FEWEST} are needed, one to train"
            " on, one to validate and one to hold out. Some hundred show whether a model is good."
        )


def _learned(columns: Sequence[Column]) -> list[str]:
    """The names of the columns that a model learns from."""
    return [column.name for column in columns if column.use in ("numeric", "categorical")]


def _require_something_to_learn(columns: Sequence[Column]) -> None:
    if _learned(columns):
        return
    uses = ", ".join(f"{column.name!r} ({column.use})" for column in columns)
    raise SpecError(
        f"No column is left to learn from: {uses}. Add a column that tells something of the label"
        " before it is known, or name another --key, --time or --label."
    )


def _is_text_or_written(given: Given) -> bool:
    """Whether the values of its source take the types that are asked for."""
    return bool(given.rows) or given.source.get("format") == "csv"


def _as_moments(typed: pl.DataFrame, time: str, given: Given) -> tuple[pl.DataFrame, Given]:
    """Days as the moments that they begin at, where a source can read them so."""
    if typed.schema[time] != pl.Date() or not _is_text_or_written(given):
        return typed, given
    moments = typed.with_columns(pl.col(time).cast(pl.Datetime("us", "UTC")))
    return moments, given if given.rows else replace(given, zoneless=(*given.zoneless, time))


def _name_all(frame: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """A frame whose index was written beside it has a column without a name: give it one."""
    if "" not in frame.columns:
        return frame, ()
    name = free_name("row", frame.columns)
    return frame.rename({"": name}), (f"the column without a name is called {name!r} here",)


def _unlabelled(label: pl.Series) -> tuple[str, ...]:
    match label.null_count(), len(label):
        case 0, _:
            return ()
        case 1, rows:
            return (f"1 of {counted(rows, 'row')} has no label: it is not trained on",)
        case unknown, rows:
            return (
                f"{unknown:,} of {counted(rows, 'row')} have no label: they are not trained on",
            )


def _copied(copies: int, rows: int, key: Sequence[str], *, whole: bool) -> tuple[str, ...]:
    """What is to be said of copies, and what was written for them."""
    if not copies:
        return ()
    mended = (
        "features.py learns from one of each, because a copy in the holdout would not be a test"
        if whole
        else "training refuses copies in two of its splits: take them out of the files"
    )
    told = f"{copies:,} of {counted(rows, 'row')} are copies of others under another"
    return (f"{told} {', '.join(key)}: {mended}",)


def _check_key(keys: pl.DataFrame) -> tuple[str, ...]:
    """What is to be said of the few rows whose keys are there more than once.

    Raises:
        SpecError: they are more than a few, or a key is empty.
    """
    names = keys.columns
    if unknown := keys.select(pl.any_horizontal(pl.all().is_null()).sum()).item():
        raise SpecError(
            f"The key {names} is empty in {unknown} of {counted(len(keys), 'row')}: it has to tell"
            " each row from the others. Fill it, or leave these rows out."
        )
    again = repeated_rows(keys, names)
    if again.is_empty():
        return ()
    twice = again.group_by(names, maintain_order=True).len("rows")
    first = twice.row(0, named=True)
    rows = first.pop("rows")
    example = ", ".join(f"{name} {_plain(value)}" for name, value in first.items())
    if len(again) <= RARE * len(keys):
        return (
            f"{counted(len(again), 'row', 'share')} their key with another, those of {example} for"
            " one: the contract keeps them back. Leave all but one of each out of the files;"
            " or, if a column tells them apart, name it by --key, too",
        )
    others = f"; {counted(len(twice) - 1, 'more key', 'are')} repeated" if len(twice) > 1 else ""
    raise SpecError(
        f"The key {names} does not tell the rows apart: {counted(rows, 'row', 'have')}"
        f" {example}{others}. In all {share_told(len(again), len(keys))}. Name all of its columns"
        " by --key, or leave all but one of these rows out."
    )


def _plain(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _written(given: Given) -> TextFormat:
    return TextFormat(None, given.dialect.decimal, given.dialect.dates)


def _columns(
    typed: pl.DataFrame, label: str, keys: Sequence[str], time: str | None
) -> tuple[Column, ...]:
    uses = {label: "label", **dict.fromkeys(keys, "key")}
    if time:
        uses[time] = "key and time" if time in keys else "time"
    return tuple(_column(typed[name], uses.get(name)) for name in typed.columns)


def _column(values: pl.Series, use: str | None) -> Column:
    found, remark = (use, "") if use else _use(values)
    return Column(values.name, DTYPES[values.dtype], found, remark)


def _use(values: pl.Series) -> tuple[str, str]:
    """What a column is used for that was not asked for by name, and what is to be said of it."""
    known, different = len(values) - values.null_count(), values.drop_nulls().n_unique()
    if not known:
        return "left out", "it is empty"
    if values.dtype.is_numeric() or values.dtype == pl.Boolean():
        return "numeric", ""
    if values.dtype != pl.String():
        return "left out", "make numbers of it in features.py"
    if different == 1 and (only := values.drop_nulls()[0]) in NO_VALUE:
        return "left out", f"it holds nothing but {only!r}"
    if different <= min(_WORDS, len(values) / 2):
        return "categorical", almost_numbers(values)
    return "left out", almost_numbers(values) or counted(different, "different value")
