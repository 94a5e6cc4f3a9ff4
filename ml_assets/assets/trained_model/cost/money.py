"""Money as exact fractions: sums never drift, and are rounded only for display."""

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

HOUR = 3_600_000_000
"""Microseconds."""
GB = 10**9


def of_time(node_time: int, node_hour: Decimal | None) -> Fraction | None:
    """Return what machines cost for a time.

    Args:
        node_time: microseconds times machines.
        node_hour: price of an hour of one; None: not known.
    """
    return None if node_hour is None else Fraction(node_time) * Fraction(node_hour) / HOUR


def of_bytes(count: int, gb: Decimal | None) -> Fraction | None:
    """Return what bytes cost, by the price of a GB; None: not known."""
    return None if gb is None else Fraction(count) * Fraction(gb) / GB


def added(amounts: Iterable[Fraction | None]) -> Fraction | None:
    """The sum of what is known; None where nothing is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Fraction()) if known else None


def rounded(amount: Fraction, places: int) -> Decimal:
    """Half to even, as accounts are kept."""
    return Decimal(round(amount * 10**places)).scaleb(-places)


def in_words(amount: Fraction | None) -> str:
    """A sum of money for a person: two decimals, four below one; a dash where it is not known."""
    if amount is None:
        return "–"
    return f"{rounded(amount, 2 if not amount or amount >= 1 else 4):,}"


def exact(amount: Fraction | None) -> str | None:
    """A sum of money for a program: a decimal number with six places, as text."""
    return None if amount is None else str(rounded(amount, 6))
