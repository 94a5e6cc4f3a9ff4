"""Great Expectations itself, asked for its own answers."""

import logging
import os
import warnings
from typing import Any

import polars as pl
import pytest

from ml_assets.assets.validated_table.contract.expectation_types import about

Statement = tuple[str, dict[str, Any]]
Answer = tuple[bool, int]


@pytest.fixture(scope="package")
def oracle():
    """Great Expectations' own answers: (success, rows that break it) for each statement."""
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # pyright: ignore[reportAttributeAccessIssue]
    asset = context.data_sources.add_pandas("p").add_dataframe_asset("t")
    definition = asset.add_batch_definition_whole_dataframe("all")

    def judge(frame: pl.DataFrame, *statements: Statement) -> list[Answer]:
        batch = definition.get_batch(batch_parameters={"dataframe": frame.to_pandas()})
        suite = gx.ExpectationSuite(name="t")
        for number, (kind, kwargs) in enumerate(statements):
            meta = {"number": number}
            own = ExpectationConfiguration(type=kind, kwargs=kwargs, meta=meta).to_domain_obj()
            suite.expectations.append(own)  # its own way to add one stores the suite each time
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = batch.validate(suite).results
        for one in found:
            info = one.exception_info
            assert not info or info.get("raised_exception") is False, (one.expectation_config, info)
        ordered = sorted(found, key=lambda one: one.expectation_config.meta["number"])
        return [
            (bool(one.success), rows_of(one.expectation_config.type, one.result)) for one in ordered
        ]

    return judge


def rows_of(kind: str, result: dict[str, Any]) -> int:
    """Of a column as a whole, what it counts is not rows."""
    return int(result.get("unexpected_count") or 0) if about(kind) == "row" else 0
