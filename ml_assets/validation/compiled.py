"""The audit of a table by its contract: one lazy, streaming polars pass.

The rules of Great Expectations for nulls hold: a range, a set and uniqueness judge the values that
are there, ``mostly`` is a share of those, and NaN is a null. Differential tests hold the compiled
types to them; what is not compiled is judged by its own engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from ml_assets.errors import ContractError
from ml_assets.validation.contract import Contract, Expectation, unknown_columns
from ml_assets.validation.expectations import judge
from ml_assets.validation.kinds import COMPILED
from ml_assets.validation.quarantine import Split, check_balance, keep_all, split, withhold
from ml_assets.validation.results import ExpectationResult, share_result, whole_result
from ml_assets.validation.row_rules import RowRule, row_rule
from ml_assets.validation.whole_rules import WholeRule, whole_rule

_WARNED = "warned"
_SEVERITIES = ("warning", "critical")


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


def audit(frame: pl.LazyFrame | pl.DataFrame, contract: Contract) -> Audit:
    """Judge the incoming rows and decide what of them is published.

    A row that breaks a critical row-level expectation goes to quarantine as long as the
    expectation still passes by its ``mostly``; if any critical expectation fails, all rows do. Rows
    that break a warning are counted and published. Clean and quarantined rows are those that came.

    Raises:
        ContractError: the contract does not fit the table: a column that is not there, or a bound
            of another type than its column; or a part of it could not be judged.
    """
    lazy = frame.lazy()
    schema = lazy.collect_schema()
    _check_columns(contract, schema)
    rules, others = _compile(contract, schema)
    row_rules = [rule for rule in rules if isinstance(rule, RowRule)]
    whole_rules = [rule for rule in rules if isinstance(rule, WholeRule)]
    seen = _observe(lazy, row_rules, whole_rules)
    table = frame if isinstance(frame, pl.DataFrame) else lazy.collect(engine="streaming")
    judged = judge(table, others) if others else ()
    found = [
        *(_row_result(rule, seen) for rule in row_rules),
        *(_whole_result(rule, seen) for rule in whole_rules),
        *(one.result for one in judged),
    ]
    by_name = {result.check_name: result for result in found}
    results = tuple(by_name[e.check_name] for e in contract.expectations)
    broken = {rule.expectation.check_name: rule.breaks for rule in row_rules} | {
        one.result.check_name: pl.lit(one.broken) for one in judged if one.broken is not None
    }
    parted = _part(table, broken, results)
    check_balance(table.height, parted.clean, parted.quarantined)
    warned = seen[_WARNED] if not judged else _count_warned(table, broken, results)
    return Audit(results, parted.clean, parted.quarantined, warned)


def _compile(
    contract: Contract, schema: pl.Schema
) -> tuple[list[RowRule | WholeRule], list[Expectation]]:
    """The rules of what is compiled, and the expectations that its own engine has to judge."""
    rules: list[RowRule | WholeRule] = []
    others: list[Expectation] = []
    for expectation in contract.expectations:
        rule = None
        if expectation.type in COMPILED:
            of_rows = COMPILED[expectation.type].about == "row"
            rule = (row_rule if of_rows else whole_rule)(expectation, schema)
        if rule is None:
            others.append(expectation)
        else:
            rules.append(rule)
    return rules, others


def _part(
    table: pl.DataFrame, broken: Mapping[str, pl.Expr], results: Sequence[ExpectationResult]
) -> Split:
    failed = [r.check_name for r in results if r.severity == "critical" and not r.passed]
    critical = {
        r.check_name: broken[r.check_name]
        for r in results
        if r.severity == "critical" and r.rows_failed and r.check_name in broken
    }
    if failed:
        return withhold(table, critical, failed)
    return split(table, critical) if critical else keep_all(table)


def _check_columns(contract: Contract, schema: pl.Schema) -> None:
    problems = unknown_columns(contract, schema.names())
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ContractError(
            f"The contract {contract.name!r} does not fit its table, which has the columns"
            f" {schema.names()}:{listed}"
        )


def _observe(
    lazy: pl.LazyFrame, row_rules: Sequence[RowRule], whole_rules: Sequence[WholeRule]
) -> dict[str, Any]:
    """Everything that is counted or observed, in one pass."""
    wanted: list[pl.Expr] = [_warned(row_rules).alias(_WARNED)]
    for rule in row_rules:
        name = rule.expectation.check_name
        wanted += [
            rule.breaks.sum().alias(f"broken:{name}"),
            rule.judged.sum().alias(f"judged:{name}"),
        ]
    for rule in whole_rules:
        name = rule.expectation.check_name
        wanted += [expr.alias(f"seen{n}:{name}") for n, expr in enumerate(rule.observed)]
    return lazy.select(wanted).collect(engine="streaming").row(0, named=True)


def _warned(rules: Sequence[RowRule]) -> pl.Expr:
    """Rows that break a warning and nothing critical."""
    severe = {s: [r.breaks for r in rules if r.expectation.severity == s] for s in _SEVERITIES}
    return _number_warned(severe["warning"], severe["critical"])


def _count_warned(
    table: pl.DataFrame, broken: Mapping[str, pl.Expr], results: Sequence[ExpectationResult]
) -> int:
    """The same where the engine judged some of them."""
    severe = {
        s: [broken[r.check_name] for r in results if r.severity == s and r.check_name in broken]
        for s in _SEVERITIES
    }
    return int(table.select(_number_warned(severe["warning"], severe["critical"])).item())


def _number_warned(warning: Sequence[pl.Expr], critical: Sequence[pl.Expr]) -> pl.Expr:
    if not warning:
        return pl.lit(0, pl.UInt32)
    return (pl.any_horizontal(warning) & ~pl.any_horizontal(pl.lit(False), *critical)).sum()


def _row_result(rule: RowRule, seen: Mapping[str, Any]) -> ExpectationResult:
    name = rule.expectation.check_name
    broken, judged = int(seen[f"broken:{name}"] or 0), int(seen[f"judged:{name}"] or 0)
    what = rule.expectation.kwargs.get("column") or "rows"
    return share_result(rule.expectation, f"{what} must {rule.words}", broken, judged)


def _whole_result(rule: WholeRule, seen: Mapping[str, Any]) -> ExpectationResult:
    name = rule.expectation.check_name
    values = [seen[f"seen{number}:{name}"] for number in range(len(rule.observed))]
    return whole_result(rule.expectation, rule.judge(*values))
