"""Label suspects as a table, on the report and on an asset's page."""

import polars as pl

from ml_assets.reports.picture import Table

ON_A_PAGE = 20
_WORDS = (
    "Rows of validation and holdout with the highest loss: the label is wrong, or the row is hard."
    " All that are kept: ml-assets models suspects {pipeline}"
)


def suspects_table(pipeline: str, rows: pl.DataFrame, most: int = ON_A_PAGE) -> Table:
    """The first of them."""
    cells = [tuple(_cell(value) for value in row) for row in rows.head(most).iter_rows()]
    return Table("Label suspects", _WORDS.format(pipeline=pipeline), rows.columns, cells)


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
