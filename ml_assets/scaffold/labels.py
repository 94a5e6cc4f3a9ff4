"""What a label is, by its values: true or false, one of several classes, or a number."""

from dataclasses import dataclass

import polars as pl

from ml_assets.errors import SpecError, counted
from ml_assets.scaffold.columns import almost_numbers
from ml_assets.spec.training import Task

_CLASSES = 50
"""A text label with more values than this is taken for free text, not for classes."""
_FEW = 20
"""A quantity with more values than this has no classes for values."""
_TRUE = ("yes", "y", "true", "t", "1", "on", "positive", "pos")
_FALSE = ("no", "n", "false", "f", "0", "off", "negative", "neg")


@dataclass(frozen=True)
class Label:
    """What is predicted."""

    task: Task
    classes: tuple[str, ...] = ()
    """Of a multiclass label."""
    positive: str | None = None
    """The text that means true; None: the source holds no text, or its texts are classes."""
    notes: tuple[str, ...] = ()
    """What its owner would not guess."""


def label_of(values: pl.Series, asked: Task | None) -> Label:
    """Tell what a label is.

    Args:
        values: of the label's column.
        asked: what its owner says that it is; None: its values show it.

    Raises:
        SpecError: they are not the values of a label, or not of the task that was asked for.
    """
    known = values.drop_nulls().unique().sort()
    if values.dtype.is_temporal():
        raise SpecError(
            f"The label {values.name!r} is a date or a time: a number, classes, true or false are"
            " expected. Make a number of it, such as the days from another date."
        )
    if len(known) < 2:
        raise SpecError(
            f"The label {values.name!r} has {'one value' if len(known) else 'no value'} in all"
            " rows: nothing to tell apart."
        )
    if values.dtype == pl.String() and len(known) == 2 and asked in (None, "binary"):
        return _of_two_words(values, *known)
    found = _found(values, known)
    if asked and asked != found.task and not (asked == "regression" and values.dtype.is_numeric()):
        raise SpecError(
            f"--task {asked}: the values of {values.name} are those of a {found.task} label,"
            f" {_plain(known[0])} for one. Leave --task out, or write them otherwise"
            f"{': 0 and 1, or two words' if asked == 'binary' else ''}."
        )
    notes = () if asked else _like_classes(values, found.task)
    return Label(asked or found.task, found.classes, notes=notes)


def _of_two_words(values: pl.Series, first: str, second: str) -> Label:
    """A word that says yes or no decides which is true; else it is the rarer one."""
    true = _said(_TRUE, first, second)
    if not true and (false := _said(_FALSE, first, second)):
        true = second if false == first else first
    why = ""
    if not true:
        true = first if (values == first).sum() < (values == second).sum() else second
        why = ", the rarer one" if (values == true).sum() * 2 < values.count() else ""
    other = second if true == first else first
    said = (
        f"{values.name} is one of two texts: features.py makes true of {true!r}{why}, and false of"
        f" {other!r}. Change it there if you mean the other; if both are classes, make the folder"
        " again with --task multiclass"
    )
    return Label("binary", positive=true, notes=(said,))


def _said(words: tuple[str, ...], first: str, second: str) -> str:
    """The one of two texts that is among some words; empty: none is, or both are."""
    found = [text for text in (first, second) if text.strip().lower() in words]
    return found[0] if len(found) == 1 else ""


def _found(label: pl.Series, values: pl.Series) -> Label:
    if label.dtype == pl.Boolean() or (values.dtype.is_numeric() and set(values) == {0, 1}):
        return Label("binary")
    if label.dtype == pl.String():
        if len(values) > _CLASSES:
            almost = almost_numbers(label)
            raise SpecError(
                f"The label {label.name!r} is text with {counted(len(values), 'value')}; up to"
                f" {_CLASSES} classes are expected. Name another column by --label"
                + (f", or repair this one: {almost}." if almost else ".")
            )
        return Label("multiclass", tuple(str(value) for value in values))
    return Label("regression")


def _plain(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _like_classes(label: pl.Series, task: Task) -> tuple[str, ...]:
    """What is said of a quantity that has few values: they may be the numbers of classes."""
    values = label.drop_nulls().unique()
    if task != "regression" or len(values) > _FEW or (values % 1 != 0).any():
        return ()
    return (
        f"{label.name} has {counted(len(values), 'value')}, all of them whole numbers, and is "
        "treated as a quantity. If they are classes, make the folder again with --task "
        "multiclass",
    )


def with_classes(frame: pl.DataFrame, label: str, *, written: bool) -> pl.DataFrame:
    """Whole numbers of the label as text: the names of classes.

    Args:
        written: the source can hold them as text: its table is written here, or is a CSV file.

    Raises:
        SpecError: it cannot.
    """
    values = frame[label]
    if not values.dtype.is_numeric():
        return frame
    if (values.drop_nulls() % 1 != 0).any():
        raise SpecError(f"--task multiclass: {label} has fractions, so its values are not classes.")
    if not written:
        raise SpecError(
            f"--task multiclass: {label} holds numbers, and the names of classes are text. Write it"
            " as text there, or give a CSV file."
        )
    return frame.with_columns(values.cast(pl.Int64).cast(pl.String))
