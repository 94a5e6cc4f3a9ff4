"""The expectation types of Great Expectations, and which of them are compiled.

Types that are not compiled, or not on the table's types, are judged by GX's own engine
(``expectations``). A test compares these names with the package's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

About = Literal["row", "column", "table"]
"""What an expectation speaks of: each row, a column as a whole, or the table as a whole."""


@dataclass(frozen=True)
class Kind:
    """The keys that an expectation type takes, and what its checks are called."""

    short: str
    about: About
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """Every key; ``row_condition`` narrows what is said to some of the rows."""
        condition = () if self.about == "table" else ("row_condition",)
        return (*self.needs, *self.takes, *condition)


_BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")
_EDGES = ("min_value", "max_value")
_PAIR = ("column_A", "column_B")


def _values(short: str, *needs: str, takes: tuple[str, ...] = ()) -> Kind:
    return Kind(short, "row", needs=("column", *needs), takes=(*takes, "mostly"))


def _between(short: str) -> Kind:
    return Kind(short, "column", needs=("column",), takes=_BOUNDS, one_of=_EDGES)


def _distinct(short: str) -> Kind:
    return Kind(short, "column", needs=("column", "value_set"))


COMPILED: Mapping[str, Kind] = {
    "expect_table_row_count_to_be_between": Kind(
        "row_count", "table", takes=_BOUNDS, one_of=_EDGES
    ),
    "expect_table_row_count_to_equal": Kind("rows", "table", needs=("value",)),
    "expect_table_column_count_to_equal": Kind("column_count", "table", needs=("value",)),
    "expect_table_column_count_to_be_between": Kind(
        "column_count", "table", takes=_EDGES, one_of=_EDGES
    ),
    "expect_table_columns_to_match_set": Kind(
        "columns", "table", needs=("column_set",), takes=("exact_match",)
    ),
    "expect_table_columns_to_match_ordered_list": Kind(
        "column_order", "table", needs=("column_list",)
    ),
    "expect_column_to_exist": Kind("exists", "table", needs=("column",), takes=("column_index",)),
    "expect_column_values_to_not_be_null": _values("not_null"),
    "expect_column_values_to_be_null": _values("null"),
    "expect_column_values_to_be_unique": _values("unique"),
    "expect_column_values_to_be_between": Kind(
        "between", "row", needs=("column",), takes=(*_BOUNDS, "mostly"), one_of=_EDGES
    ),
    "expect_column_values_to_be_in_set": _values("in_set", "value_set"),
    "expect_column_values_to_not_be_in_set": _values("not_in_set", "value_set"),
    "expect_column_values_to_match_regex": _values("regex", "regex"),
    "expect_column_values_to_not_match_regex": _values("not_regex", "regex"),
    "expect_column_value_lengths_to_equal": _values("length", "value"),
    "expect_column_value_lengths_to_be_between": Kind(
        "lengths", "row", needs=("column",), takes=(*_BOUNDS, "mostly"), one_of=_EDGES
    ),
    "expect_compound_columns_to_be_unique": Kind(
        "unique_key", "row", needs=("column_list",), takes=("mostly", "ignore_row_if")
    ),
    "expect_column_pair_values_to_be_equal": Kind(
        "equal", "row", needs=_PAIR, takes=("mostly", "ignore_row_if")
    ),
    "expect_column_pair_values_a_to_be_greater_than_b": Kind(
        "greater", "row", needs=_PAIR, takes=("or_equal", "mostly", "ignore_row_if")
    ),
    "expect_column_min_to_be_between": _between("min"),
    "expect_column_max_to_be_between": _between("max"),
    "expect_column_mean_to_be_between": _between("mean"),
    "expect_column_median_to_be_between": _between("median"),
    "expect_column_sum_to_be_between": _between("sum"),
    "expect_column_stdev_to_be_between": _between("stdev"),
    "expect_column_unique_value_count_to_be_between": _between("distinct"),
    "expect_column_proportion_of_unique_values_to_be_between": _between("distinct_share"),
    "expect_column_distinct_values_to_be_in_set": _distinct("distinct_in_set"),
    "expect_column_distinct_values_to_contain_set": _distinct("distinct_contain"),
    "expect_column_distinct_values_to_equal_set": _distinct("distinct_equal"),
}
"""Judged by polars."""

BY_ENGINE: Mapping[str, About] = {
    "expect_column_kl_divergence_to_be_less_than": "column",
    "expect_column_most_common_value_to_be_in_set": "column",
    "expect_column_pair_values_to_be_in_set": "row",
    "expect_column_proportion_of_non_null_values_to_be_between": "column",
    "expect_column_quantile_values_to_be_between": "column",
    "expect_column_type_to_be": "table",
    "expect_column_value_z_scores_to_be_less_than": "row",
    "expect_column_values_to_be_dateutil_parseable": "row",
    "expect_column_values_to_be_decreasing": "row",
    "expect_column_values_to_be_in_type_list": "table",
    "expect_column_values_to_be_increasing": "row",
    "expect_column_values_to_be_json_parseable": "row",
    "expect_column_values_to_be_of_type": "table",
    "expect_column_values_to_match_json_schema": "row",
    "expect_column_values_to_match_regex_list": "row",
    "expect_column_values_to_match_strftime_format": "row",
    "expect_column_values_to_not_be_outliers": "row",
    "expect_column_values_to_not_match_regex_list": "row",
    "expect_multicolumn_sum_to_equal": "row",
    "expect_multicolumn_values_to_be_equal": "row",
    "expect_select_column_values_to_be_unique_within_record": "row",
}
"""Always its own engine, on its pandas side."""

SUPPORTED = tuple(sorted([*COMPILED, *BY_ENGINE]))

IGNORE_ROW_IF = (
    "all_values_are_missing",
    "any_value_is_missing",
    "never",
    "both_values_are_missing",
    "either_value_is_missing",
    "neither",
)
"""The kinds for several columns are the first three, of a pair the others."""


def about(kind: str) -> About:
    """Return what an expectation of a supported type speaks of."""
    return COMPILED[kind].about if kind in COMPILED else BY_ENGINE[kind]


def short_name(kind: str) -> str:
    """The name of its checks."""
    return COMPILED[kind].short if kind in COMPILED else kind.removeprefix("expect_")
