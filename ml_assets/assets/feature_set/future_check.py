"""Checks whether features saw the future: rows computed without it have to be the same."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import polars as pl

from ml_assets.errors import counted, quoted
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.leaks import LeakFinding

PART = 2_048
"""Rows of files that are compared at a time."""
TOLERANCE = 1e-9
"""Relative: sums in another order differ by less."""


@dataclass(frozen=True)
class Hidden:
    """Holds what was taken from the tables before the features were made again."""

    moment: datetime | None
    """Rows known then or later are gone; None: no row is."""
    events: int
    """How many they are."""
    columns: tuple[str, ...]
    """Columns that are filled in after the event: each value of them is gone."""

    def __str__(self) -> str:
        events = f"{counted(self.events, 'event')} known at or after {self.moment}"
        blank = f"the columns {', '.join(self.columns)}"
        return " and ".join(
            [*([events] if self.moment else []), *([blank] if self.columns else [])]
        )


def moment_to_hide_from(decisions: pl.Series, known: Sequence[pl.Series]) -> datetime | None:
    """The decision whose future is hidden; None where no event comes at or after any decision.

    Where decisions and events share a moment, the one that most of them share: an event known at
    the very moment is too late, and only such a decision shows whether it is left out.

    Args:
        decisions: when the rows are decided.
        known: of each table, when its rows became known.
    """
    times = pl.concat([column.drop_nulls().cast(decisions.dtype) for column in known])
    latest = times.max()
    open_to = decisions.filter(decisions <= latest) if latest is not None else decisions.clear()
    if open_to.is_empty():
        return None
    middle = open_to.sort()[len(open_to) // 2]
    counts = open_to.alias("at").value_counts(name="rows")
    both = counts.join(times.alias("at").value_counts(name="events"), on="at")
    if both.is_empty():
        return middle
    apart = (pl.col("at") - middle).abs()
    return both.sort(pl.col("rows") * pl.col("events"), -apart, descending=True)["at"][0]


def side_by_side(
    rows: pl.LazyFrame, again: pl.LazyFrame, key: Sequence[str]
) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Rows of two files in the order of their keys, a part of them at a time; no key in two parts.

    Yields:
        Some rows of the one, and those of the other that lie in the same span of keys.
    """
    others = again.collect_batches(chunk_size=PART, maintain_order=True, engine="streaming")
    waiting = again.collect_schema().to_frame()
    for part in rows.collect_batches(chunk_size=PART, maintain_order=True, engine="streaming"):
        beside = _up_to(part, key)
        found: list[pl.DataFrame] = []
        while True:
            found.append(waiting.filter(beside))
            waiting = waiting.filter(~beside)
            if len(waiting) or (more := next(others, None)) is None:
                break
            waiting = more
        yield part, pl.concat(found)
    yield rows.collect_schema().to_frame(), pl.concat([waiting, *others])


def _up_to(part: pl.DataFrame, key: Sequence[str]) -> pl.Expr:
    """Whether a key is not after the last of a part."""
    last = part.select(key).row(-1, named=True)
    before = pl.lit(True)
    for name in reversed(key):
        before = (pl.col(name) < last[name]) | ((pl.col(name) == last[name]) & before)
    return before


@dataclass(frozen=True)
class _Apart:
    """In what the rows of a part differ from those made again."""

    compared: int
    """How many of them were decided by then."""
    changed: pl.DataFrame
    """Key, and for each column whether it differs; of the rows where one does."""
    gone: pl.DataFrame
    """Keys."""
    new: pl.DataFrame

    @classmethod
    def of(
        cls, rows: pl.DataFrame, again: pl.DataFrame, spec: FeaturesSpec, hidden: Hidden
    ) -> Self:
        """Compare one part."""
        key = list(spec.key)
        then = rows.filter(pl.col(spec.decision_at) <= hidden.moment) if hidden.moment else rows
        gone = then.join(again, on=key, how="anti", maintain_order="left")
        if hidden.moment:  # a row may be the very event that is known when it is decided
            gone = gone.filter(pl.col(spec.decision_at) < hidden.moment)
        new = again.join(rows, on=key, how="anti", maintain_order="left")
        both = then.join(again, on=key, how="inner", suffix="__again", maintain_order="left")
        differs = (
            differs_again(name, number=name in spec.numeric).alias(name) for name in _compared(spec)
        )
        changed = both.select(*key, *differs).filter(pl.any_horizontal(_compared(spec)))
        return cls(len(then), changed, gone.select(key), new.select(key))


