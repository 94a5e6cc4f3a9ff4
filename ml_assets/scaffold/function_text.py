"""The text of a new pipeline's feature function."""

import json
from datetime import timedelta
from typing import Literal

import polars as pl

from ml_assets.scaffold.labelled_table import LabelledTable
from ml_assets.scaffold.lag_features import (
    calendar_features,
    lags,
    past_name,
    short,
    spans,
    usual_name,
)

HISTORY = "ml_assets.assets.feature_set.history_features"
"""The module that makes features of earlier rows."""


def features_py(name: str, table: LabelledTable) -> str:
    """The feature function: the table as it is, with its past where it is a time series."""
    return _of_series(name, table) if lags(table) else _of_rows(name, table)


def _of_rows(name: str, table: LabelledTable) -> str:
    imports, steps = "", ['tables["rows"]']
    decided = _quoted(table.decision_at)
    moments, comment = table.moments, ""
    if moments is None:
        imports = "from datetime import UTC, datetime\n"
        comment = "    # the table has no times: every row is decided at one moment\n"
        moment = 'pl.lit(datetime(2000, 1, 1, tzinfo=UTC), pl.Datetime("us", "UTC"))'
        steps.append(f".with_columns({moment}.alias({decided}))")
    elif table.frame.schema[moments.time] == pl.Date():
        comment = "    # the table has days: a prediction is made as its day begins\n"
        moment = f'pl.col({_quoted(moments.time)}).cast(pl.Datetime("us", "UTC"))'
        steps.append(f".with_columns({moment}.alias({decided}))")
    if table.given.calendar and moments:
        steps.append(_in_window(moments.time))
    elif table.copies:
        key = ", ".join(map(_quoted, table.key))
        steps += [f".sort({key})", _once(table)]
    body = "".join(f"\n        {step}" for step in steps)
    returned = f"({body}\n    )" if len(steps) > 1 else steps[0]
    return f"{_head(name, imports)}{_signature()}{comment}    return {returned}\n"


def _of_series(name: str, table: LabelledTable) -> str:
    assert table.moments is not None
    time = table.moments.time
    entity = [key for key in table.key if key != time]
    past = [
        *(f"lag({_of_past(table, 'lag', back)})," for back in lags(table)),
        *(f"trailing({_of_past(table, 'mean', span)})," for span in spans(table)),
    ]
    seen = "".join(f"    {line}\n" for line in past)
    by = f"by={json.dumps(entity, ensure_ascii=False)}, " if entity else ""
    at = _quoted(time)
    steps = [f"add_history(rows, rows, *PAST, {by}decision_at={at}, known_at={at})", ".lazy()"]
    if parts := calendar_features(table):
        made = "".join(
            f"\n            pl.col({at}).dt.{part}().cast(pl.String).alias({_quoted(name)}),"
            for name, part in parts.items()
        )
        steps.append(f".with_columns({made}\n        )")
    if table.given.calendar:
        steps.append(_in_window(time))
    body = "".join(f"\n        {step}" for step in steps)
    imports = f"from {HISTORY} import add_history, lag, trailing\n"
    return (
        f"{_head(name, '', imports)}"
        f"PAST = (  # by time, never by rows: over a gap there is none\n{seen})\n\n\n"
        f'{_signature()}    rows = tables["rows"].collect()\n    return ({body}\n    )\n'
    )


def _of_past(table: LabelledTable, of: Literal["lag", "mean"], back: timedelta) -> str:
    """What such a column is made of; its name, where the usual one is taken."""
    name = past_name(table, of, back)
    own = f", name={_quoted(name)}" if name != usual_name(table, of, back) else ""
    return f"{_quoted(table.label)}, {_quoted(short(back))}{own}"


def _in_window(time: str) -> str:
    at = f"pl.col({_quoted(time)})"
    return f'.filter({at}.is_between(window.start, window.end, closed="left"))'


def _once(table: LabelledTable) -> str:
    """The first of rows that differ by their key alone, and all rows whose label is not known."""
    label = _quoted(table.label)
    learned = [*table.names("numeric"), *table.names("categorical"), table.label]
    columns = "".join(f"\n                {_quoted(name)}," for name in learned)
    return (
        f".filter(  # copies under another key are learned from once\n"
        f"            pl.col({label}).is_null()\n"
        f"            | pl.struct({columns}\n            ).is_first_distinct()\n        )"
    )


def _head(name: str, imports: str, ours: str = "") -> str:
    return f'''\
"""What {name} knows of a row when it decides."""

from collections.abc import Mapping
{imports}
import polars as pl

{ours}from ml_assets.spec.window import Window


'''


def _signature() -> str:
    return '''\
def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """One row per decision: the key, the label, and every feature that the spec names."""
'''


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
