"""One parameter of a search: a field of the spec, and the values that it may have."""

from collections.abc import Mapping
from math import floor, log10
from typing import Annotated, Literal

from pydantic import Field

from ml_assets.spec.base import Frozen

Value = bool | int | float | str | None
Values = Mapping[str, Value]
"""Path of a field of the spec, such as ``training.learning_rate`` -> its value."""
Kind = Literal["float", "log_float", "int", "log_int", "choice"]
Role = Literal["scientific", "nuisance", "fixed"]
"""What a study is about; what is tuned for each value of that; what it holds still."""

DIGITS = 4
"""Significant digits of a value that is drawn from a range of floats: a person reads it."""


class Parameter(Frozen):
    """One field of the spec, and its possible values."""

    role: Role = "nuisance"
    """``scientific``: what the study is about; ``nuisance``: tuned for each value of that;
    ``fixed``: held still."""
    kind: Kind | None = None
    """Which values, and how they are drawn. None: it is fixed."""
    low: float | None = None
    """The lower end of a range, which belongs to it."""
    high: float | None = None
    """The upper end of a range, which belongs to it."""
    points: Annotated[int, Field(ge=2)] | None = None
    """How many values of a range of floats a grid takes, its ends included."""
    values: tuple[Value, ...] = Field(default=(), strict=False)
    """The values of a choice."""
    value: Value = None
    """The value of a fixed parameter."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The ends of a range.

        Raises:
            ValueError: it is none.
        """
        if self.low is None or self.high is None:
            raise ValueError(f"a parameter of kind {self.kind} has no range")
        return self.low, self.high

    @property
    def whole(self) -> bool:
        """Return whether its values are whole numbers of a range."""
        return self.kind in ("int", "log_int")

    @property
    def log(self) -> bool:
        """Return whether it is searched by orders of magnitude."""
        return self.kind in ("log_float", "log_int")

    def grid(self) -> tuple[Value, ...]:
        """Its values on a grid."""
        if self.kind == "choice":
            return self.values
        if self.kind is None:
            return (self.value,)
        low, high = self.bounds
        if self.whole and self.points is None:
            return tuple(range(int(low), int(high) + 1))
        count = (self.points or 2) - 1
        places = [number / count for number in range(count + 1)]
        raw = [
            low * (high / low) ** place if self.log else low + (high - low) * place
            for place in places
        ]
        return tuple(dict.fromkeys(self.plain(one) for one in raw))

    def plain(self, drawn: float) -> float | int:
        """A number of its range as it is tried: whole, or with few digits, and within the ends."""
        low, high = self.bounds
        found = round(drawn) if self.whole else _rounded(drawn)
        return int(min(max(found, low), high)) if self.whole else min(max(found, low), high)

    def tried(self, drawn: Value) -> Value:
        """Return what was drawn, as it is tried; see ``plain``."""
        if self.kind in (None, "choice") or not isinstance(drawn, int | float):
            return drawn
        return self.plain(drawn)

    def holds(self, value: Value) -> bool:
        """Return whether a value is one that may be tried."""
        if self.kind is None:
            return same(value, self.value)
        if self.kind == "choice":
            return any(same(value, one) for one in self.values)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        low, high = self.bounds
        return low <= value <= high and (isinstance(value, int) if self.whole else True)

    def problems(self) -> list[tuple[str, str]]:
        """Return what does not go together: its key, and what to write instead."""
        if self.role == "fixed" or self.kind is None:
            return self._fixed_problems()
        if self.value is not None:
            return [("value", "'value' belongs to role: fixed: remove it, or 'kind' and the range")]
        if self.kind == "choice":
            return self._choice_problems()
        return self._range_problems()

    def _fixed_problems(self) -> list[tuple[str, str]]:
        if self.role != "fixed":
            return [("kind", "state the values: kind: float, log_float, int, log_int or choice")]
        if self.kind is not None or self.values or self.low is not None or self.high is not None:
            return [("role", "a fixed parameter has one 'value' and no kind, range or values")]
        if "value" not in self.model_fields_set:
            return [("role", "a fixed parameter needs its 'value'")]
        return []

    def _choice_problems(self) -> list[tuple[str, str]]:
        if self.low is not None or self.high is not None or self.points is not None:
            return [("kind", "a choice has 'values'; low, high and points belong to a range")]
        if len(self.values) < 2:
            return [("values", "a choice needs two values or more; one alone is role: fixed")]
        twice = [v for n, v in enumerate(self.values) if any(same(v, w) for w in self.values[:n])]
        return [("values", f"{twice[0]!r} is there twice: remove one")] if twice else []

    def _range_problems(self) -> list[tuple[str, str]]:
        if self.values:
            return [("values", "'values' belongs to kind: choice; a range has low and high")]
        if self.low is None or self.high is None:
            return [("kind", f"kind {self.kind} needs both 'low' and 'high'")]
        found: list[tuple[str, str]] = []
        if self.low >= self.high:
            swap = f"low: {self.high:g}, high: {self.low:g}"
            how = f"write {swap}" if self.low > self.high else "one value alone is role: fixed"
            said = f"the range {self.low:g} to {self.high:g} is empty or reversed: {how}"
            found.append(("low", said))
        if self.log and self.low <= 0:
            said = (
                "a range by orders of magnitude must begin above 0: write a greater low, or kind: "
            )
            found.append(("low", f"{said}{'int' if self.whole else 'float'}"))
        if self.whole and not (self.low.is_integer() and self.high.is_integer()):
            found.append(("kind", f"kind {self.kind} needs whole numbers as its ends"))
        return found


def same(one: Value, other: Value) -> bool:
    """Equal, and not only because true is 1 to Python."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _rounded(value: float) -> float:
    if value == 0:
        return 0.0
    return round(value, DIGITS - 1 - floor(log10(abs(value))))
