"""A contract compiled to one lazy, streaming polars pass, with the answers of Great Expectations.

Its rules for nulls hold: a range, a set and uniqueness judge the values that are there, ``mostly``
is a share of those, and NaN is a null. Differential tests hold this file to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import polars as pl

from ml_assets.errors import ContractError
from ml_assets.validation.contract import Contract, Expectation, Severity, unknown_columns
from ml_assets.validation.quarantine import Split, keep_all, split, withhold


@dataclass(frozen=True)
class ExpectationResult:
    """How a table did on one expectation."""

    check_name: str
    type: str
    severity: Severity
    passed: bool
    rows_failed: int
    """Rows that break it; 0 for a statement about the whole table."""
    observed: int | float | str
    """Row count, column names that differ, or the share of judged rows that hold."""
    reason: str
    """A sentence: what was seen, against what was expected."""


@dataclass(frozen=True)
class Audit:
    """What may be published of a table, what is kept back, and why."""

    results: tuple[ExpectationResult, ...]
    clean: pl.DataFrame
    """The rows to publish; none if a critical expectation failed."""
    quarantined: pl.DataFrame
    """All other rows, with ``_reason``: rows in = clean + quarantined."""
    warned: int
    """Rows that break a warning and no critical expectation: they are published with the rest."""

    @property
    def passed(self) -> bool:
        """Whether ``clean`` may be published."""
        return all(result.passed for result in self.results if result.severity == "critical")

    def with_result(self, result: ExpectationResult) -> "Audit":
        """With a verdict on the whole table beside the contract's; a critical failure keeps it."""
        if result.passed or result.severity != "critical":
            return replace(self, results=(*self.results, result))
        parted = withhold(self.clean, {}, [result.check_name])
        rows = pl.concat([self.quarantined, parted.quarantined], how="diagonal")
        return Audit((*self.results, result), parted.clean, rows, warned=0)


@dataclass(frozen=True)
class _RowRule:
    """A row-level expectation as expressions over the table."""

    expectation: Expectation
    breaks: pl.Expr
    """True where a row breaks it, never null."""
    judged: pl.Expr
    """True where it judges the row at all."""
    words: str


def audit(frame: pl.LazyFrame | pl.DataFrame, contract: Contract) -> Audit:
    """Judge the incoming rows and decide what of them is published.

    A row that breaks a critical row-level expectation goes to quarantine as long as the
    expectation still passes by its ``mostly``; if any critical expectation fails, all rows do. Rows
    that break a warning are counted and published.

    Raises:
        ContractError: the contract does not fit the table: a column that is not there, or a bound
            of another type than its column.
    """
    lazy = frame.lazy()
    schema = lazy.collect_schema()
    _check_columns(contract, schema)
    rules = [_row_rule(e, schema) for e in contract.expectations if _is_row_level(e)]
    counts = _count(lazy, rules)
    rows = counts["rows"]
    by_name = {r.expectation.check_name: _row_result(r, counts) for r in rules}
    results = tuple(
        by_name.get(e.check_name) or _table_result(e, schema, rows) for e in contract.expectations
    )
    whole = frame if isinstance(frame, pl.DataFrame) else lazy.collect(engine="streaming")
    parted = _part(whole, rules, results)
    return Audit(results, parted.clean, parted.quarantined, counts["warned"])


def _part(
    whole: pl.DataFrame, rules: Sequence[_RowRule], results: Sequence[ExpectationResult]
) -> Split:
    failed = [r.check_name for r in results if r.severity == "critical" and not r.passed]
    broken = {r.check_name for r in results if r.severity == "critical" and r.rows_failed}
    critical = {
        rule.expectation.check_name: rule.breaks
        for rule in rules
        if rule.expectation.check_name in broken
    }
    if failed:
        return withhold(whole, critical, failed)
    return split(whole, critical) if critical else keep_all(whole)


def _check_columns(contract: Contract, schema: pl.Schema) -> None:
    problems = unknown_columns(contract, schema.names())
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ContractError(
            f"The contract {contract.name!r} does not fit its table, which has the columns"
            f" {schema.names()}:{listed}"
        )


