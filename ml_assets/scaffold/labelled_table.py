"""A table with a label, and what each of its columns is taken for."""

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from ml_assets.errors import SpecError
from ml_assets.spec.sources import DType
from ml_assets.spec.training import Task

_CLASSES = 50
"""A text label with more values than this is taken for free text, not for classes."""
_WORDS = 1000
"""A text feature with more values than this is taken for an identifier and left out."""


@dataclass(frozen=True)
class Column:
    """The label's table is described by these; ``use`` is what the column is taken for."""

    name: str
    dtype: DType
    use: str
    """``key``, ``label``, ``time``, ``numeric``, ``categorical`` or ``left out``."""
    remark: str = ""
    """Why it is left out; of a feature, what spoils it."""


@dataclass(frozen=True)
class Table:
    """A table in the types of a spec, and what each column is taken for."""

    frame: pl.DataFrame
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    task: Task
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    """What was done to the table, or will be, that its owner would not guess."""

    @property
    def decision_at(self) -> str:
        """When each prediction is made: the column of times, or one that the function adds."""
        times = [name for name in self.names("time") if self.frame.schema[name] != pl.Date()]
        return times[0] if times else free_name("decided_at", self.frame.columns)

    def names(self, use: str) -> list[str]:
        return [column.name for column in self.columns if column.use == use]


def sample_table() -> Table:
    """600 made-up orders, some of them sent back; the same at every call."""
    draw = random.Random(20)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    rows: list[dict[str, object]] = []
    for number in range(600):
        amount, region = round(draw.lognormvariate(3.5, 0.8), 2), draw.choice("NESW")
        chance = 0.1 + 0.5 * (amount > 60) + 0.2 * (region == "N")
        row = {"order": number, "ordered_at": begin + timedelta(hours=number)}
        row |= {"amount": amount, "items": draw.randint(1, 9), "region": region}
        rows.append({**row, "sent_back": draw.random() < chance})
    return describe(pl.DataFrame(rows), label="sent_back", key=["order"], time="ordered_at")


