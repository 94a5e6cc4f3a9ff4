"""Judges the expectations that are not compiled, with Great Expectations' own engine.

It is imported only if a contract has such a type: that takes ten seconds and 300 MB. It gets a
partition's named columns, backed by Arrow, and whole: a table over the limit is an error, never a
sample.
"""

import importlib.util
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from ml_assets.assets.validated_table.contract.conditions import where
from ml_assets.assets.validated_table.contract.expectation_types import COMPILED
from ml_assets.assets.validated_table.contract.results import (
    ExpectationResult,
    WholeFinding,
    share_result,
    whole_result,
)
from ml_assets.assets.validated_table.contract.suite import Contract, Expectation, columns_of
from ml_assets.errors import ContractError, counted, install, quoted
from ml_assets.spec.base import canonical_json

ROW_LIMIT = 5_000_000
"""Rows of a partition that the engine is given; it holds them several times over in memory."""
_ROW = "__row"
_BY_NUMPY = {
    "expect_column_type_to_be",
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
    "expect_multicolumn_sum_to_equal",
    "expect_multicolumn_values_to_be_equal",
}
"""Types that name numpy's types, or fail on Arrow's nulls (1.24)."""
_COMPLETE = {"result_format": "COMPLETE"}


@dataclass(frozen=True)
class EngineFinding:
    """Holds what the engine says, and which rows it is about."""

    result: ExpectationResult
    broken: pl.Series | None
    """True where a row breaks it; None for a statement about the whole table."""


def needs_engine(contract: Contract) -> tuple[str, ...]:
    """The types of a contract that only the engine judges; a compiled one may need it as well."""
    types = {e.type for e in contract.expectations if e.type not in COMPILED}
    return tuple(sorted(types))


def is_installed() -> bool:
    """Return whether the engine is there, without importing it."""
    return importlib.util.find_spec("great_expectations") is not None


def check_expectations(contract: Contract) -> None:
    """Hold the kwargs of what is not compiled to the package's own rules, where it is installed.

    Raises:
        ContractError: a kwarg is missing, unknown or of a wrong type.
    """
    for expectation in contract.expectations:
        if expectation.type not in COMPILED and is_installed():
            own_expectation(expectation)


def judge(
    table: pl.DataFrame, expectations: Sequence[Expectation], limit: int = ROW_LIMIT
) -> tuple[EngineFinding, ...]:
    """Judge a whole partition, in the order of the expectations.

    Raises:
        ContractError: the package is not installed, the table is over the limit, or an expectation
            could not be judged: that is no failure of the data.
    """
    if table.height > limit:
        types = ", ".join(sorted({e.type for e in expectations}))
        raise ContractError(
            f"{counted(table.height, 'row', 'are')} too many for Great Expectations' engine, which"
            f" has to judge {types} and takes at most {limit:,}; they are never sampled. Cut"
            " the source into shorter partitions, or use expectation types that ml_assets compiles."
        )
    groups: dict[bytes, list[Expectation]] = {}
    for expectation in expectations:
        by_numpy = expectation.type in _BY_NUMPY
        meant = canonical_json([expectation.kwargs.get("row_condition"), by_numpy])
        groups.setdefault(meant, []).append(expectation)
    found: dict[str, EngineFinding] = {}
    for group in groups.values():
        found |= _judge_group(table, group)
    return tuple(found[expectation.check_name] for expectation in expectations)


def _judge_group(table: pl.DataFrame, group: Sequence[Expectation]) -> dict[str, EngineFinding]:
    """Those that speak of the same rows, on one frame that holds these rows."""
    first = group[0]
    columns = list(dict.fromkeys(name for e in group for name in columns_of(e)))
    if any(COMPILED[e.type].about == "table" for e in group if e.type in COMPILED):
        columns = table.columns
    part = table.select(columns).with_row_index(_ROW)
    condition = where(first.kwargs.get("row_condition"), table.schema, first.check_name)
    part = part if condition is None else part.filter(condition)
    frame = part.drop(_ROW).to_pandas(use_pyarrow_extension_array=first.type not in _BY_NUMPY)
    results = _validate(frame, [own_expectation(expectation) for expectation in group])
    return {
        expectation.check_name: _judged(expectation, result, part[_ROW], table.height)
        for expectation, result in zip(group, results, strict=True)
    }