def _is_row_level(expectation: Expectation) -> bool:
    return not expectation.type.startswith("expect_table_")


def _count(lazy: pl.LazyFrame, rules: Sequence[_RowRule]) -> dict[str, int]:
    """Everything that is counted, in one pass."""
    broken = [r.breaks.sum().alias(f"broken:{r.expectation.check_name}") for r in rules]
    judged = [r.judged.sum().alias(f"judged:{r.expectation.check_name}") for r in rules]
    warned = _any(rules, "warning") & ~_any(rules, "critical")
    counted = lazy.select(
        pl.len().alias("rows"), warned.sum().alias("warned"), *broken, *judged
    ).collect(engine="streaming")
    return {name: int(value or 0) for name, value in counted.row(0, named=True).items()}


def _any(rules: Sequence[_RowRule], severity: Severity) -> pl.Expr:
    """True where a row breaks any expectation of this severity."""
    breaks = [rule.breaks for rule in rules if rule.expectation.severity == severity]
    return pl.any_horizontal(pl.lit(False), *breaks)


def _row_rule(expectation: Expectation, schema: pl.Schema) -> _RowRule:
    kwargs = expectation.kwargs
    if expectation.type == "expect_compound_columns_to_be_unique":
        return _unique_key(expectation, schema)
    column = kwargs["column"]
    there = _is_there(column, schema)
    match expectation.type:
        case "expect_column_values_to_not_be_null":
            return _RowRule(expectation, ~there, there | ~there, "not be null")
        case "expect_column_values_to_be_unique":
            again = pl.len().over(column) > 1
            return _RowRule(expectation, there & again, there, "be unique")
        case "expect_column_values_to_be_between":
            inside, words = _inside(expectation, schema[column])
            return _RowRule(expectation, there & ~inside, there, words)
        case "expect_column_values_to_be_in_set":
            values = [_literal(v, schema[column], expectation) for v in kwargs["value_set"]]
            member = pl.col(column).is_in(pl.Series(values, dtype=schema[column]).implode())
            shown = ", ".join(str(value) for value in kwargs["value_set"][:8])
            return _RowRule(
                expectation, there & ~member.fill_null(False), there, f"be one of {shown}"
            )
        case other:
            raise ValueError(f"{other} is in the contract's list but is not compiled")


def _is_there(column: str, schema: pl.Schema) -> pl.Expr:
    there = pl.col(column).is_not_null()
    if schema[column].is_float():
        there &= pl.col(column).is_not_nan().fill_null(False)
    return there


def _unique_key(expectation: Expectation, schema: pl.Schema) -> _RowRule:
    columns: list[str] = expectation.kwargs["column_list"]
    there = [_is_there(column, schema) for column in columns]
    any_there = pl.any_horizontal(there)
    judged = {
        "all_values_are_missing": any_there,
        "any_value_is_missing": pl.all_horizontal(there),
        "never": any_there | ~any_there,
    }[expectation.kwargs.get("ignore_row_if", "all_values_are_missing")]
    keys = [pl.col(c).fill_nan(None) if schema[c].is_float() else pl.col(c) for c in columns]
    again = pl.len().over(keys) > 1
    return _RowRule(expectation, judged & again, judged, f"be unique by ({', '.join(columns)})")


def _inside(expectation: Expectation, dtype: pl.DataType) -> tuple[pl.Expr, str]:
    kwargs = expectation.kwargs
    column = pl.col(kwargs["column"])
    inside = pl.lit(True)
    words: list[str] = []
    if "min_value" in kwargs:
        bound = _bound(kwargs["min_value"], dtype, expectation)
        strict = kwargs.get("strict_min", False)
        inside &= column > bound if strict else column >= bound
        words.append(f"{'above' if strict else 'at least'} {kwargs['min_value']}")
    if "max_value" in kwargs:
        bound = _bound(kwargs["max_value"], dtype, expectation)
        strict = kwargs.get("strict_max", False)
        inside &= column < bound if strict else column <= bound
        words.append(f"{'below' if strict else 'at most'} {kwargs['max_value']}")
    return inside.fill_null(False), f"be {' and '.join(words)}"


