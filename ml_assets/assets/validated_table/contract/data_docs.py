"""Writes Data Docs: Great Expectations' own pages of a contract and of a partition's results.

They are made on request, never while a table is made: GX's own engine audits the whole contract
once more, which takes a minute for a million rows. The pages load their styles from the web.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from ml_assets.assets.validated_table.contract.expectations import (
    ROW_LIMIT,
    own_expectation,
    require_engine,
)
from ml_assets.assets.validated_table.contract.suite import Contract
from ml_assets.errors import ContractError, counted

_SITE = "docs"


def write_data_docs(
    table: pl.DataFrame, contract: Contract, partition: str | None, folder: Path
) -> Path:
    """Write the site of one contract and one partition; return its first page.

    Raises:
        ContractError: the package is not installed, or the table is too long for it.
    """
    if table.height > ROW_LIMIT:
        raise ContractError(
            f"{counted(table.height, 'row', 'are')} too many for Data Docs, which hold at most"
            f" {ROW_LIMIT:,}: name a shorter --partition."
        )
    require_engine()
    import great_expectations as gx
    from great_expectations.core import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    context: Any = _context(folder)
    suite = gx.ExpectationSuite(name=contract.name)
    suite.expectations = [own_expectation(e, with_condition=True) for e in contract.expectations]
    tables = context.data_sources.add_pandas("tables").add_dataframe_asset(contract.name)
    whole = tables.add_batch_definition_whole_dataframe(partition or "all")
    batch = whole.get_batch(batch_parameters={"dataframe": table.to_pandas()})
    found = batch.validate(suite, result_format={"result_format": "SUMMARY"})
    for one in found.results:
        one.success = bool(one.success)  # one of numpy's cannot be stored
    context.suites.add(suite)
    name = ExpectationSuiteIdentifier(contract.name)
    run = RunIdentifier(run_name=partition or "all", run_time=datetime.now(UTC))
    key = ValidationResultIdentifier(name, run, partition or "all")
    context.validation_results_store.set(key, found)
    context.build_data_docs()
    return folder / "index.html"


def _context(folder: Path) -> Any:
    """A context that keeps everything in memory but the pages."""
    import great_expectations as gx

    context: Any = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    for site in [*(context.variables.data_docs_sites or {})]:
        context.delete_data_docs_site(site)
    place = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)}
    index = {"class_name": "DefaultSiteIndexBuilder"}
    site = {"class_name": "SiteBuilder", "site_index_builder": index, "store_backend": place}
    context.add_data_docs_site(_SITE, site)
    return context