def _judged(expectation: Expectation, found: Any, rows: pl.Series, height: int) -> EngineFinding:
    _refuse_errors(expectation, found)
    passed, result = bool(found.success), found.result  # success may be one of numpy's
    indices = result.get("unexpected_index_list")
    if indices is None:
        observed = _plain(result.get("observed_value"))
        said = f"{_title(expectation)}; observed: {quoted(observed)}"
        return EngineFinding(whole_result(expectation, WholeFinding(passed, observed, said)), None)
    broken = rows.gather(indices) if indices else rows.clear()
    mask = pl.Series("broken", [False]).new_from_index(0, height).scatter(broken, True)
    judged = int(result["element_count"]) - int(result.get("missing_count") or 0)
    said = share_result(expectation, _title(expectation), len(indices), judged, passed)
    return EngineFinding(said, mask)


def _title(expectation: Expectation) -> str:
    kwargs = {k: v for k, v in expectation.kwargs.items() if k not in ("mostly", "row_condition")}
    return f"{expectation.type} {kwargs}"


def _plain(observed: Any) -> int | float | str:
    if hasattr(observed, "item"):
        observed = observed.item()
    return observed if isinstance(observed, int | float | str) else str(observed)


def _refuse_errors(expectation: Expectation, found: Any) -> None:
    """An expectation that could not be judged is reported as one that failed: tell them apart."""
    info: Mapping[str, Any] = found.exception_info or {}
    entries = [info] if "raised_exception" in info else [*info.values()]
    said = [entry["exception_message"] for entry in entries if entry.get("raised_exception")]
    if said:
        raise ContractError(
            f"{expectation.check_name}: Great Expectations could not judge {_title(expectation)} of"
            f" this table: {quoted(str(said[0]).splitlines()[0][:300])}. Correct the contract, or"
            " the column's type in defs.yaml; nothing was published."
        )


# --- Great Expectations ---------------------------------------------------------------------------


def own_expectation(expectation: Expectation, *, with_condition: bool = False) -> Any:
    """The package's own object; one may be in one suite only, so a fresh one at each call.

    Args:
        with_condition: else the rows that are meant are chosen before it sees them.

    Raises:
        ContractError: the package is not installed, or refuses what is said.
    """
    _load()
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    left_out = () if with_condition else ("row_condition",)
    kwargs = {key: value for key, value in expectation.kwargs.items() if key not in left_out}
    try:
        return ExpectationConfiguration(type=expectation.type, kwargs=kwargs).to_domain_obj()
    except Exception as error:  # its own hierarchy and pydantic's, of either version
        said = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise ContractError(f"{expectation.check_name}: {_title(expectation)}: {said}") from error


def _validate(frame: Any, expectations: Sequence[Any]) -> list[Any]:
    """One result each, in order. A checkpoint would store them, and fail on numpy's booleans."""
    batch = _load().get_batch(batch_parameters={"dataframe": frame})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [batch.validate(one, result_format=_COMPLETE) for one in expectations]


def require_engine() -> None:
    """Import it once, telling nobody.

    Raises:
        ContractError: the package is not installed.
    """
    if not is_installed():
        raise ContractError(
            "This needs Great Expectations' own engine (a contract has expectations that only it"
            f" judges, or its Data Docs were asked for), which is not installed here:"
            f" {install('expectations')}"
        )
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")  # read at import
    import great_expectations

    logging.getLogger(great_expectations.__name__).setLevel(logging.ERROR)


@cache
def _load() -> Any:
    """A definition of batches from frames, in a context that writes nothing."""
    require_engine()
    import great_expectations as gx

    context: Any = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    tables = context.data_sources.add_pandas("partitions").add_dataframe_asset("table")
    return tables.add_batch_definition_whole_dataframe("whole")