def _bound(value: Any, dtype: pl.DataType, expectation: Expectation) -> pl.Expr:
    if dtype.is_numeric() and isinstance(value, int | float):
        return pl.lit(value)
    if dtype.is_temporal():
        return pl.lit(_literal(value, dtype, expectation), dtype=dtype)
    raise _misfit(value, dtype, expectation)


def _literal(value: Any, dtype: pl.DataType, expectation: Expectation) -> Any:
    """A JSON value as a value of the column."""
    if dtype == pl.Boolean and isinstance(value, bool):
        return value
    if dtype.is_numeric() and isinstance(value, int | float) and not isinstance(value, bool):
        if dtype.is_integer() and value != int(value):
            raise _misfit(value, dtype, expectation)
        return int(value) if dtype.is_integer() else float(value)
    if dtype == pl.String and isinstance(value, str):
        return value
    if isinstance(value, str) and dtype.is_temporal():
        try:
            if dtype == pl.Date:
                return date.fromisoformat(value)
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        except ValueError as error:
            raise _misfit(value, dtype, expectation) from error
    raise _misfit(value, dtype, expectation)


def _misfit(value: object, dtype: pl.DataType, expectation: Expectation) -> ContractError:
    return ContractError(
        f"{expectation.check_name}: {value!r} is not a value of {expectation.kwargs['column']!r},"
        f" which is {dtype}. Correct the contract, or the column's type in defs.yaml."
    )


def _row_result(rule: _RowRule, counts: dict[str, int]) -> ExpectationResult:
    expectation = rule.expectation
    broken = counts[f"broken:{expectation.check_name}"]
    judged = counts[f"judged:{expectation.check_name}"]
    share = (judged - broken) / judged if judged else 1.0
    mostly = expectation.kwargs.get("mostly", 1.0)
    what = expectation.kwargs.get("column") or "rows"
    return ExpectationResult(
        check_name=expectation.check_name,
        type=expectation.type,
        severity=expectation.severity,
        passed=share >= mostly,
        rows_failed=broken,
        observed=share,
        reason=f"{what} must {rule.words}; {judged - broken:,} of {judged:,} do: {share:.6g},"
        f" at least {mostly:.10g} is expected",
    )


def _table_result(expectation: Expectation, schema: pl.Schema, rows: int) -> ExpectationResult:
    if expectation.type == "expect_table_row_count_to_be_between":
        passed, observed, reason = _judge_row_count(expectation, rows)
    else:
        passed, observed, reason = _judge_columns(expectation, schema)
    return ExpectationResult(
        check_name=expectation.check_name,
        type=expectation.type,
        severity=expectation.severity,
        passed=passed,
        rows_failed=0,
        observed=observed,
        reason=reason,
    )


def _judge_row_count(expectation: Expectation, rows: int) -> tuple[bool, int, str]:
    kwargs = expectation.kwargs
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    enough = low is None or (rows > low if kwargs.get("strict_min") else rows >= low)
    not_too_many = high is None or (rows < high if kwargs.get("strict_max") else rows <= high)
    span = f"{'0' if low is None else low} to {'any number' if high is None else high}"
    return enough and not_too_many, rows, f"{rows:,} rows; {span} are expected"


def _judge_columns(expectation: Expectation, schema: pl.Schema) -> tuple[bool, str, str]:
    expected, found = set(expectation.kwargs["column_set"]), set(schema.names())
    missing, extra = sorted(expected - found), sorted(found - expected)
    exact = expectation.kwargs.get("exact_match", True)
    passed = not missing and not (extra and exact)
    differs = "; ".join(
        f"{word}: {', '.join(names)}"
        for word, names in (("missing", missing), ("extra", extra))
        if names
    )
    rule = "exactly these" if exact else "at least these"
    return (
        passed,
        differs or "as expected",
        (
            f"{len(found)} columns, {differs or 'as expected'}; {rule} are expected:"
            f" {', '.join(sorted(expected))}"
        ),
    )
