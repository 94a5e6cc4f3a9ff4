"""The audit of a table by its contract: lazy, streaming polars passes over a few columns each.

The rules of Great Expectations for nulls hold: a range, a set and uniqueness judge the values that
are there, ``mostly`` is a share of those, and NaN is a null. Differential tests hold the compiled
types to them; what is not compiled is judged by its own engine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import polars as pl

from ml_assets.assets.validated_table.contract.expectation_types import COMPILED
from ml_assets.assets.validated_table.contract.expectations import (
    EngineFinding,
    check_expectations,
    judge,
)
from ml_assets.assets.validated_table.contract.results import (
    ExpectationResult,
    share_result,
    whole_result,
)
from ml_assets.assets.validated_table.contract.row_rules import RowRule, row_rule
from ml_assets.assets.validated_table.contract.suite import (
    Contract,
    Expectation,
    Severity,
    read_suite,
    sound_part,
    unknown_columns,
)
from ml_assets.assets.validated_table.contract.whole_rules import WholeRule, whole_rule
from ml_assets.assets.validated_table.quarantine import (
    Split,
    check_balance,
    keep_all,
    split,
    withhold,
)
from ml_assets.errors import ContractError

_COLUMNS_A_PASS = 2
"""What a pass holds in memory grows with the columns that it reads, not with the rows."""


@dataclass(frozen=True)
class Audit:
    """Holds what may be published of a table, what is kept back, and why.

    The verdicts are there at once. The rows are read, and parted, when they are asked for.
    """

    results: tuple[ExpectationResult, ...]
    incoming: pl.LazyFrame
    breaks: Mapping[str, pl.Expr]
    """Critical checks that rows break -> where they do, never null."""
    warned: int
    """Rows that break a warning and nothing critical: they are published if any are."""

    @property
    def passed(self) -> bool:
        """Return whether ``clean`` may be published."""
        return not self._failed_checks

    @property
    def clean(self) -> pl.DataFrame:
        """The rows to publish; none if a critical expectation failed."""
        return self._parts.clean

    @property
    def quarantined(self) -> pl.DataFrame:
        """All other rows, with ``_reason``: rows in = clean + quarantined."""
        return self._parts.quarantined

    def with_result(self, result: ExpectationResult) -> "Audit":
        """Add a verdict on the whole table to the contract's; a critical failure keeps it back."""
        return replace(self, results=(*self.results, result))

    @property
    def _failed_checks(self) -> list[str]:
        critical = (result for result in self.results if result.severity == "critical")
        return [result.check_name for result in critical if not result.passed]

    @cached_property
    def _parts(self) -> Split:
        if self._failed_checks:
            parts = withhold(self.incoming, self.breaks, self._failed_checks)
        elif self.breaks:
            parts = split(self.incoming, self.breaks)
        else:
            parts = keep_all(self.incoming)
        check_balance(parts.rows_in, parts.clean, parts.quarantined)
        return parts


def audit(frame: pl.LazyFrame | pl.DataFrame, contract: Contract) -> Audit:
    """Judge the incoming rows and decide what of them is published.

    A row that breaks a critical row-level expectation goes to quarantine as long as the
    expectation still passes by its ``mostly``; if any critical expectation fails, all rows do. Rows
    that break a warning are counted and published. Clean and quarantined rows are those that came.

    Args:
        frame: read once or more for each few columns, and again for the rows.

    Raises:
        ContractError: the contract does not fit the table: a column that is not there, or a bound
            of another type than its column; or a part of it could not be judged.
    """
    lazy = frame.lazy()
    schema = lazy.collect_schema()
    _check_columns(contract, schema)
    rules, others = _compile(contract, schema)
    judged: tuple[EngineFinding, ...] = ()
    if others:
        table = lazy.collect(engine="streaming")
        judged, lazy = judge(table, others), table.lazy()
    seen = _observe(lazy, rules)
    found = [*(_result(rule, seen) for rule in rules), *(one.result for one in judged)]
    by_name = {result.check_name: result for result in found}
    results = tuple(by_name[e.check_name] for e in contract.expectations)
    breaks = {r.expectation.check_name: r.breaks for r in rules if isinstance(r, RowRule)} | {
        one.result.check_name: pl.lit(one.broken) for one in judged if one.broken is not None
    }
    warning, critical = (
        {name: breaks[name] for name in _broken(results, severity) if name in breaks}
        for severity in ("warning", "critical")
    )
    return Audit(results, lazy, critical, _number_warned(lazy, warning, critical))


def contract_mistakes(path: Path, schema: pl.Schema) -> tuple[str, ...]:
    """A sentence for each mistake in a contract that shows before there is a table.

    Args:
        schema: of the table that it will be held to.

    Raises:
        ContractError: the file cannot be read, or is no suite.
    """
    contract, found = sound_part(read_suite(path), path)
    for expectation in contract.expectations:
        alone = Contract(contract.name, (expectation,))
        unknown = unknown_columns(alone, schema.names())
        found += unknown
        if not unknown:
            try:
                _compile(alone, schema)
                check_expectations(alone)
            except ContractError as error:
                found.append(str(error))
    return tuple(found)


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


