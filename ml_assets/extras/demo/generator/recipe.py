"""The recipe of generated data: a seed, a size, and the faults with their weeks."""

import hashlib
from datetime import date
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ml_assets.extras.demo.outside_world import ARRIVAL, FLIGHT, OBSERVED, SCHEDULE
from ml_assets.spec.base import Fraction, Frozen

DRIFTING = ("distance", "dep_delay", "arr_delay", *OBSERVED)
"""Columns of numbers, which can be moved."""
CATEGORIES = ("carrier", "origin", "dest", "tailnum")
NULLABLE = tuple(dict.fromkeys(c for c in (*SCHEDULE, *ARRIVAL, *OBSERVED) if c not in FLIGHT))

FlightTable = Literal["flights", "arrivals"]
_COLUMNS = {"flights": SCHEDULE, "arrivals": ARRIVAL}


class _Knob(Frozen):
    """Holds for the weeks from ``since`` to ``until``, both named by their Monday, both included.

    None: from the first week, to the last one.
    """

    since: date | None = None
    until: date | None = None

    def holds(self, week: date) -> bool:
        """Return whether the knob is turned in a week."""
        return (self.since or week) <= week <= (self.until or week)

    @model_validator(mode="after")
    def _names_weeks(self) -> Self:
        for day in (self.since, self.until):
            if day and day.weekday():
                raise ValueError(f"{day} is not a Monday: a week is named by its first day")
        if self.since and self.until and self.since > self.until:
            raise ValueError(f"the span ends on {self.until}, before it begins on {self.since}")
        return self


class Drift(_Knob):
    """A column of numbers is moved by so many of its standard deviations in the real year."""

    kind: Literal["drift"] = "drift"
    column: str
    sigma: float

    @model_validator(mode="after")
    def _is_a_number(self) -> Self:
        return _one_of(self, self.column, DRIFTING)


class NullBurst(_Knob):
    """A share of a column's values is missing besides those that always are."""

    kind: Literal["nulls"] = "nulls"
    column: str
    share: Fraction

    @model_validator(mode="after")
    def _can_be_null(self) -> Self:
        return _one_of(self, self.column, NULLABLE)


class NewCategory(_Knob):
    """A share of the flights has a value that was never seen before."""

    kind: Literal["category"] = "category"
    column: str
    value: str
    share: Fraction

    @model_validator(mode="after")
    def _is_a_category(self) -> Self:
        return _one_of(self, self.column, CATEGORIES)


class Concept(_Knob):
    """A share of the flights ends as another one of the week did.

    What is seen before departure and how many are late stays as it is; that the one tells of the
    other does not.
    """

    kind: Literal["concept"] = "concept"
    share: Fraction


class LabelDelay(_Knob):
    """Outcomes become known so many hours later."""

    kind: Literal["label_delay"] = "label_delay"
    hours: Annotated[float, Field(ge=0)]


class Volume(_Knob):
    """A change of volume: so many times as many flights."""

    kind: Literal["volume"] = "volume"
    factor: Annotated[float, Field(gt=0)]


class Duplicates(_Knob):
    """A share of the rows of a table is there twice."""

    kind: Literal["duplicates"] = "duplicates"
    table: FlightTable
    share: Fraction


class SchemaChange(_Knob):
    """A column is added, removed or holds text; or is the last one of its table."""

    kind: Literal["schema"] = "schema"
    table: FlightTable
    column: str
    change: Literal["added", "removed", "text", "moved"]

    @model_validator(mode="after")
    def _fits_the_table(self) -> Self:
        there = self.column in _COLUMNS[self.table]
        if there and self.change == "added":
            raise ValueError(f"{self.table} has a column {self.column!r} already")
        return self if self.change == "added" else _one_of(self, self.column, _COLUMNS[self.table])


Knob = Annotated[
    Drift | NullBurst | NewCategory | Concept | LabelDelay | Volume | Duplicates | SchemaChange,
    Field(discriminator="kind"),
]


class Recipe(Frozen):
    """Equal recipes give equal weeks, on any machine and whichever weeks are made."""

    seed: Annotated[int, Field(ge=0)] = 0
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Flights of a week against those of the same week of the real year."""
    knobs: tuple[Knob, ...] = Field(default=(), strict=False)

    def stream(self, week: date, table: str, purpose: str) -> np.random.Generator:
        """The random numbers of one purpose: no other purpose, table or week takes part in them.

        Philox is counter-based: its key alone says what it gives. (NumPy promises the same numbers
        for the same version; its distributions have changed between versions, rarely.)
        """
        name = f"{self.seed}/{week}/{table}/{purpose}"
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
        return np.random.Generator(np.random.Philox(key=key))


def _one_of(knob: _Knob, column: str, known: tuple[str, ...]) -> Any:
    if column not in known:
        raise ValueError(f"{column!r} cannot be chosen here; one of {', '.join(known)} can")
    return knob