def compare(
    parts: Iterable[tuple[pl.DataFrame, pl.DataFrame]], spec: FeaturesSpec, hidden: Hidden
) -> LeakFinding:
    """Hold the rows that were decided by then to what they are without the future.

    Args:
        parts: feature rows as they were made, and the same, made of tables without what is hidden;
            no key is in two parts.
    """
    found = [_Apart.of(rows, again, spec, hidden) for rows, again in parts]
    changed, gone, new = (
        pl.concat([getattr(one, name) for one in found]) for name in ("changed", "gone", "new")
    )
    counts = {name: int(changed[name].sum()) for name in _compared(spec)}
    columns = sorted((n for n in counts if counts[n]), key=lambda name: -counts[name])
    value = len(changed) + len(gone) + len(new)
    if not value:
        rows = counted(sum(one.compared for one in found), "row")
        return _finding(True, 0, f"{rows} decided by then are the same without {hidden}", ())
    reasons = [
        *([_told_columns(columns, counts, changed.select(spec.key))] if columns else []),
        *([_told_rows("gone", gone)] if len(gone) else []),
        *([_told_rows("new", new)] if len(new) else []),
    ]
    return _finding(
        False,
        value,
        f"without {hidden}, {'; '.join(reasons)}. A feature may use only what was known before"
        f" {spec.decision_at!r}, and no row may depend on its outcome. The joins of"
        " ml_assets.assets.feature_set.history_features take only what was known",
        (*columns, *(str(row) for row in gone.head(5).rows())),
    )


def nothing_to_hide(reason: str) -> LeakFinding:
    """The finding where the tables hold no future that a row could have seen."""
    return _finding(True, None, reason, ())


def cannot_be_made(error: Exception, hidden: Hidden) -> LeakFinding:
    """The finding where the function fails without the future: on the day it would have as well."""
    said = (
        f"the feature function fails without {hidden}, so it would have failed on the day of the"
        f" decision: {type(error).__name__}: {quoted(error)}"
    )
    return _finding(False, None, said, ())


def _finding(passed: bool, value: int | None, said: str, named: tuple[str, ...]) -> LeakFinding:
    number = None if value is None else float(value)
    return LeakFinding(
        name="no_future_events", passed=passed, value=number, bound=0.0, reason=said, named=named
    )


def _compared(spec: FeaturesSpec) -> list[str]:
    """The label is not among them: it is what the future brings."""
    columns = [spec.decision_at, *spec.numeric, *spec.categorical]
    return [column for column in columns if column not in spec.key]


def differs_again(name: str, *, number: bool) -> pl.Expr:
    """Whether a feature differs from what stands beside it as ``NAME__again``."""
    then, now = pl.col(name), pl.col(f"{name}__again")
    if not number:
        return then.ne_missing(now)
    size = pl.max_horizontal(then.abs(), now.abs(), pl.lit(1.0))
    return then.ne_missing(now) & ~((then - now).abs() <= TOLERANCE * size).fill_null(False)


def _told_columns(columns: list[str], counts: dict[str, int], keys: pl.DataFrame) -> str:
    told = ", ".join(f"{name} ({counted(counts[name], 'row')})" for name in columns[:5])
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    return f"features change: {told}{more}; {_told_key(keys)} is one of the rows"


def _told_rows(what: str, keys: pl.DataFrame) -> str:
    verb = "is" if len(keys) == 1 else "are"
    return f"{counted(len(keys), 'row')} {verb} {what}, {_told_key(keys)} for one"


def _told_key(keys: pl.DataFrame) -> str:
    values = (f"{name} {value}" for name, value in keys.row(0, named=True).items())
    return quoted(f"({', '.join(values)})")