def _broken(results: Sequence[ExpectationResult], severity: Severity) -> list[str]:
    """The checks of that severity that rows break."""
    return [r.check_name for r in results if r.severity == severity and r.rows_failed]


def _check_columns(contract: Contract, schema: pl.Schema) -> None:
    problems = unknown_columns(contract, schema.names())
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ContractError(
            f"The contract {contract.name!r} does not fit its table, which has the columns"
            f" {schema.names()}:{listed}"
        )


def _observe(lazy: pl.LazyFrame, rules: Sequence[RowRule | WholeRule]) -> dict[str, Any]:
    """Everything that is counted or observed."""
    wanted: dict[str, pl.Expr] = {}
    for rule in rules:
        name = rule.expectation.check_name
        if isinstance(rule, WholeRule):
            wanted |= {f"seen{n}:{name}": expr for n, expr in enumerate(rule.observed)}
        else:
            proved = bool(rule.key) and no_repeats(lazy.filter(rule.judged), rule.key)
            wanted[f"broken:{name}"] = pl.lit(0) if proved else rule.breaks.sum()
            wanted[f"judged:{name}"] = rule.judged.sum()
    seen: dict[str, Any] = {}
    for together in _passes(wanted):
        seen |= lazy.select(together).collect(engine="streaming").row(0, named=True)
    return seen


def _passes(wanted: Mapping[str, pl.Expr]) -> Iterator[list[pl.Expr]]:
    """What is read together: as much as a few columns tell, each column if possible once."""
    reads = {name: sorted(set(expr.meta.root_names())) for name, expr in wanted.items()}
    together: list[pl.Expr] = []
    columns: set[str] = set()
    for name in sorted(wanted, key=reads.__getitem__):
        if together and len(columns.union(reads[name])) > _COLUMNS_A_PASS:
            yield together
            together, columns = [], set()
        together.append(wanted[name].alias(name))
        columns.update(reads[name])
    if together:
        yield together


def _number_warned(
    lazy: pl.LazyFrame, warning: Mapping[str, pl.Expr], critical: Mapping[str, pl.Expr]
) -> int:
    """Rows that break a warning and nothing critical."""
    if not warning:
        return 0
    warned = pl.any_horizontal(*warning.values())
    severe = pl.any_horizontal(pl.lit(False), *critical.values())
    return int(lazy.select((warned & ~severe).sum()).collect(engine="streaming").item())


def _result(rule: RowRule | WholeRule, seen: Mapping[str, Any]) -> ExpectationResult:
    name = rule.expectation.check_name
    if isinstance(rule, WholeRule):
        values = [seen[f"seen{number}:{name}"] for number in range(len(rule.observed))]
        return whole_result(rule.expectation, rule.judge(*values))
    broken, judged = int(seen[f"broken:{name}"] or 0), int(seen[f"judged:{name}"] or 0)
    what = rule.expectation.kwargs.get("column") or "rows"
    return share_result(rule.expectation, f"{what} must {rule.words}", broken, judged)


def no_repeats(rows: pl.LazyFrame, key: Sequence[pl.Expr]) -> bool:
    """Return whether it is certain that no two rows have equal keys; two nulls are equal here.

    A proof is cheaper than counting the rows of each key; without one they have to be counted.
    Tables of the store are sorted by their keys, so the first proof is nearly always enough.
    """
    keys = rows.select(part.alias(str(place)) for place, part in enumerate(key))
    schema = keys.collect_schema()
    if not all(_has_order(dtype) for dtype in schema.dtypes()):
        return False
    if _is_increasing(keys, schema.names()):
        return True
    return not any(dtype.is_float() for dtype in schema.dtypes()) and _hashes_differ(keys)


def _has_order(dtype: pl.DataType) -> bool:
    return dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.String, pl.Boolean)


def _is_increasing(keys: pl.LazyFrame, names: Sequence[str]) -> bool:
    """Each key is greater than the one before, so it differs from all before it."""

    def after(greater: pl.Expr, name: str) -> pl.Expr:
        here, before = pl.col(name), pl.col(name).shift(1)
        return (here > before) | ((here == before) & greater)

    greater = reduce(after, reversed(names), pl.lit(False))
    steps, rows = (
        keys.select(greater.sum(), pl.len().alias("rows")).collect(engine="streaming").row(0)
    )
    return rows <= 1 or steps == rows - 1


def _hashes_differ(keys: pl.LazyFrame) -> bool:
    """Equal keys have equal hashes (but for -0.0 and 0.0), so as many hashes prove as many keys."""
    counted = keys.select(pl.struct(pl.all()).hash().n_unique(), pl.len().alias("rows"))
    hashes, rows = counted.collect(engine="streaming").row(0)
    return hashes == rows