def free_name(wanted: str, taken: Collection[str]) -> str:
    """The wanted name, or it with the first number that makes it new."""
    numbered = (f"{wanted}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([wanted], numbered) if name not in taken)


def read_table(file: Path) -> pl.DataFrame:
    """A CSV, Parquet or JSON-lines file, its types inferred from all of its rows.

    Raises:
        SpecError: the file is missing, of another kind, or cannot be read.
    """
    readers = {
        ".csv": lambda: pl.read_csv(file, infer_schema_length=None, try_parse_dates=True),
        ".parquet": lambda: pl.read_parquet(file),
        ".jsonl": lambda: pl.read_ndjson(file, infer_schema_length=None),
    }
    read = readers.get(file.suffix)
    if read is None:
        raise SpecError(f"{file} ends in {file.suffix!r}; expected one of {sorted(readers)}.")
    try:
        if file.suffix == ".csv":
            _check_separator(file)
        frame = read()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SpecError(f"The table {file} cannot be read: {error}") from error
    if frame.is_empty():
        raise SpecError(f"The table {file} has no rows: there is nothing to learn from.")
    return frame


def _check_separator(file: Path) -> None:
    with file.open(errors="replace") as lines:
        header = lines.readline()
    for other in (";", "\t", "|"):
        if other in header and "," not in header:
            raise SpecError(
                f"{file} has one column, {header.strip()[:80]!r}: is it separated by {other!r}?"
                " Commas are expected."
            )


def describe(frame: pl.DataFrame, label: str, key: Sequence[str], time: str | None) -> Table:
    """Bring a table to the types of a spec and choose what each column is used for.

    Raises:
        SpecError: a column is missing, the key is not one, or there is nothing to learn from.
    """
    frame, notes = _name_all(frame)
    named = [label, *key, *([time] if time else [])]
    missing = [name for name in named if name not in frame.columns]
    if missing:
        raise SpecError(f"The table has no columns {missing}; it has {frame.columns}.")
    typed = frame.select(_typed(frame[name]) for name in frame.columns)
    keys = tuple(key) or (_find_key(typed, label),)
    if label in (*keys, time):
        raise SpecError(f"The label {label!r} is to be predicted: it is no key, and no time.")
    _check_key(typed.select(keys))
    if time:
        _check_time(typed[time])
    if label in (*keys, time):
        raise SpecError(f"The label {label!r} is to be predicted: it is no key, and no time.")
    if time:
        _check_time(typed[time])
    if typed.select(pl.struct(keys).is_duplicated().any()).item():
        raise SpecError(
            f"The key {list(keys)} is there more than once: name all of its columns by --key."
        )
    uses = {label: "label", **dict.fromkeys(keys, "key"), **({time: "time"} if time else {})}
    columns = tuple(_column(typed[name], uses.get(name)) for name in typed.columns)
    if not any(column.use in ("numeric", "categorical") for column in columns):
        raise SpecError(f"No column is left to learn from: {[(c.name, c.use) for c in columns]}.")
    task, classes = _task(typed[label])
    return Table(typed, columns, keys, task, classes, (*notes, *_unlabelled(typed[label])))


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
            return (f"1 of {rows:,} rows has no label: it is not trained on",)
        case unknown, rows:
            return (f"{unknown:,} of {rows:,} rows have no label: they are not trained on",)


_DTYPES: dict[pl.DataType, DType] = {
    pl.Int64(): "int64",
    pl.Float64(): "float64",
    pl.String(): "string",
    pl.Boolean(): "boolean",
    pl.Date(): "date",
    pl.Datetime("us", "UTC"): "datetime",
}


def _typed(values: pl.Series) -> pl.Series:
    dtype = values.dtype
    if dtype.is_integer():
        return values.cast(pl.Int64)
    if dtype.is_numeric():
        return values.cast(pl.Float64).fill_nan(None)
    if isinstance(dtype, pl.Datetime):
        zoned = values if dtype.time_zone else values.dt.replace_time_zone("UTC")
        return zoned.dt.convert_time_zone("UTC").cast(pl.Datetime("us", "UTC"))
    return values if dtype in _DTYPES else values.cast(pl.String, strict=False)


def _find_key(frame: pl.DataFrame, label: str) -> str:
    for name in frame.columns:
        values = frame[name]
        whole = values.dtype in (pl.Int64(), pl.String()) and not values.null_count()
        if name != label and whole and values.n_unique() == len(values):
            return name
    raise SpecError(
        f"No column tells the rows apart; the table has {frame.columns}. Name the columns that do:"
        " --key COLUMN[,COLUMN]"
    )


def _check_key(keys: pl.DataFrame) -> None:
    names = keys.columns
    if unknown := keys.select(pl.any_horizontal(pl.all().is_null()).sum()).item():
        raise SpecError(
            f"The key {names} is empty in {unknown} of {len(keys)} rows: it has to tell each row"
            " from the others. Fill it, or leave these rows out."
        )
    twice = keys.group_by(names, maintain_order=True).len("rows").filter(pl.col("rows") > 1)
    if twice.is_empty():
        return
    first = twice.row(0, named=True)
    rows = first.pop("rows")
    example = ", ".join(f"{name} {value!r}" for name, value in first.items())
    others = f", and so for {len(twice) - 1:,} more" if len(twice) > 1 else ""
    raise SpecError(
        f"The key {names} is there more than once: {rows:,} rows have {example}{others}. Name all"
        " of its columns by --key."
    )


def _check_time(values: pl.Series) -> None:
    if values.dtype not in (pl.Date(), pl.Datetime("us", "UTC")):
        raise SpecError(
            f"The times {values.name!r} are read as {_DTYPES[values.dtype]}, {values[0]!r} for one;"
            " dates such as 2024-01-31 or times such as 2024-01-31T12:00:00Z are expected."
        )
    if unknown := values.null_count():
        raise SpecError(
            f"The time {values.name!r} is empty in {unknown} of {len(values)} rows: when is the"
            " prediction made there? Fill it, or leave these rows out."
        )


def _column(values: pl.Series, use: str | None) -> Column:
    found, remark = (use, "") if use else _use(values)
    return Column(values.name, _DTYPES[values.dtype], found, remark)


def _use(values: pl.Series) -> tuple[str, str]:
    """What a column is used for that was not asked for by name, and what is to be said of it."""
    known, different = len(values) - values.null_count(), values.drop_nulls().n_unique()
    if not known:
        return "left out", "it is empty"
    if values.dtype.is_numeric() or values.dtype == pl.Boolean():
        return "numeric", ""
    if values.dtype != pl.String():
        return "left out", "make numbers of it in features.py"
    if different <= min(_WORDS, len(values) / 2):
        return "categorical", _almost_numbers(values)
    return "left out", _almost_numbers(values) or f"{different:,} different values"


def _almost_numbers(values: pl.Series) -> str:
    """What keeps a column of text from being numbers, where most of its values are."""
    text = values.drop_nulls()
    numbers = text.cast(pl.Float64, strict=False).is_not_null()
    count = int(numbers.sum())
    if not len(text) / 2 < count < len(text):
        return ""
    first = text.filter(~numbers)[0]
    return f"{count:,} of {len(text):,} are numbers, the first other is {first!r}"


def _task(label: pl.Series) -> tuple[Task, tuple[str, ...]]:
    values = label.drop_nulls().unique()
    if len(values) < 2:
        raise SpecError(
            f"The label {label.name!r} has {'one value' if len(values) else 'no value'} in all"
            " rows: nothing to tell apart."
        )
    if label.dtype == pl.Boolean() or (values.dtype.is_numeric() and set(values) == {0, 1}):
        return "binary", ()
    if label.dtype == pl.String():
        if len(values) > _CLASSES:
            almost = _almost_numbers(label)
            raise SpecError(
                f"The label {label.name!r} is text with {len(values)} values; up to {_CLASSES}"
                " classes are expected. Name another column by --label"
                + (f", or mend this one: {almost}." if almost else ".")
            )
        return "multiclass", tuple(sorted(str(value) for value in values))
    return "regression", ()
